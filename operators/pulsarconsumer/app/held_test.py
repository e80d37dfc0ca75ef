"""What is known of messages that come a second time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from operators.pulsarconsumer.app.held import Held


def raw(number: int) -> Any:
    return SimpleNamespace(message_id=lambda: f"({number},0,-1,-1)")


def received(number: int) -> Any:
    return SimpleNamespace(id=f"{number}:0:-1:-1", data=b"x")


def test_message_that_was_copied_before_the_broker_crashed_is_not_handled_again() -> None:
    held = Held(10, 1000)
    held.copied(received(1))
    # Another loss of the connection is over.
    held.watch_redeliveries(10.0)
    held.tick(11.0)
    held.watch_redeliveries(100.0)
    assert held.is_watching

    first, second = raw(1), raw(2)
    assert held.sort_out([first, second], []) == ([second], [first])


def test_copies_are_remembered_up_to_a_number() -> None:
    held = Held(10, 1000)
    for number in range(20_001):
        held.copied(received(number))

    forgotten, known = raw(0), raw(1)
    assert held.sort_out([forgotten, known], []) == ([forgotten], [known])


def test_message_that_waits_behind_another_does_not_become_due_by_itself() -> None:
    held, first, second = Held(10, 1000), received(1), received(2)
    held.keep(first, 5.0)
    held.keep(second, 5.0)
    held.keep(second)

    assert held.pop_due(6.0) == [first]
    held.keep(second, 7.0)
    assert held.pop_due(8.0) == [second]
    assert held.pop_due(9.0) == []
