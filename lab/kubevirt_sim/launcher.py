"""The virt-launcher pod of an instance, and what it tells. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lab.kubevirt_sim.behavior import SCHEDULER
from libs.common.kinds import POD, Manifest, build_object, is_deleting, key_of, uid_of
from libs.common.naming import DNS_LABEL_LIMIT
from libs.common.ownership import build_owner_reference
from libs.common.reading import holds_at, map_at, maps_at, text_at, text_map_at
from libs.contracts.kubevirt import CREATED_BY, INSTANCE_LABEL, VIRTUAL_MACHINE_INSTANCE
from libs.contracts.migrations import MIGRATION_JOB

UNPAUSED: Final = "kubevirt.io/virtual-machine-unpaused"
"""Readiness gate of launcher pods."""
DOMAIN: Final = "kubevirt.io/domain"
HOSTNAME: Final = "kubernetes.io/hostname"


def short_hash(*parts: str) -> str:
    """Return five characters that follow from some texts, for names."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:5]


def launcher_name(vmi: Mapping[str, Any], migration_uid: str = "") -> str:
    """Return the name of the launcher of an instance, or of the target launcher of a migration."""
    name = key_of(vmi).name
    suffix = short_hash(uid_of(vmi), migration_uid)
    return f"virt-launcher-{name}"[:57].rstrip("-.") + f"-{suffix}"


def build_launcher(
    vmi: Manifest, *, image: str, simulated: bool, migration: Manifest | None = None
) -> Manifest:
    """Build the launcher pod of an instance.

    Args:
        vmi: The instance.
        image: Image of its one container, which does nothing.
        simulated: Whether the simulator plays scheduler and kubelet for it.
        migration: Migration that the pod is the target of; None for the first pod.
    """
    key, spec = key_of(vmi), map_at(vmi, "spec")
    labels = {
        **text_map_at(vmi, "metadata", "labels"),
        "kubevirt.io": "virt-launcher",
        CREATED_BY: uid_of(vmi),
        INSTANCE_LABEL: _label_of(key.name),
    }
    labels.pop("kubevirt.io/nodeName", None)
    annotations = {**text_map_at(vmi, "metadata", "annotations"), DOMAIN: key.name}
    if migration is not None:
        labels[MIGRATION_JOB] = uid_of(migration)
    return build_object(
        POD,
        launcher_name(vmi, uid_of(migration or {})),
        key.namespace,
        metadata={
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [build_owner_reference(VIRTUAL_MACHINE_INSTANCE, vmi)],
        },
        spec={
            **({"schedulerName": SCHEDULER} if simulated else {}),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": int(spec.get("terminationGracePeriodSeconds") or 30),
            "nodeSelector": _build_selector(spec, migration),
            "affinity": _build_affinity(vmi, spec, migration),
            "tolerations": list(spec.get("tolerations") or ()),
            "readinessGates": [{"conditionType": UNPAUSED}],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsUser": 107,
                "runAsGroup": 107,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "compute",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                }
            ],
            "volumes": [
                {"name": text_at(volume, "name"), "persistentVolumeClaim": {"claimName": claim}}
                for volume in maps_at(spec, "volumes")
                if (claim := claim_of(volume))
            ],
        },
    )


def claim_of(volume: Mapping[str, Any]) -> str:
    """Return the claim behind a volume of an instance; empty for a volume of another kind."""
    return text_at(volume, "dataVolume", "name") or text_at(
        volume, "persistentVolumeClaim", "claimName"
    )


def are_containers_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the containers of a pod run and are ready, whatever its gates say."""
    return text_at(pod, "status", "phase") == "Running" and holds_at(pod, "ContainersReady")


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Return whether the containers of a pod have ended."""
    return text_at(pod, "status", "phase") in ("Succeeded", "Failed")


def waiting_reason(pod: Mapping[str, Any]) -> str:
    """Return why a container of a pod does not start; empty when none waits for a reason."""
    reasons = (
        text_at(status, "state", "waiting", "reason")
        for status in maps_at(pod, "status", "containerStatuses")
    )
    return next((reason for reason in reasons if reason), "")


def find_launcher(
    vmi: Mapping[str, Any], pods: Sequence[Manifest], node: str = ""
) -> Manifest | None:
    """Return the pod that holds the guest, or should hold it.

    The pod on the node of the instance, if it has one; of several the newest, and never one that
    a migration which has not ended goes to.
    """
    node = node or text_at(vmi, "status", "nodeName")
    state = map_at(vmi, "status", "migrationState")
    moved = state.get("completed") is True and state.get("failed") is not True
    arrived = text_at(state, "targetPod") if moved else ""
    candidates = [
        pod
        for pod in pods
        if (MIGRATION_JOB not in text_map_at(pod, "metadata", "labels"))
        or pod["metadata"]["name"] == arrived
        or (bool(node) and text_at(pod, "spec", "nodeName") == node and _is_old(pod, state))
    ]
    if node:
        candidates = [pod for pod in candidates if text_at(pod, "spec", "nodeName") == node]
    candidates.sort(
        key=lambda pod: (not is_finished(pod), not is_deleting(pod), _created(pod)), reverse=True
    )
    return candidates[0] if candidates else None


def _is_old(pod: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Return whether a pod was created by a migration before the current one."""
    job = text_map_at(pod, "metadata", "labels").get(MIGRATION_JOB, "")
    return job != text_at(state, "migrationUid")


def _created(pod: Mapping[str, Any]) -> str:
    return text_at(pod, "metadata", "creationTimestamp")


def _label_of(name: str) -> str:
    if len(name) <= DNS_LABEL_LIMIT:
        return name
    return f"{name[: DNS_LABEL_LIMIT - 6].rstrip('-.')}-{short_hash(name)}"


def _build_selector(spec: Mapping[str, Any], migration: Manifest | None) -> dict[str, str]:
    added = text_map_at(migration or {}, "spec", "addedNodeSelector")
    return {**text_map_at(spec, "nodeSelector"), **added}


def _build_affinity(vmi: Manifest, spec: Mapping[str, Any], migration: Manifest | None) -> Manifest:
    affinity = dict(map_at(spec, "affinity"))
    if migration is None:
        return affinity
    # The target is kept off the node of the source.
    term = {
        "labelSelector": {"matchLabels": {CREATED_BY: uid_of(vmi)}},
        "topologyKey": HOSTNAME,
    }
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    anti = dict(map_at(affinity, "podAntiAffinity"))
    anti[rule] = [*(anti.get(rule) or ()), term]
    return {**affinity, "podAntiAffinity": anti}
