"""The podset operator withstands what every operator must."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

from libs.common.crd import build_crd
from libs.common.kinds import POD, Manifest, build_object, key_of
from libs.common.testing.conformance import OperatorConformance, Run, Subject
from libs.common.testing.fakeapi import FakeApi
from operators.podset.api import PodSet
from operators.podset.controller import OPERATOR, PODSET


def build_objects() -> list[Manifest]:
    """Build a set that is updated step by step."""
    return [
        build_object(
            PODSET,
            "web",
            "default",
            spec={
                "replicas": 2,
                # An old template that somebody deletes cannot be recorded again.
                "revisionHistoryLimit": 0,
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
                },
                "template": {
                    "metadata": {"labels": {"app": "web"}, "annotations": {"version": "1"}},
                    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
                },
            },
        )
    ]


def run_pods(api: FakeApi) -> None:
    """Make every pod ready, on no node, so that a deleted pod disappears immediately."""
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
        drive=run_pods,
    )

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the outcome without the hash of a UID that the name of a revision has."""
        run = super().outcome(api, mark)
        state = {_blur(name): _blur(held) for name, held in run.state.items()}
        creates = Counter({_blur(name): count for name, count in run.creates.items()})
        deletes = Counter({_blur(name): count for name, count in run.deletes.items()})
        return replace(run, state=state, creates=creates, deletes=deletes)


def _blur[T](value: T) -> T:
    text = re.sub(r"(web-[0-9a-f]{10})-[0-9a-f]{5}", r"\1-uid", json.dumps(value))
    blurred: T = json.loads(text)
    return blurred
