from __future__ import annotations

from pathlib import Path

from lab.sweep.modes import FULL_EVENTS, FULL_WRITES, Mode
from lab.sweep.planning import (
    Plan,
    choose_gate,
    choose_modes,
    choose_representatives,
    class_of,
    plan_trials,
    read_replay,
    write_replay,
)
from lab.sweep.triggers import Trigger
from lab.sweep.workload import OPERATORS

REFERENCE = Plan("podset", "strict")
WRITES = [Trigger("write", "create", "create", "pods", name) for name in "ab"]
EVENT = Trigger("event", "create", "ADDED", "pods", "a")
PROBE = Trigger("write", "probe", "create", "pods", "c")
MOMENTS = [*WRITES, EVENT, PROBE]


def test_every_write_meets_every_crash_mode() -> None:
    plans = plan_trials(REFERENCE, MOMENTS, quiet=("probe",))

    for mode in (Mode.K1, Mode.K2, Mode.A1, Mode.E409):
        assert [plan.trigger for plan in plans if plan.mode is mode] == WRITES
    assert [plan.trigger for plan in plans if plan.mode is Mode.GONE] == [EVENT]


def test_runs_without_faults_can_be_chosen_alone() -> None:
    assert plan_trials(REFERENCE, MOMENTS, modes=(Mode.NONE,)) == []


def test_kill_before_a_write_is_tried_at_the_first_alone() -> None:
    plans = plan_trials(REFERENCE, MOMENTS)

    assert [plan.trigger for plan in plans if plan.mode is Mode.K0] == WRITES[:1]


def test_fault_that_a_workload_spares_is_left_out() -> None:
    plans = plan_trials(
        REFERENCE,
        MOMENTS,
        spares=lambda mode, moment: mode is Mode.E409 and moment == WRITES[0],
    )

    assert [plan.trigger for plan in plans if plan.mode is Mode.E409] == [WRITES[1], PROBE]


def test_full_tier_has_every_mode() -> None:
    plans = plan_trials(REFERENCE, MOMENTS)

    assert {plan.mode for plan in plans} == {*FULL_WRITES, *FULL_EVENTS}


def test_sorts_try_each_mode_at_each_sort_of_moment() -> None:
    chosen = choose_representatives(plan_trials(REFERENCE, MOMENTS), set())

    for mode in {*FULL_WRITES} - {Mode.K0}:
        sorts = [class_of(plan.trigger) for plan in chosen if plan.mode is mode and plan.trigger]
        assert sorts == [class_of(WRITES[0])]
    assert {plan.mode for plan in chosen} == {*FULL_WRITES, *FULL_EVENTS}


def test_second_workload_tries_only_new_sorts() -> None:
    tried: set[tuple[Mode, tuple[str, str, str]]] = set()
    choose_representatives(plan_trials(REFERENCE, MOMENTS), tried)
    other = Trigger("write", "update", "patch", "pods", "a")

    again = choose_representatives(plan_trials(Plan("podset", "x"), [*MOMENTS, other]), tried)

    assert {plan.trigger for plan in again} == {other}
    assert {plan.mode for plan in again} == {*FULL_WRITES} - {Mode.K0}


def test_gate_tries_each_mode_once_over_all_workloads() -> None:
    names = ["one", "two", "three"]
    chosen = [
        plan
        for name in names
        for plan in choose_gate(plan_trials(Plan("podset", name), MOMENTS), name, names, seed=0)
    ]

    assert sorted(plan.mode for plan in chosen) == sorted(choose_modes("podset"))
    assert len({plan.workload for plan in chosen}) == len(names)
    (foreign,) = (plan for plan in chosen if plan.mode is Mode.E409)
    assert foreign.trigger is not None
    assert foreign.trigger.action == "create"


def test_gate_tries_each_mode_with_some_operator() -> None:
    chosen = [choose_modes(operator) for operator in OPERATORS]

    assert {mode for modes in chosen for mode in modes} == {*FULL_WRITES, *FULL_EVENTS}
    assert all(Mode.K1 in modes and Mode.GONE in modes for modes in chosen)


def test_second_crash_is_sampled_alike_for_one_seed() -> None:
    first, second = (plan_trials(REFERENCE, MOMENTS, seed=7) for _ in range(2))

    assert first == second
    assert all(plan.recovery for plan in first if plan.mode is Mode.K3)


def test_second_crash_at_one_moment_is_the_same_whatever_the_others_are() -> None:
    moments = [Trigger("write", "create", "create", "pods", str(number)) for number in range(20)]
    every, fewer = (
        plan_trials(REFERENCE, each, modes=(Mode.K3,)) for each in (moments, moments[5:])
    )

    assert set(fewer) < set(every)
    assert {plan.recovery for plan in every} == {1, 2, 3, 4}


def test_modes_confine_the_trials() -> None:
    plans = plan_trials(REFERENCE, MOMENTS, modes=(Mode.HANG,))

    assert {plan.mode for plan in plans} == {Mode.HANG}


def test_replay_file_gives_the_plan_back(tmp_path: Path) -> None:
    plan = Plan("podset", "strict", Mode.K3, WRITES[0], 2, "some-mutant")
    path = tmp_path / "failures" / "one.json"

    write_replay(path, plan, ["state: web is missing"], seed=3)

    assert read_replay(path) == plan
