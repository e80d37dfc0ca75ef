"""What is known of messages that come a second time."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

from operators.pulsarconsumer.app.core.headers import COPY_OF
from operators.pulsarconsumer.app.held_messages import (
    REDELIVERY_SECONDS,
    SILENT_SECONDS,
    HeldMessages,
)

_OVER = 10.0 + REDELIVERY_SECONDS
"""When the time of a watch is over whose first message came at 10.0."""


def raw(number: int, published: int = 1000) -> Any:
    return SimpleNamespace(
        message_id=lambda: f"({number},0,-1,-1)", publish_timestamp=lambda: published
    )


def received(number: int, *, is_retry: bool = False) -> Any:
    source = SimpleNamespace(is_retry=is_retry)
    return SimpleNamespace(identity=f"1000:{number}:0:-1:-1", data=b"x", source=source)


def test_message_that_was_copied_before_the_broker_crashed_is_not_handled_again() -> None:
    held = HeldMessages(10, 1000)
    held.copied("1000:1:0:-1:-1")
    # Another loss of the connection is over.
    held.watch_redeliveries("a", 0.0)
    held.note_empty("a", SILENT_SECONDS)
    held.watch_redeliveries("a", 1000.0)

    first, second = raw(1), raw(2)
    assert held.sort_out([first, second], []) == ([second], [first])


def test_message_of_another_cluster_with_the_same_id_is_new() -> None:
    """Message ids of an emptied cluster start again, while the service URL stays the same."""
    held = watching("a")
    held.copied("1000:2:0:-1:-1")

    others = [raw(1, 2000), raw(2, 2000)]
    assert held.sort_out(others, []) == (others, [])


def test_copies_are_remembered_up_to_a_number() -> None:
    held = HeldMessages(10, 1000)
    for number in range(20_001):
        held.copied(f"1000:{number}:0:-1:-1")

    forgotten, known = raw(0), raw(1)
    assert held.sort_out([forgotten, known], []) == ([forgotten], [known])


def test_message_that_waits_behind_another_does_not_become_due_by_itself() -> None:
    held, first, second = HeldMessages(10, 1000), received(1), received(2)
    held.keep(first, 5.0)
    held.keep(second, 5.0)
    held.keep(second)

    assert held.pop_due(6.0) == [first]
    held.keep(second, 7.0)
    assert held.pop_due(8.0) == [second]
    assert held.pop_due(9.0) == []


def watching(*sources: str) -> HeldMessages:
    """Remember an acknowledged message, and watch sources that lost their connections at 0.0."""
    held = HeldMessages(10, 1000)
    for source in sources:
        held.watch_redeliveries(source, 0.0)
    held.acknowledged(received(1))
    return held


def is_recognized(held: HeldMessages) -> bool:
    """Return whether the acknowledged message is recognized when it comes again."""
    message = raw(1)
    return held.is_watching and held.sort_out([message], []) == ([], [message])


def test_redeliveries_are_recognized_until_the_queue_is_empty_after_their_time() -> None:
    held = watching("a")

    held.note_received("a", 100, 0, 10.0)
    held.note_received("a", 100, 0, _OVER)
    held.note_empty("a", _OVER - 1)  # The broker may not have sent all of it.
    held.note_empty("b", _OVER)
    assert is_recognized(held)
    held.note_empty("a", _OVER)
    assert not is_recognized(held)


def test_time_of_redeliveries_starts_with_the_first_message_of_the_new_connection() -> None:
    """A broker that has just started may bring nothing for longer than it redelivers."""
    held = watching("a")

    held.note_empty("a", REDELIVERY_SECONDS)
    held.note_empty("a", SILENT_SECONDS - 1)
    assert is_recognized(held)
    held.note_received("a", 1, 0, SILENT_SECONDS - 1)
    held.note_empty("a", SILENT_SECONDS - 1 + REDELIVERY_SECONDS - 1)
    assert is_recognized(held)
    held.note_empty("a", SILENT_SECONDS - 1 + REDELIVERY_SECONDS)
    assert not is_recognized(held)


def test_connection_that_brings_nothing_is_not_watched_indefinitely() -> None:
    held = watching("a")

    held.note_empty("a", SILENT_SECONDS)
    assert not is_recognized(held)


def test_connection_that_is_lost_again_starts_the_time_again() -> None:
    held = watching("a")

    held.note_received("a", 1, 0, 10.0)
    held.watch_redeliveries("a", _OVER - 1)
    held.note_empty("a", _OVER - 1 + REDELIVERY_SECONDS)
    assert is_recognized(held)


def test_redeliveries_are_recognized_for_each_source() -> None:
    held = watching("a", "b")

    held.note_empty("a", SILENT_SECONDS)
    assert is_recognized(held)
    held.note_empty("b", SILENT_SECONDS)
    assert not is_recognized(held)


def test_redeliveries_are_recognized_for_their_time_after_the_last_one() -> None:
    held = watching("a")

    held.note_received("a", 1, 0, 10.0)
    held.note_received("a", 1, 1, 50.0)
    held.note_empty("a", _OVER)
    assert is_recognized(held)
    held.note_empty("a", 50.0 + REDELIVERY_SECONDS)
    assert not is_recognized(held)


def test_new_connection_of_a_source_that_never_lost_one_is_not_watched() -> None:
    held = watching("a")

    held.restart_watch("a", 500.0)
    held.restart_watch("b", 500.0)
    held.note_empty("a", 500.0 + SILENT_SECONDS - 1)
    assert is_recognized(held)
    held.note_empty("a", 500.0 + SILENT_SECONDS)
    assert not is_recognized(held)


def test_queue_that_is_never_empty_is_watched_for_a_number_of_messages() -> None:
    held = watching("a")

    held.note_received("a", 30_000, 0, 10.0)
    held.note_received("a", 30_000, 0, _OVER - 1)
    held.note_received("a", 19_999, 0, _OVER)
    assert is_recognized(held)
    held.note_received("a", 1, 0, _OVER)
    assert not is_recognized(held)


def copy(number: int, copy_of: str) -> Any:
    properties = {COPY_OF: copy_of} if copy_of else {}
    return SimpleNamespace(**vars(raw(number)), properties=lambda: properties)


def test_copy_that_was_stored_twice_is_recognized() -> None:
    held = HeldMessages(10, 1000)
    first, again, second = copy(5, "1:0"), copy(5, "1:0"), copy(6, "1:0")
    others = [copy(7, "1:1"), copy(8, ""), copy(9, "")]

    assert held.sort_out([first], [], copies=True) == ([first], [])
    # The same one comes again after a lost connection.
    assert held.sort_out([again, second, *others], [], copies=True) == ([again, *others], [second])


def test_message_that_the_queue_of_the_client_holds_twice_is_new_once() -> None:
    """The client keeps what it received of several partitions when it reconnects."""
    held = HeldMessages(10, 1000)
    first, again, other = raw(1), raw(1), raw(2)

    new, done = held.sort_out([first, other, again], [])
    assert ([id(each) for each in new], done) == ([id(again), id(other)], [])


class Payload:
    """A payload which, unlike bytes, can be seen to be gone."""

    def __len__(self) -> int:
        return 1


def test_messages_that_went_back_to_the_broker_leave_no_payloads() -> None:
    held, message = HeldMessages(10, 1000), received(1)
    message.data, message.attempt = Payload(), 1
    payload = weakref.ref(message.data)
    held.keep(message, 3600.0)
    held.forget(message.source)
    del message
    gc.collect()

    assert payload() is None
    assert len(held) == 0


def test_copies_from_the_retry_topic_have_room_of_their_own_and_a_bound() -> None:
    """They are received to make room in the retry topic, into which others have to be copied."""
    held = HeldMessages(2, 1000)
    topic, retry = SimpleNamespace(is_retry=False), SimpleNamespace(is_retry=True)
    for number in range(2):
        held.keep(received(number), 5.0)
    assert (held.is_full(topic), held.is_full(retry)) == (True, False)
    copies = [received(number, is_retry=True) for number in (5, 6)]
    for each in copies:
        held.keep(each, 5.0)
    assert held.is_full(retry)
    held.take(copies[0])
    assert not held.is_full(retry)
