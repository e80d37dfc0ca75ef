"""How a consumer shares attempts, and what it does if it cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from operators.pulsarconsumer.app import attempt_log
from operators.pulsarconsumer.app.attempt_log import AttemptLog
from operators.pulsarconsumer.app.harness import build_environment
from operators.pulsarconsumer.app.settings import load_settings

DEAD_LETTER = {"dead_letter": "Enabled"}


class Failures(list[str]):
    """Counts failures as `Meters` does."""

    def fail(self, operation: str) -> None:
        self.append(operation)


def build(failures: Failures | None = None, /, **values: object) -> AttemptLog:
    settings = load_settings(build_environment("pulsar://localhost:1", "orders", **values))
    connection: Any = SimpleNamespace()
    meters: Any = Failures() if failures is None else failures
    return AttemptLog(settings, connection, meters)


def received(identity: str, *, connected: bool = True) -> Any:
    source = SimpleNamespace(is_connected=connected)
    return SimpleNamespace(identity=identity, source=source)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (DEAD_LETTER, "persistent://public/default/orders-sub-ATTEMPTS"),
        ({}, ""),
        (DEAD_LETTER | {"retry_strategy": "RetryTopic"}, ""),
        (DEAD_LETTER | {"topic": "non-persistent://a/b/c"}, ""),
        (DEAD_LETTER | {"output_topic": "orders-sub-ATTEMPTS"}, ""),
        (DEAD_LETTER | {"topic": "", "topics": "orders,orders-sub-ATTEMPTS"}, ""),
        (
            DEAD_LETTER | {"topic": "", "topic_pattern": "persistent://a/b/orders-.*"},
            "persistent://a/b/sub-ATTEMPTS",
        ),
        (
            DEAD_LETTER
            | {"topic": "", "topic_pattern": "persistent://a/b/.*", "dead_letter_topic": "dead"},
            "",
        ),
    ],
)
def test_attempts_are_shared_if_their_number_is_limited(
    values: dict[str, object], expected: str
) -> None:
    attempts = build(None, **values)
    attempts.add("x")

    assert attempts.topic == expected
    assert attempts.table.count("x") == (1 if expected else 0)


def test_next_attempt_waits_until_the_last_one_is_stored() -> None:
    attempts = build(None, **DEAD_LETTER)
    attempts._is_usable = True
    attempts.add("x")
    assert attempts.is_early(received("x"))
    assert not attempts.is_early(received("y"))

    attempts._take()
    assert attempts.is_early(received("x")), "it is being sent"
    attempts._sending = {}
    assert not attempts.is_early(received("x"))


def test_next_attempt_does_not_wait_for_a_topic_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = build(None, **DEAD_LETTER)
    attempts.add("x")
    attempts._refuse(ValueError("refused"))
    assert not attempts.is_early(received("x"))
    assert attempts.is_early(received("x", connected=False)), "another consumer may receive it"

    attempts._is_usable = True
    monkeypatch.setattr(attempt_log, "_STORE_SECONDS", 0.0)
    assert not attempts.is_early(received("x"))


def test_record_that_is_not_stored_is_sent_again_with_later_ones() -> None:
    attempts = build(None, **DEAD_LETTER)
    attempts.add("x")
    attempts.add("y")
    attempts.add("z")
    record, taken = attempts._take()
    attempts.add("x")
    attempts.finish("y", dead_lettered=False)
    attempts._put_back(record, taken)

    record, _ = attempts._take()
    assert record.attempts == {"x": 2, "z": 1}
    assert (record.acknowledged, record.dead_lettered) == (("y",), ())


def test_result_of_a_message_without_failed_attempts_is_published_for_dead_letters_only() -> None:
    attempts = build(None, **DEAD_LETTER)
    attempts.finish("x", dead_lettered=False)
    attempts.finish("y", dead_lettered=True)

    record, _ = attempts._take()
    assert (record.acknowledged, record.dead_lettered) == ((), ("y",))
    assert attempts.table.is_dead_lettered("y")


def test_failure_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    failures = Failures()
    attempts = build(failures, **DEAD_LETTER)
    for _ in range(3):
        attempts._refuse(ValueError("refused"))
        attempts._is_usable = None  # As `catch_up` does, for another attempt.

    assert list(failures) == ["attempts"] * 3
    assert capsys.readouterr().out.count("Cannot share attempts") == 1
