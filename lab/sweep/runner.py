"""Runner: fault-free runs first, then concurrent trials, each evaluated when it ends."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lab.sweep.cluster import Permissions, list_owners, prepare_cluster, wait_owners
from lab.sweep.modes import EXCLUSIVE, SLOW, Mode
from lab.sweep.oracles import evaluate
from lab.sweep.outcome import Finding, Outcome
from lab.sweep.planning import Plan, write_replay
from lab.sweep.proxy import FaultProxy
from lab.sweep.recorder import Recorder
from lab.sweep.trial import Bench, run_trial
from lab.sweep.triggers import Trigger, common_triggers
from lab.sweep.workload import State, Workload
from lab.sweep.zygote import Zygote
from libs.common.client import Client
from libs.common.kinds import Kind
from libs.common.testing.apiserver import ControlPlane

REFERENCES: Final = 2
"""Number of fault-free runs of each workload; they must agree."""
_ATTEMPTS: Final = 3
"""Maximum number of runs of a trial whose moment did not occur: a burst of events may cause fewer
status writes."""


@dataclass
class TrialResult:
    """A trial and the results of the oracles."""

    outcome: Outcome
    findings: list[Finding]
    replay: Path | None = None

    @property
    def failed(self) -> bool:
        """Whether an oracle has a finding."""
        return bool(self.findings)


@dataclass
class Reference:
    """The fault-free runs of a workload.

    Attributes:
        workload: The workload.
        outcome: The run that others are compared with.
        moments: Moments that occurred in all runs.
        findings: Findings of the oracles about these runs.
    """

    workload: Workload
    outcome: Outcome
    moments: list[Trigger]
    findings: list[Finding] = field(default_factory=list)


class SweepRunner:
    """A runner of the trials of one operator.

    Args:
        bench: Objects that all trials share.
        slots: Maximum number of concurrent trials, including trials of other runners.
        seed: Seed for replay files.
    """

    def __init__(self, bench: Bench, slots: asyncio.Semaphore, *, seed: int = 0) -> None:
        """Initialize; nothing runs yet."""
        self.bench = bench
        self._slots = slots
        self._seed = seed
        self._numbers = itertools.count(1)
        self.used: set[tuple[str, str, str]] = set()

    async def refer(self, workload: Workload, mutant: str = "") -> Reference:
        """Run a workload without faults, more than once."""
        plan = Plan(workload.operator.id, workload.id, mutant=mutant)
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(self._run(workload, plan, {})) for _ in range(REFERENCES)]
        outcomes = [task.result() for task in runs]
        first = outcomes[0]
        moments = common_triggers([outcome.moments for outcome in outcomes])
        findings = [
            finding for outcome in outcomes for finding in evaluate(outcome, first, workload)
        ]
        return Reference(workload, first, moments, findings)

    async def refer_all(self, workloads: Sequence[Workload]) -> list[Reference]:
        """Run workloads without faults, concurrently."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.refer(workload)) for workload in workloads]
        return [task.result() for task in tasks]

    async def try_plans(
        self, trials: Sequence[tuple[Reference, Plan]], tell: Callable[[TrialResult], None]
    ) -> list[TrialResult]:
        """Run trials concurrently; trials that affect all others run one by one at the end.

        Long trials start first, so that processors are not idle while the last one runs.
        """

        async def run(reference: Reference, plan: Plan) -> TrialResult:
            trial_result = await self.try_plan(reference, plan)
            tell(trial_result)
            trial_result.outcome.shed()
            return trial_result

        alone = [trial for trial in trials if trial[1].mode in EXCLUSIVE]
        together = [trial for trial in trials if trial[1].mode not in EXCLUSIVE]
        together.sort(key=lambda trial: trial[1].mode not in SLOW)
        # A bug of the harness ends all trials, and each one cleans up after itself.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(*trial)) for trial in together]
        trial_results = [task.result() for task in tasks]
        if alone:
            self.bench.recorder.tolerant = True
            trial_results += [await run(*trial) for trial in alone]
            self.bench.recorder.tolerant = False
        return trial_results

    async def try_plan(self, reference: Reference, plan: Plan) -> TrialResult:
        """Run one trial, and repeat it if its moment did not occur."""
        workload, trigger = reference.workload, plan.trigger
        outcome = await self._run(workload, plan, reference.outcome.states)
        attempts = 1
        while trigger is not None and not (outcome.fired or outcome.late):
            if attempts >= _ATTEMPTS:
                if trigger.occurrence <= 1:
                    break
                # The number of repetitions in a burst depends on timing: try an earlier one.
                trigger = replace(trigger, occurrence=trigger.occurrence - 1)
                plan = replace(plan, trigger=trigger)
            outcome = await self._run(workload, plan, reference.outcome.states)
            attempts += 1
        trial_result = TrialResult(outcome, evaluate(outcome, reference.outcome, workload))
        if trial_result.failed:
            trial_result.replay = self.bench.folder / "failures" / f"{outcome.namespace}.json"
            findings = [str(finding) for finding in trial_result.findings]
            write_replay(trial_result.replay, plan, findings, self._seed)
        return trial_result

    async def _run(self, workload: Workload, plan: Plan, wanted: Mapping[str, State]) -> Outcome:
        async with self._slots:
            name = name_trial(plan, next(self._numbers))
            outcome = await run_trial(self.bench, workload, plan, name, wanted)
        if plan.mode is not Mode.E403:
            self.used |= outcome.used
        return outcome


