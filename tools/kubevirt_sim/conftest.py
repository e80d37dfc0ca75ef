"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from libs.common.kinds import Key, Kind, Manifest
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from tools.kubevirt_sim.fixtures import kubevirt_sim
from tools.kubevirt_sim.simulator import KubeVirtSim
from tools.kubevirt_sim.timing import Timing

__all__ = ["clock", "history", "kubevirt_sim", "timed_sim"]


class History:
    """Remember each version of each object.

    Args:
        api: API server that is listened to.
    """

    def __init__(self, api: FakeApi) -> None:
        self._changes: list[tuple[tuple[str, str], Key, str, Manifest]] = []
        api.store.listeners.append(self._notice)

    def _notice(self, change: Any) -> None:
        self._changes.append((change.table, change.key, change.type, change.record.obj))

    def versions(self, kind: Kind, name: str = "") -> list[Manifest]:
        """Return the versions of the objects of a kind, those that were deleted left out."""
        return [
            obj
            for table, key, type_, obj in self._changes
            if table == (kind.group, kind.plural) and type_ != "DELETED" and name in ("", key.name)
        ]

    def seen(self, kind: Kind, name: str, read: Callable[[Manifest], Any]) -> list[Any]:
        """Return what was read of each version of an object, repetitions left out."""
        values: list[Any] = []
        for obj in self.versions(kind, name):
            value = read(obj)
            if not values or values[-1] != value:
                values.append(value)
        return values


@pytest.fixture
def history(fake_api: FakeApi) -> History:
    return History(fake_api)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def timed_sim(fake_api: FakeApi, clock: FakeClock) -> AsyncIterator[KubeVirtSim]:
    """Simulate with KubeVirt's own delays, on a clock that the test moves."""
    async with KubeVirtSim(fake_api.config, timing=Timing(), clock=clock) as sim:
        yield sim
