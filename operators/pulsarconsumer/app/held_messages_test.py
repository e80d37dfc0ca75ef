"""What is known of messages that come a second time, or do not come again."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from operators.pulsarconsumer.app.core.headers import COPY_OF
from operators.pulsarconsumer.app.held_messages import (
    ANSWER_SECONDS,
    ASK_SECONDS,
    CRASH_SECONDS,
    REDELIVERY_SECONDS,
    SILENT_SECONDS,
    STORED_SECONDS,
    HeldMessages,
)
from operators.pulsarconsumer.app.received import Received, receive_message


class Source:
    """A source of messages."""

    def __init__(
        self, *, is_retry: bool = False, in_order: bool = True, is_durable: bool = True
    ) -> None:
        self.count_attempts = lambda _: 1
        self.is_retry, self.redelivers_in_order, self.is_durable = is_retry, in_order, is_durable


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


_TOPIC = Source()


def raw(number: int, published: int = 1000, index: int = -1, data: object = b"x") -> Any:
    return SimpleNamespace(
        message_id=lambda: f"({number},0,-1,{index})",
        publish_timestamp=lambda: published,
        topic_name=lambda: "persistent://a/b/c",
        int_schema_version=lambda: -1,
        properties=dict,
        data=lambda: data,
    )


def received(
    number: int, source: Source = _TOPIC, index: int = -1, data: object = b"x"
) -> Received:
    return receive_message(source, raw(number, index=index, data=data))


def is_known(held: HeldMessages, source: Source, message: Any) -> bool:
    """Return whether a message is recognized as finished when it comes again."""
    return held.is_watching and held.sort_out(source, [message], []) == ([], [message])


def lose(held: HeldMessages, source: Source, since: float, seconds: float) -> None:
    """Observe a lost connection, several times per second."""
    step = 0.0
    while step < seconds:
        held.watch_redeliveries(source, since + step)
        step += 0.5
    held.watch_redeliveries(source, since + seconds)


def test_message_that_was_finished_before_the_broker_crashed_is_not_handled_again() -> None:
    held = HeldMessages(10, 1000, Clock())
    held.finished("1000:1:0:-1:-1")
    lose(held, _TOPIC, 10.0, CRASH_SECONDS)

    first, second = raw(1), raw(2)
    assert held.sort_out(_TOPIC, [first, second], []) == ([second], [first])


def test_message_that_comes_again_though_the_broker_was_not_away_is_handled_again() -> None:
    """The cursor was moved back, which closes the connection for a moment."""
    clock = Clock()
    held = HeldMessages(10, 1000, clock)
    held.finished("1000:1:0:-1:-1")
    clock.now = 10.5
    held.finished("1000:2:0:-1:-1")
    lose(held, _TOPIC, 10.0, 1.0)

    assert not is_known(held, _TOPIC, raw(1))
    assert is_known(held, _TOPIC, raw(2))  # It was being handled when the connection was lost.
    # The cursor was moved back again, too fast to be noticed.
    clock.now = 12.0
    held.finished("1000:1:0:-1:-1")
    assert not is_known(held, _TOPIC, raw(1))
    assert not is_known(held, _TOPIC, raw(2))


def test_message_whose_acknowledgment_the_broker_has_stored_is_handled_again() -> None:
    """The cursor was moved back while the broker was away."""
    clock = Clock()
    held = HeldMessages(10, 1000, clock)
    held.finished("1000:1:0:-1:-1")
    clock.now = STORED_SECONDS
    held.finished("1000:2:0:-1:-1")
    lose(held, _TOPIC, 1 + STORED_SECONDS, CRASH_SECONDS)

    assert not is_known(held, _TOPIC, raw(1))
    assert is_known(held, _TOPIC, raw(2))


def test_messages_of_the_batch_of_one_that_waits_are_known_after_a_crash() -> None:
    clock = Clock()
    held = HeldMessages(10, 1000, clock)
    held.keep(received(1, index=1), 5.0)
    held.finished("1000:1:0:-1:0")
    held.finished("1000:2:0:-1:0")
    clock.now = 10_000.0
    lose(held, _TOPIC, 10_000.0, CRASH_SECONDS)

    assert is_known(held, _TOPIC, raw(1, index=0))
    assert not is_known(held, _TOPIC, raw(2, index=0))


def test_message_of_another_cluster_with_the_same_id_is_new() -> None:
    """Message ids of an emptied cluster start again, while the service URL stays the same."""
    held = watching(_TOPIC)
    held.finished("1000:2:0:-1:-1")

    others = [raw(1, 2000), raw(2, 2000)]
    assert held.sort_out(_TOPIC, others, []) == (others, [])


def test_finished_messages_are_remembered_up_to_a_number() -> None:
    held = watching(_TOPIC)
    for number in range(20_001):
        held.finished(f"1000:{number}:0:-1:-1")

    forgotten, known = raw(0), raw(1)
    assert held.sort_out(_TOPIC, [forgotten, known], []) == ([forgotten], [known])


def test_message_that_waits_behind_another_does_not_become_due_by_itself() -> None:
    held, first, second = HeldMessages(10, 1000), received(1), received(2)
    held.keep(first, 5.0)
    held.keep(second, 5.0)
    held.keep(second)

    assert held.pop_due(6.0) == [first]
    held.keep(second, 7.0)
    assert held.pop_due(8.0) == [second]
    assert held.pop_due(9.0) == []


def test_broker_is_asked_for_messages_that_wait_for_long() -> None:
    clock = Clock()
    held = HeldMessages(10, 1000, clock)
    message, other = received(1), received(2)
    held.keep(message, 5.0)
    clock.now = ASK_SECONDS
    assert not held.must_ask(_TOPIC)
    held.keep(message, ASK_SECONDS)  # Another attempt failed, which confirms nothing.
    held.keep(other, ASK_SECONDS)
    clock.now = ASK_SECONDS + 1
    assert held.must_ask(_TOPIC)
    assert not held.must_ask(Source())
    held.ask(_TOPIC, clock.now)
    assert held.pop_due(clock.now) == []
    clock.now += 1
    assert held.sort_out(_TOPIC, [raw(1)], []) == ([], [])
    assert held.pop_due(clock.now) == [message]
    assert held.note_received(_TOPIC, 1, 1, clock.now) == []
    assert held.note_empty(_TOPIC, clock.now) == []
    clock.now += ANSWER_SECONDS
    assert held.note_empty(_TOPIC, clock.now) == [other]
    assert not held.must_ask(_TOPIC)
    assert (len(held), held.pop_given_up(other.identity)) == (1, True)
    assert not held.pop_given_up(other.identity)


def test_message_that_was_given_up_is_new_if_it_comes_again() -> None:
    clock = Clock()
    held = HeldMessages(10, 1000, clock)
    held.keep(received(1), 5.0, resume=lambda _: None)
    clock.now = 100.0
    held.ask(_TOPIC, 100.0)
    assert len(held.note_empty(_TOPIC, 100.0 + ANSWER_SECONDS)) == 1

    again = raw(1)
    assert held.sort_out(_TOPIC, [again], []) == ([again], [])
    assert not held.pop_given_up("1000:1:0:-1:-1")
    assert held.take(received(1)) is None


@pytest.mark.parametrize(
    "source", [Source(is_durable=False), Source(in_order=False), Source(is_retry=True)]
)
def test_only_messages_that_the_broker_redelivers_to_this_consumer_are_given_up(
    source: Source,
) -> None:
    held = HeldMessages(10, 1000, Clock())
    held.keep(received(1, source), 5.0)
    if source.is_retry:
        source.redelivers_in_order = False
    held.ask(source, 100.0)

    assert held.note_empty(source, 1000.0) == []
    assert len(held.pop_due(1000.0)) == 1


def test_message_of_a_lost_connection_is_tried_again_when_it_comes_again() -> None:
    clock = Clock()
    held = HeldMessages(10, 1000, clock)
    first, second = received(1), received(2)
    held.keep(first, 5.0)
    held.keep(second, 5.0)
    lose(held, _TOPIC, 10.0, 1.0)
    assert held.pop_due(20.0) == []
    clock.now = 20.0
    held.sort_out(_TOPIC, [raw(2)], [])
    held.note_received(_TOPIC, 1, 1, 20.0)
    assert held.pop_due(20.0) == [second]
    assert held.note_empty(_TOPIC, 20.0 + REDELIVERY_SECONDS) == [first]


def watching(*sources: Source) -> HeldMessages:
    """Remember a finished message, and watch sources whose broker crashed at 0.0."""
    held = HeldMessages(10, 1000, Clock())
    for source in sources:
        held.watch_redeliveries(source, 0.0, crashed=True)
    held.finished("1000:1:0:-1:-1")
    return held


_OVER = 10.0 + REDELIVERY_SECONDS
"""When the time of a watch is over whose first message came at 10.0."""


def is_recognized(held: HeldMessages, source: Source = _TOPIC) -> bool:
    known = is_known(held, source, raw(1))
    held.finished("1000:1:0:-1:-1")
    return known


def test_redeliveries_are_recognized_until_the_queue_is_empty_after_their_time() -> None:
    held = watching(_TOPIC)

    held.note_received(_TOPIC, 100, 0, 10.0)
    held.note_received(_TOPIC, 100, 0, _OVER)
    held.note_empty(_TOPIC, _OVER - 1)  # The broker may not have sent all of it.
    held.note_empty(Source(), _OVER)
    assert is_recognized(held)
    held.note_empty(_TOPIC, _OVER)
    assert not is_recognized(held)


def test_time_of_redeliveries_starts_with_the_first_message_of_the_new_connection() -> None:
    """A broker that has just started may bring nothing for longer than it redelivers."""
    held = watching(_TOPIC)

    held.note_empty(_TOPIC, REDELIVERY_SECONDS)
    held.note_empty(_TOPIC, SILENT_SECONDS - 1)
    assert is_recognized(held)
    held.note_received(_TOPIC, 1, 0, SILENT_SECONDS - 1)
    held.note_empty(_TOPIC, SILENT_SECONDS - 1 + REDELIVERY_SECONDS - 1)
    assert is_recognized(held)
    held.note_empty(_TOPIC, SILENT_SECONDS - 1 + REDELIVERY_SECONDS)
    assert not is_recognized(held)


def test_connection_that_brings_nothing_is_not_watched_indefinitely() -> None:
    held = watching(_TOPIC)

    held.note_empty(_TOPIC, SILENT_SECONDS)
    assert not is_recognized(held)


def test_connection_that_is_lost_again_starts_the_time_again() -> None:
    held = watching(_TOPIC)

    held.note_received(_TOPIC, 1, 0, 10.0)
    held.watch_redeliveries(_TOPIC, _OVER - 1, crashed=True)
    held.note_empty(_TOPIC, _OVER - 1 + REDELIVERY_SECONDS)
    assert held.is_watching


def test_redeliveries_are_recognized_for_each_source() -> None:
    other = Source()
    held = watching(_TOPIC, other)

    held.note_empty(_TOPIC, SILENT_SECONDS)
    assert is_recognized(held, other)
    held.note_empty(other, SILENT_SECONDS)
    assert not is_recognized(held, other)


def test_redeliveries_are_recognized_for_their_time_after_the_last_one() -> None:
    held = watching(_TOPIC)

    held.note_received(_TOPIC, 1, 0, 10.0)
    held.note_received(_TOPIC, 1, 1, 50.0)
    held.note_empty(_TOPIC, _OVER)
    assert is_recognized(held)
    held.note_empty(_TOPIC, 50.0 + REDELIVERY_SECONDS)
    assert not is_recognized(held)


def test_new_connection_of_a_source_that_never_lost_one_is_not_watched() -> None:
    held, other = watching(_TOPIC), Source()

    held.restart_watch(_TOPIC, 500.0)
    held.restart_watch(other, 500.0)
    held.note_empty(_TOPIC, 500.0 + SILENT_SECONDS - 1)
    assert is_recognized(held)
    held.note_empty(_TOPIC, 500.0 + SILENT_SECONDS)
    assert not is_recognized(held)


def test_queue_that_is_never_empty_is_watched_for_a_number_of_messages() -> None:
    held = watching(_TOPIC)

    held.note_received(_TOPIC, 30_000, 0, 10.0)
    held.note_received(_TOPIC, 30_000, 0, _OVER - 1)
    held.note_received(_TOPIC, 19_999, 0, _OVER)
    assert is_recognized(held)
    held.note_received(_TOPIC, 1, 0, _OVER)
    assert not is_recognized(held)


def copy(number: int, copy_of: str) -> Any:
    properties = {COPY_OF: copy_of} if copy_of else {}
    return SimpleNamespace(**{**vars(raw(number)), "properties": lambda: properties})


def test_copy_that_was_stored_twice_is_recognized() -> None:
    held, retry = HeldMessages(10, 1000), Source(is_retry=True)
    first, again, second = copy(5, "1:0"), copy(5, "1:0"), copy(6, "1:0")
    others = [copy(7, "1:1"), copy(8, ""), copy(9, "")]

    assert held.sort_out(retry, [first], []) == ([first], [])
    # The same one comes again after a lost connection.
    assert held.sort_out(retry, [again, second, *others], []) == ([again, *others], [second])


def test_message_that_the_queue_of_the_client_holds_twice_is_new_once() -> None:
    """The client keeps what it received of several partitions when it reconnects."""
    held = HeldMessages(10, 1000)
    first, again, other = raw(1), raw(1), raw(2)

    new, done = held.sort_out(_TOPIC, [first, other, again], [])
    assert ([id(each) for each in new], done) == ([id(again), id(other)], [])


class Payload:
    """A payload which, unlike bytes, can be seen to be gone."""

    def __len__(self) -> int:
        return 1


def test_messages_that_went_back_to_the_broker_leave_no_payloads() -> None:
    held, message = HeldMessages(10, 1000), received(1, data=Payload())
    payload = weakref.ref(message.data)
    held.keep(message, 3600.0)
    held.forget(message.source)
    del message
    gc.collect()

    assert payload() is None
    assert len(held) == 0


def test_copies_from_the_retry_topic_have_room_of_their_own_and_a_bound() -> None:
    """They are received to make room in the retry topic, into which others have to be copied."""
    held, retry = HeldMessages(2, 1000), Source(is_retry=True)
    for number in range(2):
        held.keep(received(number), 5.0)
    assert (held.is_full(_TOPIC), held.is_full(retry)) == (True, False)
    copies = [received(number, retry) for number in (5, 6)]
    for each in copies:
        held.keep(each, 5.0)
    assert held.is_full(retry)
    held.take(copies[0])
    assert not held.is_full(retry)
