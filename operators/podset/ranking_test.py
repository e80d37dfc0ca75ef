from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.podset.ranking import log_age, rank_for_deletion
from operators.podset.view import PodView

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def pod(name: str, **fields: Any) -> PodView:
    """Build a pod that runs well on a node of its own."""
    usual = PodView(
        name=name,
        uid=f"uid-{name}",
        slot=0,
        phase="Running",
        node=f"node-{name}",
        is_ready=True,
        ready_since="2026-01-31T11:00:00Z",
        created="2026-01-31T10:00:00Z",
    )
    return replace(usual, **fields)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"node": "", "deletion_cost": 9}, {}, id="without-node"),
        pytest.param({"phase": "Pending", "deletion_cost": 9}, {}, id="pending"),
        pytest.param({"phase": "Unknown", "deletion_cost": 9}, {}, id="unknown"),
        pytest.param({"phase": "Pending"}, {"phase": "Unknown"}, id="pending-before-unknown"),
        pytest.param({"is_ready": False, "deletion_cost": 9}, {}, id="not-ready"),
        pytest.param({"deletion_cost": -1, "restarts": 0}, {"restarts": 5}, id="low-cost"),
        pytest.param({"ready_since": "2026-01-31T11:59:00Z"}, {"restarts": 5}, id="ready-later"),
        pytest.param({"restarts": 5}, {"created": "2026-01-31T11:00:00Z"}, id="restarts"),
        pytest.param({"restarts": 1}, {"sidecar_restarts": 9}, id="restarts-before-sidecars"),
        pytest.param({"sidecar_restarts": 5}, {"created": "2026-01-31T11:00:00Z"}, id="sidecar"),
        pytest.param({"created": "2026-01-31T11:50:00Z"}, {"slot": 7}, id="younger"),
        pytest.param({"slot": 7}, {}, id="higher-slot"),
    ],
)
def test_pod_goes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    pods = [pod("b", **second), pod("a", **first)]

    assert [each.name for each in rank_for_deletion(pods, NOW)] == ["a", "b"]


def test_named_pod_goes_before_all_others() -> None:
    pods = [pod("a", node=""), pod("b", deletion_cost=100)]

    assert rank_for_deletion(pods, NOW, preferred=["b", "gone"])[0].name == "b"


def test_outdated_pod_goes_before_worse_ones() -> None:
    pods = [pod("a", node=""), pod("b")]

    assert rank_for_deletion(pods, NOW, outdated=["b"])[0].name == "b"


def test_crowded_node_is_thinned_out_first() -> None:
    pods = [pod("a"), pod("b", node="n"), pod("c", node="n")]

    assert rank_for_deletion(pods, NOW)[-1].name == "a"


def test_times_of_one_magnitude_count_as_equal() -> None:
    # Ready for 60 and for 65 minutes: the logarithm is the same, so the slot decides.
    pods = [pod("a", ready_since="2026-01-31T11:00:00Z", slot=1)]
    pods.append(pod("b", ready_since="2026-01-31T10:55:00Z", slot=2))

    assert rank_for_deletion(pods, NOW)[0].name == "b"


def test_age_of_the_future_counts_as_none() -> None:
    assert log_age("2026-01-31T12:00:09Z", NOW.timestamp()) == -1
    assert log_age("", NOW.timestamp()) == -1
    assert log_age("2026-01-31T11:59:59Z", NOW.timestamp()) == 29


@given(seed=st.integers(), count=st.integers(0, 30))
def test_order_does_not_depend_on_the_order_of_the_view(seed: int, count: int) -> None:
    rng = random.Random(seed)
    pods = [
        pod(str(n), slot=n, restarts=rng.randrange(2), is_ready=rng.random() < 0.5)
        for n in range(count)
    ]
    shuffled = rng.sample(pods, len(pods))

    assert rank_for_deletion(pods, NOW) == rank_for_deletion(shuffled, NOW)
