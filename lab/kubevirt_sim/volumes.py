"""The volumes behind the claims of the simulator, and the nodes that can use them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.launcher import HOSTNAME
from libs.common.kinds import Manifest, key_of, uid_of
from libs.common.reading import map_at, maps_at, text_at

VOLUME_LABEL: Final = PREFIX + "volume"
"""Label of the PersistentVolumes that the simulator makes."""


def build_volume(claim: Manifest, name: str, request: object, node: str) -> Manifest:
    """Build the volume of a claim.

    Args:
        claim: The claim.
        name: Name of the volume.
        request: Requested size.
        node: The only node that can use it; empty for all.
    """
    spec = map_at(claim, "spec")
    key = key_of(claim)
    expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
    terms = [{"matchExpressions": [expression]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {VOLUME_LABEL: "true"}},
        "spec": {
            "capacity": {"storage": request},
            "accessModes": list(spec.get("accessModes") or ()),
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": text_at(spec, "storageClassName"),
            "volumeMode": text_at(spec, "volumeMode") or "Filesystem",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid_of(claim),
            },
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if node else {}),
            # Nothing is ever mounted from there: no kubelet runs the pods that use it.
            "hostPath": {"path": f"/tmp/kubevirt-sim/{name}"},
        },
    }


def find_places(volume: Mapping[str, Any]) -> list[str]:
    """Return the nodes that can use a volume, as `build_volume` names them; empty for all."""
    required = map_at(volume, "spec", "nodeAffinity", "required")
    return [
        str(value)
        for term in maps_at(required, "nodeSelectorTerms")
        for expression in maps_at(term, "matchExpressions")
        if text_at(expression, "key") == HOSTNAME
        for value in expression.get("values") or ()
    ]
