"""Trial: one run of all phases with at most one fault, in a namespace of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from lab.sweep import faults
from lab.sweep.anyop.cluster import Bench
from lab.sweep.anyop.phases import Actor, Phase
from lab.sweep.anyop.starter import kill
from lab.sweep.learning import Knowledge
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan
from lab.sweep.progress_clock import ProgressClock
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.session import Session
from lab.sweep.triggers import Side
from lab.sweep.workload import State, User
from tools.cluster.errors import UsageError

_POLL: Final = 0.1
_START_SECONDS: Final = 90.0
_SETTLE_SECONDS: Final = 2.0
"""Seconds without a new watch after which an unknown operator counts as started."""
_REST: Final = 1.0
"""Seconds without a change after which a state counts, if it is the expected one."""
_DELAY: Final = 5.0
_LAG: Final = 1.0
_MOST_EXITS: Final = 5
_MOST_REAL: Final = 5
"""Most time of a phase, in multiples of the patience: on a busy machine, time in which the operator
waits for a CPU does not count."""
_LOG_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Expectation:
    """What undisturbed runs have shown.

    Attributes:
        knowledge: Names and fields that vary.
        states: State at the end of each phase.
        watched: Resources that the operator watches when it has started.
    """

    knowledge: Knowledge
    states: Mapping[str, State]
    watched: frozenset[str]


class AnyTrial:
    """A run of the phases while a process of the operator runs, and is restarted when it ends.

    Args:
        bench: Objects that all trials share.
        plan: The fault, if any.
        namespace: Namespace of the trial.
        expectation: What undisturbed runs have shown; None for an undisturbed run.
        slow: What is late all the time, which is no fault.
    """

    def __init__(
        self,
        bench: Bench,
        plan: Plan,
        namespace: str,
        expectation: Expectation | None,
        slow: Side | None = None,
    ) -> None:
        """Initialize; `run` runs the trial."""
        self._bench = bench
        self._slow = slow
        self._expectation = expectation
        self._knowledge = expectation.knowledge if expectation else Knowledge()
        self._record = bench.recorder.open(namespace)
        self._processes: list[asyncio.subprocess.Process] = []
        self._killed: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False
        self.session = Session(namespace, bench.account.token, plan.mode, plan.trigger)
        self.session.kill = self._kill
        self.session.hand_to_foreigner = None
        self.session.rewrite = self._rewrite
        self.session.delay = _DELAY
        self.session.confined = frozenset(k.resource for k in bench.kinds.all if k.namespaced)
        self._clock = ProgressClock(self._list_pids, read=bench.meter.read)
        self.session.clock = self._clock.now
        self.watched: frozenset[str] = frozenset()
        self.snapshots: dict[str, NamespaceRecord] = {}
        self.outcome = Outcome(plan, namespace)
        self._changes, self._changed_at = 0, 0.0
        self._built: State = {}
        self._built_at = -1
        self._compared_at = ("", -1)

    async def run(self) -> Outcome:
        """Run all phases and return the outcome."""
        started = time.monotonic()
        bench, session = self._bench, self.session
        await bench.account.grant(bench.client, session.namespace)
        bench.proxy.open(session)
        try:
            await self._start()
            await self._wait_started()
            session.armed = True
            if self._slow:
                session.lags[self._slow] = _LAG
            actor = Actor(User(bench.client, session.namespace), bench.kinds, self._record)
            for phase in bench.phases:
                session.phase = self._record.phase = phase.name
                session.note_activity()
                await actor.carry_out(phase)
                if not await self._settle(phase):
                    break
        finally:
            await self._end()
        self.outcome.seconds = time.monotonic() - started
        return self.outcome

    def build_states(self, knowledge: Knowledge) -> dict[str, State]:
        """Build the states of the phases again, now that more is known about what is random."""
        kinds, namespace = self._bench.recorder.kinds, self.session.namespace
        return {
            phase: knowledge.build_state(snapshot, kinds, namespace)
            for phase, snapshot in self.snapshots.items()
        }

    async def _start(self) -> None:
        number = len(self._processes)
        self.session.newest = number
        url = self._bench.proxy.url(self.session, number)
        process = await self._bench.command.start(url, self.session.namespace, number)
        self._processes.append(process)
        self._tasks.append(asyncio.create_task(self._supervise(process, number)))

    async def _supervise(self, process: asyncio.subprocess.Process, number: int) -> None:
        """Restart a process that has ended, as a kubelet does."""
        status = await process.wait()
        self._bench.proxy.hang_up(self.session, number)
        self.session.watched.clear()
        if self._ending:
            return
        if number not in self._killed:
            self.outcome.exits.append(status)
            if len(self.outcome.exits) > _MOST_EXITS:
                return
            await asyncio.sleep(1.0)
        await self._start()

    def _kill(self, number: int) -> None:
        self._killed.add(number)
        self.session.watched.clear()
        kill(self._processes[number])

    async def _wait_started(self) -> None:
        """Wait until the operator watches what it will watch.

        Raises:
            UsageError: It watches nothing, or has ended.
        """
        began = self._clock.now()
        watched, since = frozenset[str](), began
        while self._clock.now() - began < _START_SECONDS and not self.outcome.exits:
            if watched != self.session.watched:
                watched, since = frozenset(self.session.watched), self._clock.now()
            expected = self._expectation.watched if self._expectation else watched
            is_settled = self._expectation or self._clock.now() - since >= _SETTLE_SECONDS
            if watched and expected <= watched and is_settled:
                self.watched = watched
                return
            await asyncio.sleep(_POLL)
        log = self._bench.command.read_log(self.session.namespace).splitlines()
        what = "ended" if self.outcome.exits else f"watched nothing in {_START_SECONDS:g} s"
        raise UsageError(
            "\n".join([f"The command {what}. The end of its log:", *log[-_LOG_LINES:]])
        )

    async def _settle(self, phase: Phase) -> bool:
        """Wait until a phase is over, and keep its state; return whether it ended in time."""
        began, real = self._clock.now(), time.monotonic()
        patience = self._bench.inputs.patience
        while True:
            is_late = self._clock.now() - began > patience
            is_late = is_late or time.monotonic() - real > _MOST_REAL * patience
            state = self._find_end(phase.name, is_late=is_late)
            if state is not None:
                self.outcome.states[phase.name] = state
                self.snapshots[phase.name] = replace(self._record, live=dict(self._record.live))
                return not is_late
            await asyncio.sleep(_POLL)

    def _find_end(self, name: str, *, is_late: bool) -> State | None:
        """Return the state at the end of a phase; None if the phase is not over."""
        rest = self._measure_rest()
        quiet, plan = self._bench.inputs.quiet, self.outcome.plan
        is_due = plan.trigger is not None and plan.trigger.phase == name and not self.session.fired
        if not is_late and rest < (quiet if is_due or not self._expectation else _REST):
            return None
        state = self._build_state()
        if is_late and (self._expectation is None or not self._is_started()):
            self.outcome.late[name] = "still writes" if self._is_started() else "does not run"
            return state
        if is_late or self._expectation is None:
            return state
        if not self._is_started() or self._compared_at == (name, self._changes):
            return None
        self._compared_at = name, self._changes
        return state if not self._knowledge.compare(self._expectation.states[name], state) else None

    def _build_state(self) -> State:
        """Return the comparable objects, which are built again only after a change."""
        if self._built_at != self._changes:
            kinds, namespace = self._bench.recorder.kinds, self.session.namespace
            self._built = self._knowledge.build_state(self._record, kinds, namespace)
            self._built_at = self._changes
        return self._built

    def _is_started(self) -> bool:
        """Return whether the newest process runs and watches what it should."""
        return self._processes[-1].returncode is None and self.watched <= self.session.watched

    def _measure_rest(self) -> float:
        """Return the seconds without a write of the operator and without a change by others."""
        count = len(self._record.history)
        if count != self._changes:
            self._changes, self._changed_at = count, self._clock.now()
        return min(self.session.quiet_for, self._clock.now() - self._changed_at)

    def _rewrite(self, name: str) -> str:
        return self._knowledge.blur(name.replace(self.session.namespace, "<namespace>"))

    def _list_pids(self) -> list[int]:
        pids = [os.getpid(), *self._bench.control_plane.list_pids()]
        return [*pids, self._processes[-1].pid] if self._processes else pids

    async def _end(self) -> None:
        self._ending = True
        session, outcome = self.session, self.outcome
        faults.forget(session)
        for number, process in enumerate(self._processes):
            kill(process)
            self._bench.meter.forget(process.pid)
            self._bench.proxy.hang_up(session, number)
        await asyncio.gather(*(each.wait() for each in self._processes), return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._bench.proxy.close(session)
        self._bench.recorder.close(session.namespace)
        outcome.history, outcome.records = list(self._record.history), session.records
        outcome.moments, outcome.refused = session.moments, session.refused
        outcome.fired, outcome.fired_process = session.fired, session.fired_process
        outcome.log = self._bench.command.read_log(session.namespace)
