"""PodSet, fuzzed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from lab.fuzz.subject import FuzzSubject
from libs.common.crd import kind_of
from libs.common.kinds import Manifest
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create
from operators.podset.api import PodSet
from operators.podset.conformance_test import TestPodSetConformance
from operators.podset.reconcile import Observed, build_desired, plan_podset

_NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


def render(manifest: Manifest) -> list[Manifest]:
    """Make the pods of a set that has none."""
    podset = PodSet.parse(manifest)
    desired = build_desired(podset, build_owner_reference(kind_of(PodSet), manifest))
    steps = plan_podset(desired, Observed(()), _NOW).steps
    return [step.manifest for step in steps if isinstance(step, Create)]


SUBJECTS: Final = (
    FuzzSubject(
        "podset",
        PodSet,
        {
            "replicas": 2,
            "progressDeadlineSeconds": 60,
            "revisionHistoryLimit": 3,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        },
        render,
        passthrough=("spec.template",),
        live=TestPodSetConformance.subject,
    ),
)