def name_trial(plan: Plan, number: int) -> str:
    """Return the namespace of a trial, which identifies it everywhere."""
    words = f"s-{plan.operator}-{plan.workload}-{plan.mode}".lower()
    return f"{re.sub('[^a-z0-9-]', '-', words)[:50]}-{number}"


class Crasher:
    """A helper that kills parts of a control plane and restarts them.

    Args:
        control_plane: The control plane.
        proxy: The proxy through which operators reach it.
        client: Connection with all rights.
        owners: Kinds that own children.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        proxy: FaultProxy,
        client: Client,
        owners: Sequence[Kind],
    ) -> None:
        """Keep them."""
        self._control_plane = control_plane
        self._proxy = proxy
        self._client = client
        self._owners = owners

    async def crash(self, name: str) -> None:
        """Kill `etcd` or `kube-apiserver` and return when it is ready again.

        No request reaches an API server that is not ready, as behind a load balancer.
        """
        self._control_plane.kill(name)
        if name == "etcd":
            await asyncio.to_thread(self._control_plane.start_etcd)
            return
        self._proxy.reachable = False
        try:
            await asyncio.to_thread(self._control_plane.start_apiserver)
            await wait_owners(self._client, self._owners)
        finally:
            self._proxy.reachable = True


@asynccontextmanager
async def open_bench(
    control_plane: ControlPlane,
    zygote: Zygote,
    workloads: Sequence[Workload],
    folder: Path,
) -> AsyncIterator[Bench]:
    """Prepare the objects that the trials of one operator share."""
    folder.mkdir(parents=True, exist_ok=True)
    config = control_plane.config
    admin = (await config.authorization()).removeprefix("Bearer ")
    async with prepare_cluster(control_plane, workloads) as client:
        recorder = Recorder(client, [kind for each in workloads for kind in each.kinds])
        rights = Permissions(client, control_plane, workloads[0])
        await rights.prepare()
        await recorder.start()
        async with FaultProxy(config.server, config.ssl_context(), admin) as proxy:
            try:
                crash = Crasher(control_plane, proxy, client, list_owners(workloads)).crash
                parts = control_plane.list_pids
                yield Bench(zygote, proxy, client, recorder, rights, folder, crash, parts)
            finally:
                await recorder.stop()


def now() -> float:
    """Return the time for measuring durations."""
    return time.monotonic()
