"""The podset operator withstands what every operator must."""

from __future__ import annotations

from libs.common.crd import build_crd
from libs.common.kinds import POD, Manifest, build_object, key_of
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from operators.podset.api import PodSet
from operators.podset.controller import OPERATOR, PODSET
from operators.podset.rbac import RULES


def build_objects() -> list[Manifest]:
    """Build a set that is updated step by step."""
    return [
        build_object(
            PODSET,
            "web",
            "default",
            spec={
                "replicas": 2,
                "updateStrategy": {"type": "Recreate", "recreate": {"maxUnavailable": 1}},
                "template": {
                    "metadata": {"labels": {"app": "web"}, "annotations": {"version": "1"}},
                    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
                },
            },
        )
    ]


def run_pods(api: FakeApi) -> None:
    """Make every pod ready, on no node, so that a deleted one is gone at once."""
    for pod in api.objects(POD):
        if (pod.get("status") or {}).get("phase") != "Running":
            ready = {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": "2026-01-31T12:00:00Z",
            }
            api.patch_status(POD, key_of(pod), {"phase": "Running", "conditions": [ready]})


class TestPodSetConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=(build_crd(PodSet),),
        objects=build_objects,
        change={
            "spec": {"replicas": 3, "template": {"metadata": {"annotations": {"version": "2"}}}}
        },
        children=(POD,),
        rules=RULES,
        drive=run_pods,
    )
