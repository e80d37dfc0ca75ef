"""Commands: sweep operators, replay one trial, test mutants."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lab.sweep import report
from lab.sweep.cluster import install_crds, run_control_plane
from lab.sweep.journal import Journal
from lab.sweep.modes import Mode
from lab.sweep.outcome import render_timeline
from lab.sweep.planning import (
    MomentClass,
    Plan,
    Tier,
    choose_gate,
    choose_representatives,
    plan_trials,
    read_replay,
)
from lab.sweep.runner import (
    Reference,
    SweepRunner,
    TrialResult,
    now,
    open_bench,
)
from lab.sweep.workload import Workload, load_workloads
from lab.sweep.zygote import Zygote, read_log
from libs.common.client import Client

_LANES: Final = 2
"""Number of operators that are swept concurrently."""
_REPORTED: Final = 100
"""Number of trials between two progress messages."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The results of the sweep of one operator.

    Attributes:
        results: Result of each workload.
        unused: Unused permissions.
    """

    results: list[report.Result]
    unused: list[str]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    operator: str
    tier: Tier
    replay: Path | None
    jobs: int
    write: bool
    workload: str
    modes: tuple[Mode, ...]
    mutants: tuple[str, ...]
    seed: int
    resume: bool
    folder: Path
    junit: Path | None = None

    @property
    def whole(self) -> bool:
        """Whether all trials of an operator in the tier are run."""
        return not (self.workload or self.modes)


async def sweep_operators(options: Options, operators: Sequence[str], zygote: Zygote) -> int:
    """Sweep operators, two at a time; returns the exit status.

    Each lane has its own API server: operators need different CRDs of the same kinds, and while one
    lane kills its API server, the other continues.
    """
    started = now()
    slots = asyncio.Semaphore(options.jobs)
    queue, swept = list(operators), dict[str, SweepResult]()

    async def follow_lane() -> None:
        async with run_control_plane() as control_plane:
            async with Client(control_plane.config) as client:
                # Install them together, because admission learns of new kinds only after a while.
                every = [one for each in operators for one in load_workloads(each)]
                await install_crds(client, every)
            while queue:
                operator = queue.pop(0)
                chosen = [
                    each for each in load_workloads(operator) if options.workload in ("", each.id)
                ]
                async with open_bench(control_plane, zygote, chosen, options.folder) as bench:
                    runner = SweepRunner(bench, slots, seed=options.seed)
                    swept[operator] = await _sweep(options, operator, chosen, runner)

    async with asyncio.TaskGroup() as group:
        for _ in operators[:_LANES]:
            group.create_task(follow_lane())
    results = [result for each in operators for result in swept[each].results]
    unused = [
        f"{operator}: nothing uses the right to {right}"
        for operator in operators
        for right in swept[operator].unused
    ]
    print(report.render_summary(results, now() - started))
    print("\n".join(unused))
    if options.junit is not None:
        report.write_junit(options.junit, results, unused)
    if options.write:
        report.write_page(report.build_rows(results), options.tier, options.seed)
    return int(any(result.failed for result in results) or bool(unused))


async def replay_trial(options: Options, zygote: Zygote) -> int:
    """Run only the trial of a replay file, and print its log."""
    assert options.replay is not None
    plan = read_replay(options.replay)
    workload = _find(plan)
    folder = options.folder / "replay"
    async with (
        run_control_plane() as control_plane,
        open_bench(control_plane, zygote, [workload], folder) as bench,
    ):
        runner = SweepRunner(bench, asyncio.Semaphore(1))
        reference = await runner.refer(workload)
        trial_result = await runner.try_plan(reference, plan)
        print(read_log(folder / f"{trial_result.outcome.namespace}.log"))
    print(render_timeline(trial_result.outcome))
    print(report.render_trial_result(trial_result))
    return int(trial_result.failed)


async def try_mutants(options: Options, zygote: Zygote) -> int:
    """Test each mutant until an oracle detects it; return 0 if all are detected."""
    from lab.sweep.mutants import MUTANTS

    if unknown := [name for name in options.mutants if name not in MUTANTS]:
        print(f"Unknown mutants: {', '.join(unknown)}; choose from {', '.join(MUTANTS)}")
        return 2
    chosen = [MUTANTS[name] for name in options.mutants or MUTANTS]
    kills: list[report.Kill] = []
    slots = asyncio.Semaphore(options.jobs)
    async with run_control_plane() as control_plane:
        for operator in dict.fromkeys(mutant.operator for mutant in chosen):
            workloads = load_workloads(operator)
            async with open_bench(control_plane, zygote, workloads, options.folder) as bench:
                runner = SweepRunner(bench, slots, seed=options.seed)
                for mutant in (each for each in chosen if each.operator == operator):
                    workload = next(each for each in workloads if each.id == mutant.workload)
                    reference = await runner.refer(workload)
                    kill = await _try_mutant(runner, reference, mutant.id, mutant.modes, options)
                    kills.append(kill)
                    print(report.render_kill(kill), flush=True)
    print(report.render_kills(kills))
    if options.write:
        report.write_kills(kills)
    return int(any(not kill.dead for kill in kills))


async def _try_mutant(
    runner: SweepRunner,
    reference: Reference,
    mutant: str,
    modes: Sequence[Mode],
    options: Options,
) -> report.Kill:
    """Test a mutant without faults, then with the faults of its modes, until it is detected."""
    started, trials = now(), 0
    plain = Plan(reference.workload.operator.id, reference.workload.id, mutant=mutant)
    trial_result = await runner.try_plan(reference, plain)
    trials += 1
    if not trial_result.failed:
        # The moments of a mutant may differ, for example in names.
        own = await runner.refer(reference.workload, mutant)
        reference = replace(reference, moments=own.moments)
        plans = _plan(reference, plain, modes, options.seed)
        for start in range(0, len(plans), options.jobs):
            part = plans[start : start + options.jobs]
            trial_results = await runner.try_plans(
                [(reference, each) for each in part], lambda _: None
            )
            trials += len(part)
            failed = [each for each in trial_results if each.failed]
            if failed:
                trial_result = failed[0]
                break
    oracles = tuple(dict.fromkeys(finding.oracle for finding in trial_result.findings))
    return report.Kill(
        mutant,
        oracles,
        str(trial_result.outcome.plan) if trial_result.failed else "",
        str(trial_result.findings[0]) if trial_result.failed else "",
        trials,
        now() - started,
    )


async def _sweep(
    options: Options, operator: str, workloads: Sequence[Workload], runner: SweepRunner
) -> SweepResult:
    """Sweep one operator."""
    results = {}
    trials: list[tuple[Reference, Plan]] = []
    tried: set[tuple[Mode, MomentClass]] = set()
    for reference in await runner.refer_all(workloads):
        workload = reference.workload
        results[workload.id] = result = report.Result(operator, workload.id, reference)
        for finding in reference.findings:
            print(f"{operator}/{workload.id} without faults: {finding}")
        plans = _choose(reference, options, tried)
        trials += [(reference, plan) for plan in plans]
        print(report.render_start(result, len(plans)), flush=True)
    journal = Journal(options.folder / f"{operator}.journal", resume=options.resume)
    for trial_result in await _try_new(runner, trials, journal):
        results[trial_result.outcome.plan.workload].trial_results.append(trial_result)
    rights = runner.bench.rights.find_unused(runner.used) if options.whole else []
    return SweepResult(list(results.values()), rights)


async def _try_new(
    runner: SweepRunner, trials: Sequence[tuple[Reference, Plan]], journal: Journal
) -> list[TrialResult]:
    """Run the trials that are not in the journal; return the results of all trials."""
    outcomes = [outcome for _, plan in trials if (outcome := journal.recall(plan))]
    recalled = [TrialResult(outcome, []) for outcome in outcomes]
    if recalled:
        print(f"{len(recalled)} of {len(trials)} trials passed before", flush=True)
    passed = {trial_result.outcome.plan for trial_result in recalled}
    new = [trial for trial in trials if trial[1] not in passed]
    started, numbers = now(), itertools.count(1)

    def tell(trial_result: TrialResult) -> None:
        if not trial_result.failed:
            journal.note(trial_result.outcome)
        else:
            print(report.render_trial_result(trial_result), flush=True)
        if (number := next(numbers)) % _REPORTED == 0:
            print(f"{number} of {len(new)} trials in {now() - started:.0f} s", flush=True)

    return [*recalled, *await runner.try_plans(new, tell)]


def _choose(
    reference: Reference, options: Options, tried: set[tuple[Mode, MomentClass]]
) -> list[Plan]:
    """Choose the trials of a workload that belong to the tier."""
    workload = reference.workload
    plans = _plan(reference, reference.outcome.plan, options.modes, options.seed)
    if options.tier == "gate" and not options.modes:
        names = [each.id for each in load_workloads(workload.operator.id)]
        plans = choose_gate(plans, workload.id, names, options.seed)
    if options.tier == "sorts" and not options.modes:
        plans = choose_representatives(plans, tried)
    return plans


def _plan(reference: Reference, plain: Plan, modes: Sequence[Mode], seed: int) -> list[Plan]:
    """Plan the trials of a workload."""
    workload = reference.workload
    return plan_trials(
        plain,
        reference.moments,
        quiet=[phase.name for phase in workload.phases if phase.quiet],
        modes=modes,
        spares=workload.spares,
        seed=seed,
    )


def _find(plan: Plan) -> Workload:
    return next(each for each in load_workloads(plan.operator) if each.id == plan.workload)
