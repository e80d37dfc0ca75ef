"""How often and how soon: for all policies and errors."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core.faults import Mismatch
from operators.pulsarconsumer.app.core.retry import (
    DeadLetter,
    Retry,
    RetryPolicy,
    compute_delay,
    plan_retry,
)
from slipway_handler import Reject, RetryLater

policies = st.builds(
    RetryPolicy,
    st.integers(1, 20),
    st.floats(0, 60),
    st.floats(60, 10_000),
    st.floats(1, 10),
    st.booleans(),
)
rolls = st.floats(0, 1, exclude_max=True)
errors = st.sampled_from([ValueError("x"), Reject("x"), RetryLater(3.0), SystemExit(1)])


@given(policies, st.integers(1, 10_000), errors, rolls)
def test_message_dies_only_by_the_rules(
    policy: RetryPolicy, attempt: int, error: BaseException, roll: float
) -> None:
    dead = isinstance(plan_retry(policy, attempt, error, roll), DeadLetter)

    exhausted = attempt >= policy.max_attempts
    assert dead == (policy.dead_letter and (exhausted or isinstance(error, Reject)))


@given(policies, st.integers(1, 10_000), rolls)
def test_delay_is_between_nothing_and_the_most(
    policy: RetryPolicy, attempt: int, roll: float
) -> None:
    assert 0 <= compute_delay(policy, attempt, roll) <= policy.max_delay


@given(policies, st.integers(1, 500), rolls)
def test_delays_do_not_shrink(policy: RetryPolicy, attempt: int, roll: float) -> None:
    assert compute_delay(policy, attempt, roll) <= compute_delay(policy, attempt + 1, roll)


def test_delays_grow_by_the_multiplier_up_to_the_most() -> None:
    policy = RetryPolicy(initial_delay=1, max_delay=10, multiplier=2)

    assert [compute_delay(policy, attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_delays_are_spread_by_a_tenth() -> None:
    policy = RetryPolicy(initial_delay=10)

    assert round(compute_delay(policy, 1, 0.0), 3) == 9
    assert round(compute_delay(policy, 1, 1.0), 3) == 11


def test_reason_of_death_is_told() -> None:
    policy = RetryPolicy(max_attempts=2, dead_letter=True)

    assert plan_retry(policy, 1, Reject("x"), 0) == DeadLetter("Rejected")
    assert plan_retry(policy, 1, Mismatch("x"), 0) == DeadLetter("SchemaMismatch")
    assert plan_retry(policy, 2, ValueError(), 0) == DeadLetter("AttemptsExhausted")


def test_handler_chooses_the_delay_within_reason() -> None:
    policy = RetryPolicy(max_delay=1)

    assert plan_retry(policy, 1, RetryLater(30), 0) == Retry(30)
    assert plan_retry(policy, 1, RetryLater(-1), 0) == Retry(0)
    assert plan_retry(policy, 1, RetryLater(1e12), 0) == Retry(864_000)


def test_exception_type_that_is_named_is_not_retried() -> None:
    class InvalidOrder(ValueError):
        pass

    named = RetryPolicy(max_attempts=5, dead_letter=True, reject_on=frozenset({"ValueError"}))
    qualified = RetryPolicy(
        max_attempts=5, dead_letter=True, reject_on=frozenset({"json.decoder.JSONDecodeError"})
    )

    assert plan_retry(named, 1, ValueError("x"), 0.5) == DeadLetter("Rejected")
    assert plan_retry(named, 1, InvalidOrder("x"), 0.5) == DeadLetter("Rejected")
    assert isinstance(plan_retry(named, 1, KeyError("x"), 0.5), Retry)
    error = json.JSONDecodeError("x", "", 0)
    assert plan_retry(qualified, 1, error, 0.5) == DeadLetter("Rejected")
    assert isinstance(plan_retry(qualified, 1, ValueError("x"), 0.5), Retry)


def test_exception_type_that_is_named_is_retried_without_a_dead_letter_topic() -> None:
    policy = RetryPolicy(max_attempts=5, reject_on=frozenset({"ValueError"}))

    assert isinstance(plan_retry(policy, 1, ValueError("x"), 0.5), Retry)
