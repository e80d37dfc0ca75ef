"""Candidates for one Lease, with threads, clocks and a network that a test can break."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from libs.common.client import Client
from libs.common.election.core import Timing
from libs.common.election.elector import LeaseElector
from libs.common.errors import Unreachable
from libs.common.kinds import LEASE, Key, Kind, Manifest
from libs.common.metrics import Metrics
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until

KEY = Key("default", "podset")
# The API knows whole seconds only, so a takeover takes one.
TIMING = Timing(lease_duration=2.0, renew_deadline=1.5, retry_period=0.05)


def renewals(api: FakeApi) -> int:
    """Count what was sent to renew, one of which may still be under way."""
    return len(api.requests.select(kind=LEASE, where=lambda request: request.method == "PUT"))


class BrokenClient(Client):
    """A client whose network can be cut."""

    cut = False
    """Whether nothing gets through."""

    async def get(self, kind: Kind, key: Key, subresource: str = "") -> Manifest:
        """Read, if the network is there."""
        self._check()
        return await super().get(kind, key, subresource)

    async def replace(
        self, kind: Kind, manifest: Manifest, *, subresource: str = "", field_manager: str = ""
    ) -> Manifest:
        """Replace, if the network is there."""
        self._check()
        return await super().replace(
            kind, manifest, subresource=subresource, field_manager=field_manager
        )

    def _check(self) -> None:
        if self.cut:
            raise Unreachable("PUT", "the network is cut")


class ShiftedClock:
    """The clock of the machine, which a test can set forward as a suspension does."""

    def __init__(self) -> None:
        """Begin with the time of the machine."""
        self.shift = 0.0
        self.wall_shift = 0.0

    def monotonic(self) -> float:
        """Return the shifted seconds."""
        return time.monotonic() + self.shift

    def now(self) -> datetime:
        """Return the shifted wall clock."""
        return datetime.fromtimestamp(time.time() + self.wall_shift, UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait in the running loop."""
        await asyncio.sleep(seconds)


class Candidate:
    """An elector with its client, clock, metrics and recorded calls."""

    def __init__(self, api: FakeApi, name: str, timing: Timing) -> None:
        """Prepare the candidate; it does not compete for the Lease yet."""
        self.client = BrokenClient(api.config)
        self.clock = ShiftedClock()
        self.metrics = Metrics(process=False)
        self.calls: list[tuple[str, str]] = []
        self.exits: list[int] = []
        self.elector = LeaseElector(
            lambda: self.client,
            KEY,
            name,
            timing,
            on_started_leading=lambda: self.called("started"),
            on_stopped_leading=lambda: self.called("stopped"),
            metrics=self.metrics.leader("podset"),
            clock=self.clock,
            hard_exit=self.exits.append,
        )

    def called(self, what: str) -> None:
        """Note a callback and the thread that it came in."""
        self.calls.append((what, threading.current_thread().name))

    @property
    def gauge(self) -> float | None:
        """What the metric says of the leadership."""
        return self.metrics.value("leader_election_master_status", name="podset")


class CandidateGroup:
    """The candidates of a test, which are stopped at its end."""

    def __init__(self, api: FakeApi) -> None:
        """Start without candidates."""
        self.api = api
        self.timing = TIMING
        self.candidates: list[Candidate] = []

    def enter(self, name: str) -> Candidate:
        """Start a candidate."""
        candidate = Candidate(self.api, name, self.timing)
        self.candidates.append(candidate)
        candidate.elector.start()
        return candidate

    async def lead(self, name: str = "a") -> Candidate:
        """Let a candidate take part and wait until it leads."""
        candidate = self.enter(name)
        await until(candidate.elector.is_leader, "it leads")
        return candidate

    def holder(self) -> str:
        """Return who holds the Lease at the server."""
        lease = self.api.find(LEASE, KEY)
        return str((lease or {}).get("spec", {}).get("holderIdentity"))


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def group(api: FakeApi) -> AsyncIterator[CandidateGroup]:
    group = CandidateGroup(api)
    yield group
    api.faults.clear()
    await asyncio.gather(*(candidate.elector.stop() for candidate in group.candidates))
