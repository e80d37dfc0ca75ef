"""Row 28: a flood of objects in one namespace does not starve another one."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from lab.fuzz.subject import load_subjects
from libs.common.kinds import Manifest
from libs.common.runtime import queue
from libs.common.testing.conformance import Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.trial import Trial
from tests.security.trial import list_makers

SUBJECTS = list_makers(load_subjects())
_FLOOD = 60


class Impolite[K, V](OrderedDict[K, V]):
    """Keep namespaces in a row and never let the next one have its turn."""

    def move_to_end(self, key: K, last: bool = True) -> None:
        """Leave the settings unchanged."""


def build(subject: Subject, name: str, namespace: str) -> Manifest:
    """Build an object of the subject under another name."""
    manifest = subject.objects()[0]
    metadata = {**manifest["metadata"], "name": name, "namespace": namespace}
    return {**manifest, "metadata": metadata}


async def count_flooded_before_the_calm(subject: Subject) -> int:
    """Flood one namespace, then create one object in another; count what was served before it."""
    trial = Trial.of(subject)
    child = subject.children[0]
    async with trial.api() as api:
        settings = {"watch_namespaces": ("*",), "max_concurrent_reconciles": 1}
        for number in range(_FLOOD):
            api.create(build(subject, f"flood-{number}", "flood"))
        api.create(build(subject, "calm", "quiet"))
        async with trial.harness(api, **settings) as harness:
            await wait_for_calm(api, harness, subject)
            return len(api.objects(child, "flood"))


async def wait_for_calm(api: FakeApi, harness: OperatorHarness, subject: Subject) -> None:
    """Wait until the quiet namespace was served."""
    await harness.eventually(lambda: bool(api.objects(subject.children[0], "quiet")))


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.operator.id)
async def test_quiet_namespace_is_served_during_a_flood(subject: Subject) -> None:
    assert await count_flooded_before_the_calm(subject) < _FLOOD


async def test_quiet_namespace_waits_without_fair_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative case: the first namespace is served until it has nothing left."""
    monkeypatch.setattr(queue, "OrderedDict", Impolite)
    assert await count_flooded_before_the_calm(SUBJECTS[0]) >= _FLOOD
