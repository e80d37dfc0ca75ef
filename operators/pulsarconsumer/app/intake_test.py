"""Messages come one at a time, and many at a time while many wait."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from operators.pulsarconsumer.app.harness import build_environment
from operators.pulsarconsumer.app.intake import Intake
from operators.pulsarconsumer.app.settings import load_settings


class PlayedConsumer:
    """Has messages without end; each takes some time."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.batch: Sequence[str] = ["m"] * 50
        self.asked: list[str] = []

    def receive(self, _timeout: int) -> str:
        self.now += self.seconds
        self.asked.append("one")
        return "m"

    def batch_receive(self) -> Sequence[str]:
        self.asked.append("many")
        return self.batch


def take(consumer: PlayedConsumer, times: int, **settings: object) -> list[str]:
    environ = build_environment("pulsar://p:6650", "t", receiver_queue_size=100, **settings)
    intake = Intake(consumer, load_settings(environ), monotonic=lambda: consumer.now)
    for _ in range(times):
        assert intake.receive()
    return consumer.asked


def test_many_are_taken_at_once_while_many_wait_and_no_longer() -> None:
    consumer = PlayedConsumer(0.0005)
    assert take(consumer, 102) == ["one"] * 100 + ["many"] * 2

    consumer = PlayedConsumer(0.0005)
    consumer.batch = ["m"] * 10
    assert take(consumer, 102) == ["one"] * 100 + ["many", "one"]


@pytest.mark.parametrize(
    ("seconds", "settings"), [(0.002, {}), (0.0005, {"ack_timeout_seconds": 10})]
)
def test_none_waits_for_others_where_handling_is_slow_or_the_time_is_bounded(
    seconds: float, settings: dict[str, object]
) -> None:
    assert set(take(PlayedConsumer(seconds), 300, **settings)) == {"one"}


def test_batches_that_were_asked_for_are_always_taken() -> None:
    consumer = PlayedConsumer(1)
    consumer.batch = ["m"]
    assert set(take(consumer, 5, batch_max_messages=10)) == {"many"}
