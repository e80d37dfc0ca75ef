"""The default workload: what its phases wait for."""

from __future__ import annotations

from typing import Final

from lab.sweep.default_workload import build_workload
from lab.sweep.recorder import NamespaceRecord
from libs.common.crd import build_crd
from libs.common.kinds import CONFIG_MAP, Manifest, build_object
from libs.common.testing.conformance import Subject
from operators.podset.api import PodSet
from operators.podset.conformance_test import build_objects
from operators.podset.controller import OPERATOR, PODSET

SUBJECT: Final = Subject(
    OPERATOR,
    crds=(build_crd(PodSet),),
    objects=build_objects,
    change={"spec": {"replicas": 3}},
    children=(CONFIG_MAP,),
)


def build_primary(*, ready: bool) -> Manifest:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"observedGeneration": 1, "conditions": [condition]}
    metadata = {"uid": "u0", "generation": 1}
    return build_object(PODSET, "web", "default", metadata=metadata, status=status)


def build_child(uid: str) -> Manifest:
    return build_object(CONFIG_MAP, "web-0", "default", metadata={"uid": uid})


def test_phases_wait_until_the_primary_is_ready() -> None:
    create, change, _, probe, _ = build_workload(SUBJECT).phases
    record = NamespaceRecord()
    for ready in (False, True):
        record.note("MODIFIED", PODSET, build_primary(ready=ready))

        assert [each.until(record) for each in (create, change, probe)] == [ready] * 3


def test_lost_child_must_disappear_and_come_back() -> None:
    lose = build_workload(SUBJECT).phases[2]
    record = NamespaceRecord()
    record.note("ADDED", PODSET, build_primary(ready=True))
    record.note("ADDED", CONFIG_MAP, build_child("u1"))
    record.phase = lose.name
    assert not lose.until(record)
    record.note("DELETED", CONFIG_MAP, build_child("u1"))
    assert not lose.until(record)
    record.note("ADDED", CONFIG_MAP, build_child("u2"))

    assert lose.until(record)


def test_everything_must_be_gone_at_the_end() -> None:
    delete = build_workload(SUBJECT).phases[-1]
    record = NamespaceRecord()
    record.note("ADDED", PODSET, build_primary(ready=True))
    assert not delete.until(record)
    record.note("DELETED", PODSET, build_primary(ready=True))

    assert delete.until(record)
