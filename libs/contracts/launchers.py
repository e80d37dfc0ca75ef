"""View of virt-launcher pods: where the guest of an instance runs, and at which address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_of, controller_uid
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.contracts.kubevirt import CREATED_BY, INSTANCE_LABEL
from libs.contracts.migrations import MIGRATION_JOB
from libs.contracts.states import ConditionsView

LAUNCHER_SELECTOR: Final = "kubevirt.io=virt-launcher"
"""Label selector by which the server finds launcher pods."""


@dataclass(frozen=True, slots=True)
class LauncherView:
    """The parts of a virt-launcher pod that operators use.

    Attributes:
        key: Namespace and name.
        uid: Which pod it is; `activePods` of the instance names it by this.
        created: Creation time as it is written.
        deleting: Whether its deletion was asked for.
        owner_uid: UID of the instance that controls it; empty for an orphan. The label alone,
            which anybody may write, proves nothing.
        created_by: UID of the instance as the label has it.
        migration: UID of the migration that it was made for; empty for a first pod.
        node_name: Node that it is on; empty before.
        phase: Phase of the pod.
        ready: Whether it is ready.
        address: IP address of the pod; empty before.
        addresses: All IP addresses of the pod, one a family.
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

    @classmethod
    def parse(cls, pod: Manifest) -> Self:
        """Read a pod, shrunk or whole; fields that do not fit count as absent."""
        labels = text_map_at(pod, "metadata", "labels")
        first = text_at(pod, "status", "podIP")
        others = [text_at(item, "ip") for item in maps_at(pod, "status", "podIPs")]
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
            ready=ConditionsView.parse(pod).holds("Ready"),
            address=first,
            addresses=tuple(dict.fromkeys(each for each in (first, *others) if each)),
        )

    @property
    def live(self) -> bool:
        """Whether it may hold a guest: neither ended nor on its way out."""
        return not self.deleting and self.phase not in ("Succeeded", "Failed")


def shrink_launcher(pod: Manifest) -> Manifest:
    """Keep of a pod what the view shows: some 700 bytes of 10,000."""
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
    ready = [item for item in maps_at(status, "conditions") if item.get("type") == "Ready"]
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
                {name: text_at(item, name) for name in ("type", "status")} for item in ready
            ],
        },
    }
