from __future__ import annotations

from pathlib import Path

from tools.sweep.modes import FULL_EVENTS, FULL_WRITES, Mode
from tools.sweep.planning import Plan, plan_trials, read_replay, sample_plans, write_replay
from tools.sweep.triggers import Trigger

REFERENCE = Plan("podset", "strict")
WRITES = [Trigger("write", "create", "create", "pods", name) for name in "ab"]
EVENT = Trigger("event", "create", "ADDED", "pods", "a")
PROBE = Trigger("write", "probe", "create", "pods", "c")
MOMENTS = [*WRITES, EVENT, PROBE]


def test_every_write_meets_every_crash_mode() -> None:
    plans = plan_trials(REFERENCE, MOMENTS, "gate", quiet=("probe",))

    for mode in (Mode.K1, Mode.K2, Mode.A1, Mode.E409):
        assert [plan.trigger for plan in plans if plan.mode is mode] == WRITES
    assert [plan.trigger for plan in plans if plan.mode is Mode.GONE] == [EVENT]


def test_kill_before_a_write_is_tried_at_the_first_alone() -> None:
    plans = plan_trials(REFERENCE, MOMENTS, "gate")

    assert [plan.trigger for plan in plans if plan.mode is Mode.K0] == WRITES[:1]


def test_full_tier_has_every_mode() -> None:
    plans = plan_trials(REFERENCE, MOMENTS, "full")

    assert {plan.mode for plan in plans} == {*FULL_WRITES, *FULL_EVENTS}


def test_second_crash_is_sampled_alike_for_one_seed() -> None:
    first, second = (plan_trials(REFERENCE, MOMENTS, "full", seed=7) for _ in range(2))

    assert first == second
    assert all(plan.recovery for plan in first if plan.mode is Mode.K3)


def test_modes_confine_the_trials() -> None:
    plans = plan_trials(REFERENCE, MOMENTS, "gate", modes=(Mode.HANG,))

    assert {plan.mode for plan in plans} == {Mode.HANG}


def test_sample_keeps_the_order() -> None:
    plans = plan_trials(REFERENCE, MOMENTS, "full")

    chosen = sample_plans(plans, 5)

    assert len(chosen) == 5
    assert [plan for plan in plans if plan in chosen] == chosen
    assert sample_plans(plans, 1000) == plans


def test_replay_file_gives_the_plan_back(tmp_path: Path) -> None:
    plan = Plan("podset", "strict", Mode.K3, WRITES[0], 2, "some-mutant")
    path = tmp_path / "failures" / "one.json"

    write_replay(path, plan, ["state: web is missing"], seed=3)

    assert read_replay(path) == plan
