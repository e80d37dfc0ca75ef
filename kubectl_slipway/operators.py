"""The installed operators, read from their Deployments, pods and Leases. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubectl_slipway.model import Manifest, parse_time

SELECTOR = "app.kubernetes.io/part-of=slipway,app.kubernetes.io/component=operator"
"""Labels of the Deployments and pods of operators."""
NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
_RELEASE_HOLDER = "release"


@dataclass(frozen=True)
class Operator:
    """One installation of an operator.

    Attributes:
        id: Name of the operator, such as `podset`.
        service_account: Its user name, as `system:serviceaccount:namespace:name`.
        watched: Watched namespaces; None for all but the excluded ones.
        excluded: Namespaces that are not watched if all others are.
        selector: Labels of watched namespaces; empty if it does not select by label.
        leader: Holder of the Lease; empty if there is none.
        lease: The Lease, or None.
        certificate_secret: Secret with the certificate of its webhooks if others issue it.
    """

    id: str
    namespace: str
    release: str
    version: str
    replicas: int
    ready: int
    service_account: str
    watched: tuple[str, ...] | None
    excluded: tuple[str, ...]
    selector: str
    leader: str
    leader_elect: bool
    lease: Manifest | None
    pods: tuple[Manifest, ...]
    certificate_secret: str

    def watches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it watches a namespace; empty stands for cluster-scoped objects."""
        if not namespace:
            return True
        if self.selector:
            return matches(self.selector, labels)
        return namespace not in self.excluded if self.watched is None else namespace in self.watched

    @property
    def watches_text(self) -> str:
        """The watched namespaces for a table."""
        if self.selector:
            return f"({self.selector})"
        if self.watched is None:
            return f"* except {','.join(self.excluded)}" if self.excluded else "*"
        return ",".join(self.watched)

    @property
    def released(self) -> bool:
        """Whether an uninstall has stopped it."""
        return self.leader == _RELEASE_HOLDER

    def leads(self, now: datetime) -> bool:
        """Return whether one of its pods leads now."""
        if not self.leader_elect:
            return self.ready > 0
        spec = (self.lease or {}).get("spec") or {}
        renewed = parse_time(spec.get("renewTime") or "")
        if not self.leader or self.released or renewed is None:
            return False
        # Twice the duration: the clock of this machine may be off by some seconds.
        return (now - renewed).total_seconds() <= 2 * int(spec.get("leaseDurationSeconds") or 15)


def build_operators(
    deployments: Iterable[Manifest], pods: Sequence[Manifest], leases: Iterable[Manifest]
) -> list[Operator]:
    """Build the operators from their Deployments, in the order of id and namespace."""
    by_key = {(e["metadata"]["namespace"], e["metadata"]["name"]): e for e in leases}
    found = [_build(each, pods, by_key) for each in deployments]
    return sorted(found, key=lambda each: (each.id, each.namespace, each.release))


def _build(
    deployment: Manifest, pods: Sequence[Manifest], leases: Mapping[tuple[str, str], Manifest]
) -> Operator:
    meta, spec = deployment["metadata"], deployment.get("spec") or {}
    labels, template = meta.get("labels") or {}, (spec.get("template") or {}).get("spec") or {}
    id, namespace = labels.get(NAME) or meta["name"], meta["namespace"]
    environ = _environ(template)
    prefix = f"{id.upper()}_"
    watched = environ.get(f"{prefix}WATCH_NAMESPACES") or namespace
    lease = leases.get((namespace, environ.get(f"{prefix}LEASE_NAME") or id))
    release = labels.get(INSTANCE, "")
    replicas = spec.get("replicas")
    return Operator(
        id=id,
        namespace=namespace,
        release=release or meta["name"],
        version=labels.get("app.kubernetes.io/version") or environ.get("OPERATOR_VERSION", ""),
        replicas=1 if replicas is None else int(replicas),
        ready=int((deployment.get("status") or {}).get("readyReplicas") or 0),
        service_account=(
            f"system:serviceaccount:{namespace}:{template.get('serviceAccountName') or 'default'}"
        ),
        watched=None if watched == "*" else _split(watched),
        excluded=_split(environ.get(f"{prefix}WATCH_EXCLUDED_NAMESPACES", "")),
        selector=environ.get(f"{prefix}WATCH_NAMESPACE_SELECTOR", ""),
        leader=((lease or {}).get("spec") or {}).get("holderIdentity") or "",
        leader_elect=environ.get(f"{prefix}LEADER_ELECT", "true").lower() != "false",
        lease=lease,
        pods=tuple(each for each in pods if _belongs(each, namespace, id, release)),
        certificate_secret=environ.get(f"{prefix}WEBHOOK_CERTIFICATE_SECRET", ""),
    )


def _split(names: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in names.split(",") if each)


def _environ(template: Mapping[str, Any]) -> dict[str, str]:
    containers = template.get("containers") or ()
    return {
        each["name"]: each.get("value") or ""
        for container in containers
        for each in container.get("env") or ()
        if "valueFrom" not in each
    }


def _belongs(pod: Manifest, namespace: str, id: str, release: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    same = labels.get(NAME) == id and labels.get(INSTANCE, "") == release
    return same and pod["metadata"]["namespace"] == namespace


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether labels match a selector in the syntax of `kubectl -l`."""
    import re

    for part in re.split(r",(?![^(]*\))", selector):
        part = part.strip()
        sets = re.fullmatch(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)", part)
        if sets:
            values = {value.strip() for value in sets[3].split(",")}
            held = (labels.get(sets[1]) in values) is (sets[2] == "in")
        elif "!=" in part:
            name, _, value = part.partition("!=")
            held = labels.get(name.strip()) != value.strip()
        elif "=" in part:
            name, _, value = part.replace("==", "=").partition("=")
            held = labels.get(name.strip()) == value.strip()
        elif part.startswith("!"):
            held = part[1:].strip() not in labels
        else:
            held = not part or part in labels
        if not held:
            return False
    return True
