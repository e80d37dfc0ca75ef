"""Session: the state of one trial in the proxy, with its fault and the recorded requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lab.sweep.canaries import find_leaks
from lab.sweep.external_system import ExternalSystem, ExternalSystemTrial
from lab.sweep.modes import Mode
from lab.sweep.stale import StaleLists
from lab.sweep.triggers import Counters, Side, Trigger
from lab.sweep.wire import Call, Series
from libs.common.kinds import Manifest

type Kill = Callable[[int], None]
"""Kills a process of the trial, by its number."""
type Crash = Callable[[str], Awaitable[None]]
"""Kills a component of the control plane, by its name, and restarts it."""


async def _crash_nothing(name: str) -> None:
    raise RuntimeError(f"Nobody can crash {name} here")


@dataclass
class Record:
    """One mutating request as the proxy saw it.

    Attributes:
        call: Operation of the request.
        phase: Phase of the workload.
        process: Number of the process that sent it.
        at: Time of arrival on the monotonic clock.
        query: Query of the request.
        agent: User-Agent.
        body: Body of the request.
        status: Status of the response; 0 if the API server has not responded.
        injected: Whether the response came from the proxy.
        before: Last known resource version of the object before the request; empty for none.
        after: Resource version in the response.
    """

    call: Call
    phase: str
    process: int
    at: float
    query: dict[str, str]
    agent: str
    body: Manifest
    status: int = 0
    injected: bool = False
    before: str = ""
    after: str = ""


def _build_set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Session:
    """The state of one trial in the proxy.

    Attributes:
        namespace: Namespace of the trial; names it in paths.
        token: Token of the operator's service account.
        mode: Kind of fault.
        trigger: Moment of the fault; None for no fault.
        kill: Kills a process of the trial.
        phase: Current phase of the workload.
        armed: Whether moments are counted; they are counted only while the workload runs.
        fired: Whether the moment has occurred.
        newest: Number of the newest process.
        held: Whether a request is being held back.
        recovery: Writes of the process after a crash before it is killed again; 0 for never.
        fouled: Resources whose next watch gets status 410.
        silent: Resources whose streams are silent, with the process they were opened by.
        watched: Resources of which a stream was opened.
        removed: Objects, as `resource name`, that the fault removed or created as foreign objects.
        foreign: Foreign objects that the fault created, by path.
        canaries: Texts that are secret in this trial.
        leaks: Descriptions of places in which a canary was found.
        operator: Id of the operator, which names the Lease of its election.
        group: API group of the operator; it recreates lost objects that its objects own.
        hand_to_foreigner: Changes an object so that it is a foreign object; None if faults create
            no foreign objects.
        rewrite: Removes parts of a name that differ from run to run, so that moments are equal.
        scoped: Cluster-scoped resources of which each trial has separate objects.
        confined: Resources of which the operator sees only the objects in the namespace, even if it
            asks for all namespaces.
        systems: External systems by id.
        crash: Kills a component of the control plane and restarts it.
        past: The lists of a new process that return stale data.
        muted: Series whose requests are refused, each until a moment on the monotonic clock.
        clock: Counts the seconds in which the trial could continue.
        delay: Delay of a delayed event, in seconds.
        lags: Seconds by which all writes, or all events, are late.
    """

    namespace: str
    token: str
    mode: Mode = Mode.NONE
    trigger: Trigger | None = None
    kill: Kill = lambda _: None
    phase: str = "start"
    armed: bool = False
    fired: bool = False
    held: bool = False
    recovery: int = 0
    fired_process: int = -1
    newest: int = 0
    recoveries: int = 0
    fouled: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    foreign: dict[str, Manifest] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    series: list[Record] = field(default_factory=list)
    moments: list[Trigger] = field(default_factory=list)
    reads: int = 0
    used: set[tuple[str, str, str]] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    group: str = ""
    operator: str = ""
    hand_to_foreigner: Callable[[Manifest], Manifest] | None = lambda manifest: manifest
    rewrite: Callable[[str], str] = str
    watched: set[str] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    gap: asyncio.Event = field(default_factory=asyncio.Event)
    delivering: asyncio.Event = field(default_factory=_build_set_event)
    canaries: tuple[str, ...] = ()
    leaks: list[str] = field(default_factory=list)
    scoped: frozenset[str] = frozenset()
    confined: frozenset[str] = frozenset()
    systems: dict[str, tuple[ExternalSystem, ExternalSystemTrial]] = field(default_factory=dict)
    crash: Crash = _crash_nothing
    past: StaleLists = field(default_factory=StaleLists)
    muted: dict[Series, float] = field(default_factory=dict)
    outage_until: float = 0.0
    clock: Callable[[], float] = time.monotonic
    delay: float = 1.0
    lags: dict[Side, float] = field(default_factory=dict)
    _stirred_at: float = 0.0
    _stirring_until: float = 0.0
    _busy: int = 0
    _asking: int = 0

    @property
    def quiet_for(self) -> float:
        """Seconds since the last activity; 0 while a request or a fault is in progress."""
        is_stirring = time.monotonic() < self._stirring_until
        if self._busy or self.held or self.is_out or is_stirring:
            self.note_activity()
            return 0.0
        return 0.0 if self._asking else self.clock() - self._stirred_at

    def note_activity(self, seconds: float = 0.0) -> None:
        """Record activity, which may continue for some seconds of real time."""
        self._stirred_at = self.clock()
        if seconds:
            self._stirring_until = time.monotonic() + seconds

    @property
    def is_out(self) -> bool:
        """Whether all requests are refused now."""
        return time.monotonic() < self.outage_until

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Mark an action as in progress, so that silence is not mistaken for rest."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self.note_activity()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Mark that the operator waits for a response, so that silence is not mistaken for rest."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    def meets(self, moment: Trigger) -> bool:
        """Record a moment; return whether the fault is due."""
        if not self.armed:
            return False
        self.moments.append(moment)
        if self.fired or moment != self.trigger:
            return False
        self.fired = True
        return True

    def show_external_systems(self) -> dict[str, Manifest]:
        """Return the objects of external systems by title."""
        return {
            f"{name} {title}": shown
            for name, (_, system) in self.systems.items()
            for title, shown in system.show().items()
        }

    def series_of(self, call: Call) -> Series:
        """Return the series of a request; a Lease is a child unless the operator elects with it."""
        is_child = call.series == "lease" and self.operator and call.name != self.operator
        return "write" if is_child else call.series

    def is_muted(self, series: Series) -> bool:
        """Return whether requests of a series are refused now."""
        return time.monotonic() < self.muted.get(series, 0.0)

    def confine(self, path: str, call: Call | None) -> str:
        """Return the path of a read, in the namespace if it is confined to that."""
        if call is None or call.namespace or call.target not in self.confined:
            return path
        if call.verb not in ("list", "watch"):
            return path
        return f"{path.removesuffix(call.resource)}namespaces/{self.namespace}/{call.resource}"

    def check_body(self, call: Call, body: bytes) -> None:
        """Record canaries in a written body; only Secrets and external systems may contain them."""
        if call.resource != "secrets" and not call.system:
            self.leaks += find_leaks(body.decode(errors="replace"), self.canaries, str(call))

    def saw(self, call: Call, manifest: Manifest) -> None:
        """Store the newest resource version of an object."""
        version = (manifest.get("metadata") or {}).get("resourceVersion")
        if version and call.name:
            self.versions[f"{call.group}/{call.resource}/{call.name}"] = version

    def known(self, call: Call) -> str:
        """Return the newest resource version of an object that the proxy saw; empty for none."""
        return self.versions.get(f"{call.group}/{call.resource}/{call.name}", "")
