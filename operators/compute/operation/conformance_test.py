"""Operations pass the conformance suite: even if killed at each write, they happen once.

The suite compares creations and deletions with an undisturbed run. A reboot that happened
twice would show as two deletions of a run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from libs.common.kinds import Key, Manifest
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import Run
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.controller import OPERATOR
from operators.compute.fake_cluster import blur_run, build_crds, run_cluster
from operators.compute.samples import build_instance, build_operation, build_size

WEB, OP = Key("default", "web"), Key("default", "op")


def build_initial_objects() -> list[Manifest]:
    return [build_size(), build_size("large", cpus=4, memory="8Gi")]


def build_objects() -> list[Manifest]:
    return [build_instance("web")]


def drive(api: FakeApi, operation: Manifest) -> None:
    """Let the cluster continue, and create the operation once the machine runs."""
    run_cluster(api)
    held = api.find(INSTANCE, WEB)
    running = held is not None and (held.get("status") or {}).get("phase") == "Running"
    if running and api.find(OPERATION, OP) is None:
        api.create(operation)


def build_subject(type_: str, **spec: Any) -> Subject:
    return Subject(
        OPERATOR,
        crds=build_crds(),
        objects=build_objects,
        change={"spec": {"evictionStrategy": "None"}},
        children=(DATA_VOLUME, VIRTUAL_MACHINE, OPERATION, VIRTUAL_MACHINE_INSTANCE_MIGRATION),
        outliving=(OPERATION,),
        rules=OPERATOR.rules(),
        initial_objects=build_initial_objects,
        drive=partial(drive, operation=build_operation(type_, **spec)),
    )


class OperationConformance(OperatorConformance):
    """The suite, for what is done once."""

    __test__ = False

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the outcome; the Operation must have succeeded in each of them."""
        held = api.find(OPERATION, OP)
        if held is not None:
            assert held["status"]["phase"] == "Succeeded", held["status"]
        return blur_run(super().outcome(api, mark))

    async def test_child_deleted_in_a_gap_comes_back(self) -> None:
        """An Operation that is deleted does not come back."""
        pytest.skip("children come back, as the suite of Instances shows")

    async def apply_again(self, harness: OperatorHarness, manifest: Manifest) -> None:
        """Leave the Instance as it is: an Operation has changed it since."""


class TestRebootConformance(OperationConformance):
    __test__ = True
    subject = build_subject("Reboot")
