"""The start of a trial: an operator that does not begin to work fails its trial and no other."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from lab.sweep import trial as module
from lab.sweep.learning import Knowledge
from lab.sweep.oracles import evaluate
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan
from lab.sweep.progress_clock import Meter, Waits
from lab.sweep.proxy import FaultProxy
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.session import Session
from lab.sweep.trial import Bench, Trial
from lab.sweep.workload import Phase, State, load_workloads
from lab.sweep.zygote import Child, Zygote

WORKLOAD = replace(load_workloads("podset")[0], phases=())
PLAN = Plan("podset", WORKLOAD.id)
START = 0.2


@dataclass
class FakeZygote:
    """A zygote whose children begin to work after some seconds; None for never."""

    delay: float | None
    children: list[Child] = field(default_factory=list)

    async def spawn(self, request: dict[str, Any]) -> Child:
        child = Child(pid=-1)
        self.children.append(child)
        if self.delay is not None:
            asyncio.get_running_loop().call_later(self.delay, child.working.set)
        return child


class FakeProxy:
    def url(self, session: Session, number: int) -> str:
        return "http://127.0.0.1:1"


def wait_always(pid: int) -> Waits:
    """Read the waits of a process that never gets a CPU."""
    return {1: time.monotonic_ns()}


def build_trial(folder: Path, zygote: FakeZygote, meter: Meter, wanted: dict[str, State]) -> Trial:
    unused = cast(Any, None)
    bench = Bench(
        zygote=cast(Zygote, zygote),
        proxy=cast(FaultProxy, FakeProxy()),
        client=unused,
        recorder=unused,
        rights=unused,
        folder=folder,
        crash=unused,
        meter=meter,
    )
    session = Session("ns", "token")
    session.watched |= {kind.plural for kind in WORKLOAD.kinds}
    return Trial(bench, WORKLOAD, PLAN, session, NamespaceRecord(), wanted)


async def run_start(folder: Path, zygote: FakeZygote, meter: Meter) -> Outcome:
    trial = build_trial(folder, zygote, meter, {})
    started = time.monotonic()
    try:
        await trial.run()
    finally:
        trial.outcome.seconds = time.monotonic() - started
        for task in trial._tasks:
            task.cancel()
    return trial.outcome


@pytest.fixture(autouse=True)
def _start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START", START)


async def test_operator_that_never_works_fails_its_trial_with_its_log(tmp_path: Path) -> None:
    outcome = await run_start(tmp_path, FakeZygote(None), Meter())

    findings = [str(each) for each in evaluate(outcome, Outcome(PLAN, "ns"), WORKLOAD)]
    assert findings == [f"converged: start: not at work after 0.2 s; see {tmp_path / 'ns.log'}"]


async def test_time_in_which_nobody_gets_a_cpu_does_not_count_for_the_start(tmp_path: Path) -> None:
    outcome = await run_start(tmp_path, FakeZygote(3 * START), Meter(read=wait_always))

    assert not outcome.late
    assert outcome.seconds >= 3 * START


async def test_phase_waits_for_a_retry_that_brings_the_state_of_the_fault_free_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked: State = {"podsets web": {"status": {"reason": "NameTaken"}}}
    ready: State = {"podsets web": {"status": {"reason": "Ready"}}}
    states = iter([blocked, blocked, ready])
    monkeypatch.setattr(Knowledge, "build_state", lambda *_: next(states))
    trial = build_trial(tmp_path, FakeZygote(None), Meter(), {"create": ready})
    monkeypatch.setattr(trial, "_is_over", lambda _: True)
    monkeypatch.setattr(trial, "_is_recorded", AsyncMock(return_value=True))
    monkeypatch.setattr(trial, "_let_components_act", AsyncMock())

    assert await trial._run_phase(Phase("create", AsyncMock(), lambda _: True))

    assert trial.outcome.states == {"create": ready}
