"""What no manifest of an operator may grant or ask for, as BadRobot has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from libs.common.kinds import Manifest

type Rule = Mapping[str, Sequence[str]]

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "update", "patch", "delete", "deletecollection")


def find_offenses(manifest: Manifest) -> list[str]:
    """List what a manifest offends against, each as `kind name: what`."""
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    if manifest["kind"] in ("Role", "ClusterRole"):
        return [f"{name}: {what}" for what in _check_role(manifest)]
    if manifest["kind"] in ("RoleBinding", "ClusterRoleBinding"):
        return [f"{name}: {what}" for what in _check_binding(manifest)]
    pod = _find_pod(manifest)
    return [f"{name}: {what}" for what in _check_pod(pod)] if pod else []


def _grants(verbs: Sequence[str], *resources: str, group: str | None = None) -> _Check:
    def check(rule: Rule) -> bool:
        asked, held = set(rule.get("resources") or ()), set(rule.get("verbs") or ())
        in_group = group is None or group in (rule.get("apiGroups") or ())
        return in_group and bool(asked & set(resources)) and bool(held & set(verbs))

    return check


type _Check = Callable[[Rule], bool]
_ROLE_RULES: Final[Mapping[str, _Check]] = {
    "names all resources, verbs or groups": lambda rule: any(
        "*" in (rule.get(part) or ()) for part in ("apiGroups", "resources", "verbs")
    ),
    "can raise its own rights": lambda rule: bool(
        {"escalate", "bind", "impersonate"} & set(rule.get("verbs") or ())
    ),
    "reads or writes secrets": _grants((*_READ, *_WRITE), "secrets"),
    "can run commands in pods": _grants(("create", "get"), "pods/exec", "pods/attach"),
    "can forward ports of pods": _grants(("create", "get"), "pods/portforward"),
    "can reach the kubelet": _grants((*_READ, *_WRITE), "nodes/proxy", "nodes/log", "nodes/exec"),
    "can make tokens": _grants(("create",), "serviceaccounts/token"),
    "can change roles": _grants(_WRITE, "roles", "clusterroles", "rolebindings"),
    "can bind cluster roles": _grants(_WRITE, "clusterrolebindings"),
    "can change CRDs": _grants(_WRITE, "customresourcedefinitions"),
    "can change admission": _grants(
        _WRITE, "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
    ),
    "can delete events": _grants(("delete", "deletecollection"), "events"),
    "can change volumes of the cluster": _grants(_WRITE, "persistentvolumes"),
    "can change namespaces": _grants(_WRITE, "namespaces"),
    "can change nodes": _grants(_WRITE, "nodes"),
    "can change network policies": _grants(_WRITE, "networkpolicies"),
    "can change service accounts": _grants(_WRITE, "serviceaccounts"),
    "can approve certificates": _grants(_WRITE, "certificatesigningrequests/approval"),
    "can delete whole collections": lambda rule: "deletecollection" in (rule.get("verbs") or ()),
    "can add ephemeral containers": _grants(("patch", "update"), "pods/ephemeralcontainers"),
    "can change pods of others by status": _grants(("patch", "update"), "pods/status"),
}


def _check_role(manifest: Manifest) -> Iterator[str]:
    # The chart binds no roles for users; roles of cluster-scoped kinds are not aggregated.
    is_for_users = manifest["metadata"]["name"].endswith(("-viewer", "-editor"))
    for rule in manifest.get("rules") or ():
        for what, check in _ROLE_RULES.items():
            if check(rule) and not (is_for_users and what == "can delete whole collections"):
                yield what


def _check_binding(manifest: Manifest) -> Iterator[str]:
    if manifest["roleRef"]["name"] in ("cluster-admin", "admin", "edit"):
        yield f"binds {manifest['roleRef']['name']}"
    for subject in manifest.get("subjects") or ():
        if subject["kind"] != "ServiceAccount":
            yield f"binds to a {subject['kind']}"
        if subject["name"] == "default":
            yield "binds to the account that every pod has"


def _find_pod(manifest: Manifest) -> Manifest | None:
    spec = manifest.get("spec") or {}
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
    found: Manifest | None = template.get("spec") if template else None
    return spec if manifest["kind"] == "Pod" else found


_POD_RULES: Final[Mapping[str, Callable[[Manifest], bool]]] = {
    "shares namespaces of the node": lambda pod: any(
        pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")
    ),
    "mounts paths of the node": lambda pod: any(
        "hostPath" in volume for volume in pod.get("volumes") or ()
    ),
    "may run as root": lambda pod: not (pod.get("securityContext") or {}).get("runAsNonRoot"),
    "has no seccomp profile": lambda pod: "seccompProfile"
    not in (pod.get("securityContext") or {}),
}
_CONTAINER_RULES: Final[Mapping[str, Callable[[Manifest], bool]]] = {
    "is privileged": lambda one: bool(_context(one).get("privileged")),
    "may gain privileges": lambda one: _context(one).get("allowPrivilegeEscalation") is not False,
    "keeps capabilities": lambda one: _context(one).get("capabilities") != {"drop": ["ALL"]},
    "can write its root": lambda one: _context(one).get("readOnlyRootFilesystem") is not True,
    "has a secret in its environment": lambda one: any(
        "secretKeyRef" in (entry.get("valueFrom") or {}) for entry in one.get("env") or ()
    )
    or any("secretRef" in entry for entry in one.get("envFrom") or ()),
    "runs an image of no fixed version": lambda one: _is_loose(str(one.get("image"))),
}


def _check_pod(pod: Manifest) -> Iterator[str]:
    yield from (what for what, check in _POD_RULES.items() if check(pod))
    for container in (*pod["containers"], *(pod.get("initContainers") or ())):
        for what, check in _CONTAINER_RULES.items():
            if check(container):
                yield f"{container['name']} {what}"


def _context(container: Manifest) -> Mapping[str, Any]:
    return container.get("securityContext") or {}


def _is_loose(image: str) -> bool:
    if "@sha256:" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")
