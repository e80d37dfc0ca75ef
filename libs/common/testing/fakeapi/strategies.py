"""What the API server does to objects of particular kinds beyond their schema.

Only what operators meet is here: initial status, immutable fields, which kinds count generations,
which metadata a status write may touch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.fields import Fields
from libs.common.testing.fakeapi.registry import Resource, Version
from libs.common.testing.fakeapi.statuses import Cause

_GENERATION: Final = frozenset(
    {
        *(
            ("apps", plural)
            for plural in ("deployments", "replicasets", "statefulsets", "daemonsets")
        ),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
        ("", "pods"),
        ("", "replicationcontrollers"),
        ("networking.k8s.io", "ingresses"),
        ("networking.k8s.io", "networkpolicies"),
        ("networking.k8s.io", "ingressclasses"),
        ("policy", "poddisruptionbudgets"),
        ("discovery.k8s.io", "endpointslices"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    }
)
_UNGUARDED_CREATE: Final = frozenset({("coordination.k8s.io", "leases"), ("", "events")})
"""Resources where a PUT of an absent object creates it."""
_GUARDED_UPDATE: Final = frozenset(
    {
        ("coordination.k8s.io", "leases"),
        ("policy", "poddisruptionbudgets"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    }
)
"""Built-in resources where a PUT must carry a resource version, as for every custom one."""


def counts_generations(resource: Resource) -> bool:
    """Return whether objects of a resource have `metadata.generation`."""
    return resource.custom or (resource.group, resource.plural) in _GENERATION


def keeps_status(resource: Resource) -> bool:
    """Return whether objects are created with the status that the client sends."""
    return (resource.group, resource.plural) == ("", "nodes")


def creates_on_update(resource: Resource) -> bool:
    """Return whether a PUT of an object that does not exist creates it."""
    return (resource.group, resource.plural) in _UNGUARDED_CREATE


def requires_version(resource: Resource) -> bool:
    """Return whether a PUT without a resource version is refused."""
    return resource.custom or (resource.group, resource.plural) in _GUARDED_UPDATE


def build_initial_status(resource: Resource, obj: Manifest) -> Any:
    """Build the status that the server gives a new object; None for no status."""
    match (resource.group, resource.plural):
        case ("", "pods"):
            return {"phase": "Pending", "qosClass": _qos_class(obj.get("spec", {}))}
        case ("", "persistentvolumeclaims") | ("", "persistentvolumes"):
            return {"phase": "Pending"}
        case ("", "namespaces"):
            return {"phase": "Active"}
        case ("", "nodes"):
            return obj["status"]
        case ("", "services") | ("networking.k8s.io", "ingresses"):
            return {"loadBalancer": {}}
        case ("apps", "replicasets") | ("", "replicationcontrollers"):
            return {"replicas": 0}
        case ("apps", "statefulsets"):
            return {"availableReplicas": 0, "replicas": 0}
        case ("apps", "deployments") | ("batch", "jobs") | ("batch", "cronjobs"):
            return {}
        case ("apps", "daemonsets"):
            names = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled")
            return dict.fromkeys((*names, "numberReady"), 0)
        case ("policy", "poddisruptionbudgets"):
            counts = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
            return dict.fromkeys(counts, 0)
        case _:
            return None


def _qos_class(spec: Mapping[str, Any]) -> str:
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    demands = [c.get("resources") or {} for c in containers]
    if not any(d.get("requests") or d.get("limits") for d in demands):
        return "BestEffort"
    for demand in demands:
        limits = demand.get("limits") or {}
        requests = demand.get("requests") or limits
        if not {"cpu", "memory"} <= set(limits) or any(
            requests.get(name, limits[name]) != limits[name] for name in ("cpu", "memory")
        ):
            return "Burstable"
    return "Guaranteed"


def merge_status_write(resource: Resource, old: Manifest, new: Manifest) -> Manifest:
    """Return the old object with what a write to `/status` may change."""
    out = {**old}
    if "status" in new:
        out["status"] = new["status"]
    else:
        out.pop("status", None)
    if resource.custom:
        # Only managedFields of the metadata get through for custom kinds.
        out["metadata"] = dict(old["metadata"])
        out["metadata"]["managedFields"] = new["metadata"].get("managedFields") or []
        return out
    out["metadata"] = dict(new["metadata"])
    _restore(out["metadata"], old["metadata"], _STATUS_KEEPS.get(resource.plural, ()))
    return out


def merge_ephemeral_write(old: Manifest, new: Manifest) -> Manifest:
    """Return the old pod with what a write to `/ephemeralcontainers` may change."""
    spec = dict(old["spec"])
    wanted = new.get("spec", {}).get("ephemeralContainers")
    if wanted:
        spec["ephemeralContainers"] = wanted
    metadata = {**old["metadata"], "managedFields": new["metadata"].get("managedFields")}
    return {**old, "metadata": metadata, "spec": spec}


_STATUS_KEEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": ("ownerReferences",),
    "deployments": ("labels",),
}


def _restore(target: Manifest, source: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name in source:
            target[name] = source[name]
        else:
            target.pop(name, None)


def ignored_fields(resource: Resource, version: Version, subresource: str) -> tuple[Fields, Fields]:
    """Return the subtrees that a write through this path cannot own, and exceptions to them."""
    if subresource == "status":
        if resource.custom:
            return {("f:spec",), ("f:metadata",)}, set()
        dropped: Fields = {("f:spec",)}
        dropped |= {("f:metadata", f"f:{n}") for n in _STATUS_KEEPS.get(resource.plural, ())}
        return dropped, set()
    if not subresource and "status" in version.subresources:
        return {("f:status",)}, set()
    return set(), set()


def find_immutable_changes(
    resource: Resource, subresource: str, old: Manifest, new: Manifest
) -> list[Cause]:
    """Return the refusals of changes to fields that cannot change."""
    if subresource == "ephemeralcontainers":
        return _ephemeral(old, new)
    check = _IMMUTABLE.get((resource.group, resource.plural))
    return check(old, new) if check else []


def _pod(old: Manifest, new: Manifest) -> list[Cause]:
    if old.get("spec") == new.get("spec"):
        return []
    before, after = (_mutable_masked(obj.get("spec", {})) for obj in (old, new))
    if before == after:
        return []
    return [
        Cause(
            "spec",
            "Forbidden: pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
            "`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously"
            " negative)",
            "FieldValueForbidden",
        )
    ]


def _ephemeral(old: Manifest, new: Manifest) -> list[Cause]:
    before, after = (
        {c["name"]: c for c in obj["spec"].get("ephemeralContainers") or ()} for obj in (old, new)
    )
    why = ""
    if not set(before) <= set(after):
        why = "Forbidden: existing ephemeral containers may not be removed"
    elif any(before[name] != after[name] for name in before):
        why = "Forbidden: existing ephemeral containers may not be changed"
    return [Cause("spec.ephemeralContainers", why, "FieldValueForbidden")] if why else []


def _mutable_masked(spec: Mapping[str, Any]) -> Manifest:
    masked = copy.deepcopy(dict(spec))
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        masked.pop(name, None)
    for name in ("containers", "initContainers"):
        for container in masked.get(name) or ():
            container.pop("image", None)
    return masked


def _claim(old: Manifest, new: Manifest) -> list[Cause]:
    before, after = ({**obj.get("spec", {})} for obj in (old, new))
    for spec in (before, after):
        spec.pop("volumeAttributesClassName", None)
        if old.get("status", {}).get("phase") == "Bound":
            spec.pop("resources", None)
    if old.get("status", {}).get("phase") != "Bound" and not before.get("volumeName"):
        # The binder may set the volume of a pending claim.
        before.pop("volumeName", None)
        after.pop("volumeName", None)
    if before == after:
        return []
    return [
        Cause(
            "spec",
            "Forbidden: spec is immutable after creation except resources.requests and"
            " volumeAttributesClassName for bound claims",
            "FieldValueForbidden",
        )
    ]


def _frozen(*paths: str) -> Callable[[Manifest, Manifest], list[Cause]]:
    def check(old: Manifest, new: Manifest) -> list[Cause]:
        return [
            Cause(path, f"Invalid value: {_at(new, path)!r}: field is immutable")
            for path in paths
            if _at(old, path) != _at(new, path)
        ]

    return check


def _at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return obj


def _config(old: Manifest, new: Manifest) -> list[Cause]:
    causes = _frozen("type")(old, new) if "type" in old else []
    if not old.get("immutable"):
        return causes
    if not new.get("immutable"):
        causes.append(Cause("immutable", _WHEN_IMMUTABLE, "FieldValueForbidden"))
    causes.extend(
        Cause(name, _WHEN_IMMUTABLE, "FieldValueForbidden")
        for name in ("data", "binaryData")
        if old.get(name) != new.get(name)
    )
    return causes


_WHEN_IMMUTABLE: Final = "Forbidden: field is immutable when `immutable` is set"
_IMMUTABLE: Final[Mapping[tuple[str, str], Callable[[Manifest, Manifest], list[Cause]]]] = {
    ("", "pods"): _pod,
    ("", "persistentvolumeclaims"): _claim,
    ("", "secrets"): _config,
    ("", "configmaps"): _config,
    ("apps", "deployments"): _frozen("spec.selector"),
    ("apps", "replicasets"): _frozen("spec.selector"),
    ("apps", "daemonsets"): _frozen("spec.selector"),
    ("batch", "jobs"): _frozen("spec.selector", "spec.template", "spec.completionMode"),
    ("storage.k8s.io", "storageclasses"): _frozen("provisioner", "parameters", "reclaimPolicy"),
    ("discovery.k8s.io", "endpointslices"): _frozen("addressType"),
    ("rbac.authorization.k8s.io", "rolebindings"): _frozen("roleRef"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _frozen("roleRef"),
}
