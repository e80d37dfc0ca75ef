"""DemoVolume, fuzzed."""

from __future__ import annotations

from typing import Final

from lab.fuzz.subject import FuzzSubject
from libs.common.kinds import Manifest
from libs.common.plan import Create
from operators.volumes.api.v1alpha1 import DemoVolume
from operators.volumes.conformance_test import TestGrowingVolumeConformance
from operators.volumes.observed import Observed
from operators.volumes.reconcile import plan_volume


def render(manifest: Manifest) -> list[Manifest]:
    """Make the claim of a volume that has none."""
    actions = plan_volume(DemoVolume.parse(manifest), Observed()).actions
    return [action.step.manifest for action in actions if isinstance(action.step, Create)]


SUBJECTS: Final = (
    FuzzSubject(
        "volumes",
        DemoVolume,
        {
            "size": 10,
            "storageClassName": "standard",
            "reclaimPolicy": "Delete",
            "onLoss": "Wait",
            "claimMetadata": {
                "labels": {"backup": "daily"},
                "annotations": {"example.com/cost-center": "7"},
            },
            "volumeName": "pv-1",
            "selector": {"matchLabels": {"disk": "fast"}},
            "volumeAttributesClassName": "gold",
            "dataSourceRef": {"apiGroup": "example.com", "kind": "Image", "name": "linux"},
        },
        render,
        # A claim takes ReadWriteOncePod with no other mode; the schema once let both in.
        pinned=({"size": 10, "accessModes": ["ReadWriteOncePod", "ReadWriteMany"]},),
        live=TestGrowingVolumeConformance.subject,
    ),
)
