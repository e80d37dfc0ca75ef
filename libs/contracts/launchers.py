"""View of virt-launcher pods: node and addresses of the guest of an instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_of, controller_uid
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.contracts.kubevirt import CREATED_BY, INSTANCE_LABEL
from libs.contracts.migrations import MIGRATION_JOB
from libs.contracts.states import ConditionsView

LAUNCHER_SELECTOR: Final = "kubevirt.io=virt-launcher"
"""Label selector of launcher pods, for lists and watches."""


@dataclass(frozen=True, slots=True)
class LauncherView:
    """The parts of a virt-launcher pod that operators use.

    Attributes:
        uid: UID of the pod; `activePods` of the instance refers to it.
        created: Creation timestamp as text.
        owner_uid: UID of the instance that controls it; empty for an orphan. Ownership is decided
            by this reference and not by the label, which anybody may write.
        created_by: UID of the instance according to the label.
        migration: UID of the migration that it is the target of; empty for a first pod.
        node_name: Node that it is scheduled to; empty before.
        address: IP address of the pod; empty while it has none.
        addresses: All IP addresses of the pod, one per family.
        unscheduled: Why no node can run it, in the words of the scheduler; empty if it found one or
            has not looked yet.
        disrupted: Whether Kubernetes ended it, such as by an eviction or a shutdown of the node.
    """

    key: Key
    uid: str
    created: str
    deleting: bool
    owner_uid: str
    created_by: str
    migration: str
    node_name: str
    phase: str
    ready: bool
    address: str
    addresses: tuple[str, ...]
    unscheduled: str
    disrupted: bool

    @classmethod
    def parse(cls, pod: Manifest) -> Self:
        """Parse a pod, full or reduced by `shrink_launcher`; invalid fields count as absent."""
        labels = text_map_at(pod, "metadata", "labels")
        first = text_at(pod, "status", "podIP")
        others = [text_at(item, "ip") for item in maps_at(pod, "status", "podIPs")]
        conditions = ConditionsView.parse(pod)
        placed = conditions.find("PodScheduled")
        unplaced = placed is not None and placed.status == "False"
        return cls(
            key=key_of(pod),
            uid=uid_of(pod),
            created=text_at(pod, "metadata", "creationTimestamp"),
            deleting=is_deleting(pod),
            owner_uid=controller_uid(pod),
            created_by=labels.get(CREATED_BY, ""),
            migration=labels.get(MIGRATION_JOB, ""),
            node_name=text_at(pod, "spec", "nodeName"),
            phase=text_at(pod, "status", "phase"),
            ready=conditions.holds("Ready"),
            address=first,
            addresses=tuple(dict.fromkeys(each for each in (first, *others) if each)),
            unscheduled=placed.message if placed is not None and unplaced else "",
            disrupted=conditions.holds("DisruptionTarget"),
        )

    @property
    def live(self) -> bool:
        """Whether it may run a guest: it has neither ended nor is it being deleted."""
        return not self.deleting and self.phase not in ("Succeeded", "Failed")


def shrink_launcher(pod: Manifest) -> Manifest:
    """Reduce a pod to the fields that `LauncherView` reads: some 700 bytes of 10,000."""
    metadata = pod["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    labels = text_map_at(pod, "metadata", "labels")
    small: dict[str, Any] = {name: metadata[name] for name in kept if name in metadata}
    small["labels"] = {
        name: labels[name]
        for name in ("kubevirt.io", CREATED_BY, INSTANCE_LABEL, MIGRATION_JOB)
        if name in labels
    }
    owner = controller_of(pod)
    if owner is not None:
        small["ownerReferences"] = [owner]
    status = map_at(pod, "status")
    conditions = [item for item in maps_at(status, "conditions") if _is_read(item)]
    return {
        "apiVersion": pod.get("apiVersion", "v1"),
        "kind": pod.get("kind", "Pod"),
        "metadata": small,
        "spec": {"nodeName": text_at(pod, "spec", "nodeName")},
        "status": {
            "phase": text_at(status, "phase"),
            "podIP": text_at(status, "podIP"),
            "podIPs": [dict(item) for item in maps_at(status, "podIPs")],
            "conditions": [
                {name: text_at(item, name) for name in _names_of(item)} for item in conditions
            ],
        },
    }


def _is_read(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") in ("Ready", "DisruptionTarget") or _is_unscheduled(condition)


def _is_unscheduled(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == "PodScheduled" and condition.get("status") == "False"


def _names_of(condition: Mapping[str, Any]) -> tuple[str, ...]:
    return ("type", "status", *(("message",) if _is_unscheduled(condition) else ()))
