from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import TerminalError
from operators.podset.rollout import (
    Budget,
    Rollout,
    observe_rollout,
    parse_budget,
    parse_share,
    plan_replacements,
)
from operators.podset.simulation import build_podset
from operators.podset.view import PodView

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def pods(old_good: int = 0, old_bad: int = 0, new_good: int = 0, new_bad: int = 0) -> list[PodView]:
    """Build pods: good ones are available, bad ones are not."""
    kinds = [("old", True, old_good), ("old", False, old_bad)]
    kinds += [("new", True, new_good), ("new", False, new_bad)]
    return [
        PodView(
            name=f"{version}-{'good' if good else 'bad'}-{n}",
            uid=f"{version}{good}{n}",
            slot=n,
            is_ready=good,
            template_hash=version,
        )
        for version, good, count in kinds
        for n in range(count)
    ]


def plan(found: list[PodView], replicas: int, budget: Budget) -> tuple[Rollout, list[str]]:
    """Plan one step of an update to the template `new`."""
    available = frozenset(pod.name for pod in found if pod.is_ready)
    rollout = observe_rollout(found, replicas, "new", budget)
    chosen = plan_replacements(found, available, replicas, rollout, budget, NOW)
    return rollout, [pod.name for pod in chosen]


@pytest.mark.parametrize(
    ("value", "up", "pods"),
    [(3, True, 3), ("25%", True, 2), ("25%", False, 1), ("0%", True, 0), ("100%", False, 5)],
)
def test_share_is_rounded(value: int | str, up: bool, pods: int) -> None:
    assert parse_share(value, 5, "spec.x", up=up) == pods


@pytest.mark.parametrize("value", ["25", "x%", "-1%", "101%", -1, "%"])
def test_share_that_is_none_is_refused_with_its_field(value: int | str) -> None:
    with pytest.raises(TerminalError, match=r"spec\.x: .* must be a number") as caught:
        parse_share(value, 5, "spec.x", up=True)

    assert caught.value.field == "spec.x"


@pytest.mark.parametrize(
    ("strategy", "budget"),
    [
        ({"type": "OnDelete"}, Budget()),
        ({"type": "RollingUpdate"}, Budget(True, 1, 1, 0)),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}, Budget(True, 0, 1, 0)),
        (
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "30%"}},
            Budget(True, 2, 0, 0),
        ),
        (
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "60%", "partition": 3}},
            Budget(True, 1, 2, 3),
        ),
        (
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2**62}},
            Budget(True, 4, 0, 0),
        ),
        ({"type": "Recreate"}, Budget(True, 0, 1, 0)),
        ({"type": "Recreate", "recreate": {"maxUnavailable": 0}}, Budget(True, 0, 1, 0)),
        (
            {"type": "Recreate", "recreate": {"maxUnavailable": "60%", "partition": "50%"}},
            Budget(True, 0, 2, 2),
        ),
    ],
    ids=str,
)
def test_budget_follows_from_the_strategy(strategy: Any, budget: Budget) -> None:
    spec = build_podset(replicas=4, updateStrategy=strategy).spec

    assert parse_budget(spec) == budget


def test_default_limits_replace_the_only_pod_without_a_gap() -> None:
    budget = parse_budget(build_podset(replicas=1, updateStrategy={"type": "RollingUpdate"}).spec)
    rollout, chosen = plan(pods(old_good=1), 1, budget)

    assert (rollout.target, chosen) == (2, [])
    _, chosen = plan(pods(old_good=1, new_bad=1), 1, budget)
    assert chosen == []
    _, chosen = plan(pods(old_good=1, new_good=1), 1, budget)
    assert chosen == ["old-good-0"]


@pytest.mark.parametrize(
    ("kind", "field"), [("RollingUpdate", "rollingUpdate"), ("Recreate", "recreate")]
)
def test_limit_that_makes_no_sense_is_named_by_the_field_that_was_written(
    kind: str, field: str
) -> None:
    spec = build_podset(updateStrategy={"type": kind, field: {"maxSurge": "101%"}}).spec

    with pytest.raises(TerminalError) as caught:
        parse_budget(spec)
    assert caught.value.field == f"spec.updateStrategy.{field}.maxSurge"


def test_on_delete_leaves_old_pods_alone() -> None:
    rollout, chosen = plan(pods(old_good=3), 3, parse_budget(build_podset(replicas=3).spec))

    assert (rollout.pending, rollout.target, chosen) == (0, 3, [])


def test_as_many_go_as_may_be_unavailable() -> None:
    _, chosen = plan(pods(old_good=4), 4, Budget(True, 0, 2))

    assert len(chosen) == 2


def test_surge_comes_before_anything_goes() -> None:
    rollout, chosen = plan(pods(old_good=3), 3, Budget(True, 1, 0))

    assert (rollout.target, chosen) == (4, [])


def test_surge_that_is_up_lets_one_go() -> None:
    _, chosen = plan(pods(old_good=3, new_good=1), 3, Budget(True, 1, 0))

    assert len(chosen) == 1


def test_surge_ends_with_the_update() -> None:
    rollout, _ = plan(pods(new_good=3), 3, Budget(True, 1, 0))

    assert rollout.target == 3


def test_pods_that_do_not_work_go_first() -> None:
    _, chosen = plan(pods(old_good=3, old_bad=1), 4, Budget(True, 0, 1))

    assert chosen == ["old-bad-0"]


def test_broken_template_stops_the_update() -> None:
    _, chosen = plan(pods(old_good=3, new_bad=1), 4, Budget(True, 0, 1))

    assert chosen == []


def test_pods_of_a_broken_template_use_the_room_of_broken_old_ones_too() -> None:
    _, chosen = plan(pods(old_good=1, old_bad=2, new_bad=1), 4, Budget(True, 0, 1))

    assert chosen == []


def test_partition_keeps_pods_on_their_template() -> None:
    rollout, chosen = plan(pods(old_good=2, new_good=2), 4, Budget(True, 0, 4, 2))

    assert (rollout.pending, chosen) == (0, [])


@given(
    counts=st.tuples(*(st.integers(0, 6) for _ in range(4))),
    replicas=st.integers(0, 8),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
    partition=st.integers(0, 3),
)
def test_no_step_breaks_the_budget(
    counts: tuple[int, int, int, int], replicas: int, surge: int, unavailable: int, partition: int
) -> None:
    found = pods(*counts)
    budget = Budget(True, surge, unavailable if surge else max(1, unavailable), partition)
    rollout, chosen = plan(found, replicas, budget)
    lost = sum("good" in name for name in chosen)
    available = sum(pod.is_ready for pod in found)

    assert lost == 0 or available - lost >= replicas - budget.unavailable
    assert all(name.startswith("old") for name in chosen)
    assert len(rollout.outdated) - len(chosen) >= min(partition, len(rollout.outdated))
    assert replicas <= rollout.target <= replicas + surge
