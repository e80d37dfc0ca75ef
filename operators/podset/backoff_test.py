from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.podset.api.v1 import PodBackoff
from operators.podset.backoff import build_failure, delay_after, plan_vacancies
from operators.podset.view import PodView, seconds_of

POLICY = PodBackoff(base_seconds=10, max_seconds=300)
ENDED = seconds_of("2026-01-31T12:00:00Z") or 0.0
NOW = ENDED + 60


def ended(name: str, minute: int = 0, *, attempt: int = 0, template: str = "h") -> PodView:
    """Build a pod that ended in some minute after twelve, a second after it was created."""
    return PodView(
        name=name,
        uid=name,
        slot=None,
        phase="Failed",
        created=f"2026-01-31T12:{minute:02}:00Z",
        ended=f"2026-01-31T12:{minute:02}:01Z",
        attempt=attempt,
        template_hash=template,
    )


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (999, 300)]
)
def test_delay_doubles_up_to_the_longest(attempt: int, seconds: int) -> None:
    assert delay_after(attempt, POLICY) == seconds


def test_replacement_carries_the_next_attempt() -> None:
    failure = build_failure(ended("a", attempt=2), NOW, {"h"}, POLICY)

    assert (failure.next_attempt, failure.retry_at) == (3, ENDED + 1 + 20)


@pytest.mark.parametrize("ahead", [20, 400, 86_400])
def test_node_whose_clock_is_ahead_neither_holds_a_slot_nor_floods_it(ahead: int) -> None:
    """All that is known of such a pod is when it was created: by that it is backed off."""
    minutes, seconds = divmod(ahead, 60)
    pod = replace(ended("a", attempt=1), ended=f"2026-01-31T12:{minutes % 60:02}:{seconds:02}Z")
    if ahead == 86_400:
        pod = replace(pod, ended="2026-02-01T12:00:00Z")

    failure = build_failure(pod, ENDED + 2, {"h"}, POLICY)

    assert (failure.next_attempt, failure.retry_at) == (2, ENDED + 10)


def test_pod_that_lived_long_starts_the_count_anew() -> None:
    pod = PodView(
        name="a",
        uid="a",
        slot=0,
        phase="Failed",
        created="2026-01-31T11:00:00Z",
        ended="2026-01-31T12:00:00Z",
        attempt=5,
        template_hash="h",
    )

    failure = build_failure(pod, NOW, {"h"}, POLICY)

    assert (failure.next_attempt, failure.retry_at) == (0, ENDED)


def test_pod_of_another_template_is_replaced_at_once() -> None:
    failure = build_failure(ended("a", attempt=5, template="old"), NOW, {"h"}, POLICY)

    assert (failure.next_attempt, failure.retry_at) == (0, ENDED + 1)


def test_as_many_wait_as_are_missing_and_the_rest_is_history() -> None:
    pods = [ended("a", 1), ended("b", 9, attempt=3), ended("c", 5)]

    vacancies = plan_vacancies(pods, 1, ENDED + 9 * 60 + 2, {"h"}, POLICY)

    assert [failure.pod.name for failure in vacancies.waiting] == ["b"]
    assert [pod.name for pod in vacancies.history] == ["c", "a"]
    assert (vacancies.fresh, vacancies.due) == (0, ())


def test_vacancies_without_a_failure_are_filled_at_once() -> None:
    vacancies = plan_vacancies([ended("a", attempt=3)], 4, ENDED, {"h"}, POLICY)

    assert vacancies.fresh == 3
    assert len(vacancies.waiting) == 1


def test_history_keeps_the_newest() -> None:
    vacancies = plan_vacancies(
        [ended("a", 1), ended("b", 2), ended("c", 3)], 0, ENDED, {"h"}, POLICY
    )

    assert [pod.name for pod in vacancies.obsolete(1)] == ["b", "a"]
    assert vacancies.obsolete(3) == []


@given(
    attempts=st.lists(st.integers(0, 8), max_size=10),
    missing=st.integers(-3, 12),
    now=st.integers(-100, 5_000),
)
def test_every_vacancy_and_every_ended_pod_is_accounted_for(
    attempts: list[int], missing: int, now: int
) -> None:
    pods = [ended(str(n), n, attempt=attempt) for n, attempt in enumerate(attempts)]

    result = plan_vacancies(pods, missing, ENDED + now, {"h"}, POLICY)

    assert result.fresh + len(result.due) + len(result.waiting) == max(0, missing)
    assert len(result.due) + len(result.waiting) + len(result.history) == len(pods)
    assert list(result.waiting) == sorted(result.waiting, key=lambda failure: failure.retry_at)
