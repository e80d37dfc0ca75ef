"""Trial: one run of a workload with one fault, in a separate namespace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from lab.sweep import faults, scaling
from lab.sweep.canaries import build_canary, find_leaks
from lab.sweep.cluster import Permissions
from lab.sweep.components import ClusterComponents
from lab.sweep.learning import Knowledge
from lab.sweep.modes import NEEDS_ELECTION, NEEDS_SWEEP, NEEDS_TIMEOUT, Mode
from lab.sweep.normalize import leave_out_others
from lab.sweep.oracles import compare_states
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan
from lab.sweep.probes import read_probes
from lab.sweep.progress_clock import Meter, ProgressClock
from lab.sweep.proxy import FaultProxy, build_kubeconfig
from lab.sweep.recorder import NamespaceRecord, Recorder
from lab.sweep.session import Crash, Session
from lab.sweep.workload import Phase, State, User, Workload
from lab.sweep.zygote import Child, Zygote, read_log
from libs.common.client import Client
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import Manifest, key_of, uid_of, version_of
from libs.common.testing.ports import find_free_port

_POLL: Final = 0.02
_PAUSE: Final = 0.05
"""Seconds without a write after which components act, so that all runs are alike."""
_QUIET: Final = 0.15
"""Seconds without a write after which the operator counts as at rest."""
_REST: Final = 0.6
"""Seconds after a quiet phase in which nothing may be written."""
_DEADLINE: Final = 12.0
_START: Final = 30.0
"""Seconds in which the operator must start working; waits for a CPU do not count."""
_FOREIGN: Final = 0.7
"""Seconds until a foreign object is removed."""
_CONVERGE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Bench:
    """The objects that all trials share.

    Attributes:
        zygote: Forks processes of the operator.
        proxy: Injects the faults.
        client: Connection with all permissions.
        recorder: Records every version of every object.
        rights: Grants the operator its permissions.
        folder: Folder of logs and replay files.
        crash: Kills a component of the control plane and restarts it.
        list_parts: Lists the processes of the control plane.
        meter: Reads how long processes waited for a CPU.
    """

    zygote: Zygote
    proxy: FaultProxy
    client: Client
    recorder: Recorder
    rights: Permissions
    folder: Path
    crash: Crash
    list_parts: Callable[[], Sequence[int]] = tuple
    meter: Meter = field(default_factory=Meter)


async def run_trial(
    bench: Bench, workload: Workload, plan: Plan, namespace: str, wanted: Mapping[str, State]
) -> Outcome:
    """Run one trial and return its outcome.

    Args:
        bench: The objects that all trials share.
        workload: The workload.
        plan: Its fault.
        namespace: Namespace of the trial.
        wanted: States of the fault-free run by phase, for which each phase waits.
    """
    started = time.monotonic()
    token = await bench.rights.grant(namespace)
    record = bench.recorder.open(namespace)
    session = Session(namespace, token, plan.mode, plan.trigger, recovery=plan.recovery)
    trial = Trial(bench, workload, plan, session, record, wanted)
    bench.proxy.open(session)
    try:
        await trial.run()
    finally:
        await trial.end()
        bench.proxy.close(session)
        bench.recorder.close(namespace)
    outcome = trial.outcome
    outcome.seconds = time.monotonic() - started
    return outcome


class Trial:
    """A run of the phases of a workload while processes of the operator start and stop."""

    def __init__(
        self,
        bench: Bench,
        workload: Workload,
        plan: Plan,
        session: Session,
        record: NamespaceRecord,
        wanted: Mapping[str, State],
    ) -> None:
        """Initialize; `run` runs the trial."""
        self._wanted = wanted
        self._bench = bench
        self._workload = workload
        self._session = session
        self._record = record
        outside = {each.id: bench.proxy.outside_url(session, each.id) for each in workload.outside}
        self._user = User(bench.client, session.namespace, outside)
        self._components = ClusterComponents(
            bench.client, record, workload.children, workload.components, workload.kinds
        )
        session.crash = self._crash
        session.rewrite = self._rewrite
        session.hand_to_foreigner = workload.hand_to_foreigner
        session.group, session.operator = workload.primary.group, workload.operator.id
        session.scoped = frozenset(each.plural for each in workload.kinds if not each.namespaced)
        session.systems = {
            each.id: (each, each.build(session.namespace, bench.client))
            for each in workload.outside
        }
        self._token = build_canary(session.namespace)
        session.canaries = (self._token, build_canary(session.namespace, "secret"))
        self._ports: list[int] = []
        self._children: list[Child] = []
        self._pace = ProgressClock(self._list_pids, read=bench.meter.read)
        session.clock = self._pace.now
        self._killed: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False
        self._log = bench.folder / f"{session.namespace}.log"
        self._plan = plan
        self.outcome = Outcome(plan, session.namespace)
        session.kill = self._kill

    async def run(self) -> None:
        """Start the operator and run all phases."""
        self._log.unlink(missing_ok=True)
        await self._start()
        if self._plan.mode is Mode.H:
            self._tasks.append(asyncio.create_task(self._replace_leader()))
        if not await self._wait_ready():
            self.outcome.late["start"] = f"not at work after {_START:g} s; see {self._log}"
            return
        self._session.armed = True
        for phase in self._workload.phases:
            if not await self._run_phase(phase):
                break
            if phase.quiet:
                await self._watch_rest()
                await self._probe()

    async def end(self) -> None:
        """End all processes and collect the outcome."""
        self._ending = True
        faults.forget(self._session)
        for number, child in enumerate(self._children):
            self._kill(number)
            await child.exited.wait()
            self._bench.meter.forget(child.pid)
            self._bench.proxy.hang_up(self._session, number)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        session, outcome = self._session, self.outcome
        outcome.history = list(self._record.history)  # Cleaning up is no part of it.
        await self._clean_up()
        outcome.records, outcome.moments = session.records, session.moments
        outcome.removed = session.removed
        outcome.refused, outcome.used = session.refused, session.used
        outcome.fired, outcome.fired_process = session.fired, session.fired_process
        outcome.log = await asyncio.to_thread(read_log, self._log)
        outcome.leaks = session.leaks + find_leaks(outcome.log, session.canaries, "the log")

    # Processes.

    async def _start(self) -> None:
        session, number = self._session, len(self._children)
        path = self._bench.folder / f"{session.namespace}.{number}.yaml"
        url = self._bench.proxy.url(session, number)
        config = build_kubeconfig(url, session.namespace, self._token)
        path.write_text(yaml.safe_dump(config))
        session.newest = number
        self._ports.append(find_free_port())
        arguments = scaling.build_arguments(
            namespace=session.namespace,
            kubeconfig=str(path),
            port=self._ports[-1],
            election=self._plan.mode in NEEDS_ELECTION,
            sweeps=self._plan.mode in NEEDS_SWEEP,
            impatient=self._plan.mode in NEEDS_TIMEOUT,
        )
        arguments += self._workload.arguments
        for outside, _ in session.systems.values():
            address = self._bench.proxy.outside_url(session, outside.id, number)
            arguments += outside.arguments(address)
        child = await self._bench.zygote.spawn(
            {
                "operator": self._plan.operator,
                "arguments": arguments,
                "mutant": self._plan.mutant,
                "scaled": {each: dict(waits) for each, waits in self._workload.scaled.items()},
                "log": str(self._log),
            }
        )
        self._children.append(child)
        self._tasks.append(asyncio.create_task(self._supervise(child, number)))

    async def _wait_ready(self) -> bool:
        """Wait until the operator works and watches all kinds that the workload changes.

        Returns:
            Whether this happened in time.
        """
        # Objects in the first list cause no events, so wait for the watches.
        unwatched = self._workload.unwatched
        kinds = {kind.plural for kind in self._workload.kinds if kind not in unwatched}
        deadline = self._pace.now() + _START
        while not (self._children[-1].working.is_set() and kinds <= self._session.watched):
            if self._pace.now() > deadline:
                return False
            await asyncio.sleep(_POLL)
        return True

    async def _wait_working(self) -> None:
        """Wait until the newest process works, even if it is replaced in the meantime.

        A process that gets no CPU for a second loses its scaled Lease before it works.
        """
        while not self._children[-1].working.is_set():
            await asyncio.sleep(_POLL)

    async def _supervise(self, child: Child, number: int) -> None:
        """Restart a process that has ended, as a kubelet does."""
        await child.exited.wait()
        self._bench.proxy.hang_up(self._session, number)
        if self._ending:
            return
        if number not in self._killed:
            self.outcome.exits.append(child.status or 0)
            await asyncio.sleep(0.1)
        if number == len(self._children) - 1:
            await self._start()

    async def _crash(self, name: str) -> None:
        """Kill a component of the control plane; the clock stops until it is ready again."""
        self._pace.pause()
        try:
            await self._bench.crash(name)
        finally:
            self._pace.resume()

    def _list_pids(self) -> list[int]:
        """List the processes that a trial waits for: itself, the control plane, the operator."""
        pids = [os.getpid(), *self._bench.list_parts()]
        return [*pids, self._children[-1].pid] if self._children else pids

    def _rewrite(self, text: str) -> str:
        """Remove the parts of a name that differ between trials."""
        return self._workload.name_in_moments(text, self._session.namespace)

    def _kill(self, number: int) -> None:
        self._killed.add(number)
        self._children[number].kill()

    async def _replace_leader(self) -> None:
        """Let a second process take over while a write of the first one is held back."""
        while not self._session.held:
            await asyncio.sleep(_POLL)
        await self._start()
        await self._wait_working()
        await asyncio.sleep(_CONVERGE)
        self._session.released.set()

    # Phases.

    async def _run_phase(self, phase: Phase) -> bool:
        """Run one phase until its state is that of the fault-free run.

        Returns:
            Whether the phase was completed, with that state or with another one.
        """
        self._session.phase = self._record.phase = phase.name
        self._session.note_activity()
        await phase.act(self._user)
        deadline = self._pace.now() + _DEADLINE
        while True:
            is_over = self._is_over(phase) and await self._is_recorded()
            is_late = self._pace.now() > deadline
            # A retry may still be due: at rest, and as the user asked, is not yet converged.
            if is_over and (self._has_converged(phase) or is_late):
                return True
            if is_late:
                self.outcome.late[phase.name] = self._describe(phase)
                return False
            await self._let_components_act()
            await asyncio.sleep(_POLL)

    def _has_converged(self, phase: Phase) -> bool:
        """Record the state; return whether it equals the state of the fault-free run."""
        state = Knowledge().build_state(self._record, self._workload.kinds, self._session.namespace)
        state |= self._session.show_external_systems()
        self.outcome.states[phase.name] = state
        wanted = self._wanted.get(phase.name)
        return wanted is None or not compare_states(self._workload, wanted, state)

    def _is_over(self, phase: Phase) -> bool:
        return (
            self._is_at_rest()
            and not self._session.foreign
            and not self._session.fouled
            and not self._components.pending
            and phase.until(self._record)
            and phase.outside(self._session.show_external_systems())
        )

    async def _is_recorded(self) -> bool:
        """Return whether the record is current; each kind arrives by a separate watch."""
        for kind in self._workload.kinds:
            try:
                live = await self._user.list(kind)
            except SlipwayError:
                return False
            booked = self._record.list(kind)
            if {*map(_identify, live)} != {*map(_identify, booked)}:
                return False
        return True

    def _is_at_rest(self, seconds: float = _QUIET) -> bool:
        child = self._children[-1]
        return child.alive and child.working.is_set() and self._session.quiet_for >= seconds

    async def _let_components_act(self) -> None:
        session = self._session
        if session.foreign:
            await self._remove_foreign()
        if self._is_at_rest(_PAUSE) and self._components.pending:
            with contextlib.suppress(SlipwayError):
                await self._components.act()
            session.note_activity()

    async def _remove_foreign(self) -> None:
        """Remove foreign objects after a while, and record whether they were changed."""
        await asyncio.sleep(_FOREIGN)
        for path, manifest in list(self._session.foreign.items()):
            self.outcome.damaged += await self._check_foreign(path, manifest)
            body = {"gracePeriodSeconds": 0}
            await self._bench.proxy.act("DELETE", path, body)
            if manifest["metadata"].get("finalizers"):
                await self._bench.proxy.act("PATCH", path, {"metadata": {"finalizers": None}})
            del self._session.foreign[path]
        self._session.note_activity()

    async def _check_foreign(self, path: str, manifest: Manifest) -> list[str]:
        name = manifest["metadata"]["name"]
        try:
            live = await self._bench.client.raw("GET", path)
        except NotFound:
            return [f"{name} was deleted"]
        if uid_of(live) != uid_of(manifest):
            return [f"{name} was replaced"]
        return (
            [] if leave_out_others(live) == leave_out_others(manifest) else [f"{name} was changed"]
        )

    async def _watch_rest(self) -> None:
        """Record writes while nothing must be written, even after an irrelevant change."""
        count = len(self._session.records)
        await asyncio.sleep(_REST)
        if self._plan.trigger is None:
            await asyncio.sleep(_REST)  # Times have a resolution of one second, so wait longer.
            for primary in self._record.list(self._workload.primary):
                touch = {"metadata": {"annotations": {"sweep.slipway.dev/touched": "yes"}}}
                await self._user.patch(self._workload.primary, primary["metadata"]["name"], touch)
            await asyncio.sleep(_REST)
        late = self._session.records[count:]
        self.outcome.restless = [f"{record.call} in the phase {record.phase}" for record in late]

    async def _probe(self) -> None:
        """Read the probes of the newest process, and search its metrics for canaries."""
        deadline = self._pace.now() + _DEADLINE
        while True:
            # A process that lost its leadership may end at any moment, and is then restarted.
            while not self._is_at_rest() and self._pace.now() < deadline:
                await asyncio.sleep(_POLL)
            probes = await read_probes(self._ports[-1])
            if not probes.problems or self._pace.now() >= deadline:
                break
            await asyncio.sleep(_POLL)
        self.outcome.unready = probes.problems
        self._session.leaks += find_leaks(probes.metrics, self._session.canaries, "/metrics")

    def _describe(self, phase: Phase) -> str:
        present = ", ".join(" ".join(place) for place in sorted(self._record.live)) or "nothing"
        state = "at rest" if self._is_at_rest() else "not at rest"
        said = [
            f"{condition['type']} {condition['status']}: {condition.get('message')}"
            for primary in self._record.list(self._workload.primary)
            for condition in (primary.get("status") or {}).get("conditions") or ()
        ]
        return "; ".join([f"not over after {_DEADLINE:.0f} s; {state}; there is {present}", *said])

    async def _clean_up(self) -> None:
        """Delete all objects, because they would slow down later trials."""
        for kind in self._workload.kinds:
            for manifest in self._record.list(kind):
                key, uid = key_of(manifest), uid_of(manifest)
                with contextlib.suppress(SlipwayError):
                    await self._bench.client.delete(kind, key, uid=uid, grace_seconds=0)
                    patch = {"metadata": {"finalizers": None}}
                    await self._bench.client.patch(kind, key, patch)


def _identify(manifest: Manifest) -> tuple[str, int]:
    return uid_of(manifest), version_of(manifest)
