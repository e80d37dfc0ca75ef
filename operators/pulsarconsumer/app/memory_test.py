"""What is known of messages that come a second time, or do not come again."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from operators.pulsarconsumer.app.core.headers import COPY_OF
from operators.pulsarconsumer.app.core.states import Event, State
from operators.pulsarconsumer.app.memory import Memory
from operators.pulsarconsumer.app.received import Received, render_identity
from operators.pulsarconsumer.app.redelivery import (
    ANSWER_SECONDS,
    ASK_SECONDS,
    BUSY_SECONDS,
    CRASH_SECONDS,
    REDELIVERY_SECONDS,
    SILENT_SECONDS,
    STORED_SECONDS,
)


class Source:
    """A source of messages."""

    is_connected = True

    def __init__(
        self, *, is_retry: bool = False, in_order: bool = True, is_durable: bool = True
    ) -> None:
        self.is_retry, self.redelivers_in_order, self.is_durable = is_retry, in_order, is_durable


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


_TOPIC = Source()
_FIRST = "1000:1:0:-1:-1"
"""Identity of message 1."""


def build(clock: Clock | None = None) -> Memory:
    return Memory(10, 1000, clock or Clock())


def raw(
    number: int, published: int = 1000, index: int = -1, data: object = b"x", repeated: int = 0
) -> Any:
    return SimpleNamespace(
        redelivery_count=lambda: repeated,
        message_id=lambda: f"({number},0,-1,{index})",
        publish_timestamp=lambda: published,
        topic_name=lambda: "persistent://a/b/c",
        schema_version=lambda: "",
        properties=dict,
        data=lambda: data,
    )


def received(
    number: int, source: Source = _TOPIC, index: int = -1, data: object = b"x", group: str = ""
) -> Received:
    message = raw(number, index=index, data=data)
    return Received(source, message, render_identity(message), group=group)


def take(memory: Memory) -> list[Received]:
    """Take all messages, and leave them at once."""
    taken = []
    while (unit := memory.take(block=False)) is not None:
        taken += unit
        for message in unit:
            memory.finish(message, Event.SUCCEEDED)
        memory.release(unit)
    return taken


def keep(memory: Memory, *messages: Received, due: float = 5.0) -> None:
    """Receive messages that fail."""
    for message in messages:
        memory.add([[message]])
        unit = memory.take(block=False)
        assert unit == [message]
        memory.fail(message, due, message.attempt + 1)
        memory.release(unit)


def pop_due(memory: Memory, now: float) -> list[Received]:
    """Handle due messages, which succeed."""
    assert memory.pop_due(now) == []
    return take(memory)


def is_known(memory: Memory, source: Source, message: Any) -> bool:
    """Return whether a message is recognized as finished when it comes again."""
    return memory.redeliveries.sort_out(source, [message], 0.0) == ({}, [message])


def lose(memory: Memory, source: Source, since: float, seconds: float) -> None:
    """Observe a lost connection, several times per second."""
    step = 0.0
    while step < seconds:
        memory.redeliveries.watch(source, since + step)
        step += 0.5
    memory.redeliveries.watch(source, since + seconds)


def sort_out(memory: Memory, source: Source, *batch: Any) -> tuple[list[Any], list[Any]]:
    new, done, gone = memory.sort_out(source, batch)
    assert not gone
    return list(new.values()), done


def test_message_that_was_finished_before_the_broker_crashed_is_not_handled_again() -> None:
    memory = build()
    memory.redeliveries.remember_finished(_FIRST)
    lose(memory, _TOPIC, 10.0, CRASH_SECONDS)

    first, second = raw(1), raw(2)
    assert sort_out(memory, _TOPIC, first, second) == ([second], [first])


def test_message_that_comes_again_though_the_broker_was_not_away_is_handled_again() -> None:
    """The cursor was moved back, which closes the connection for a moment."""
    clock = Clock()
    memory = build(clock)
    memory.redeliveries.remember_finished(_FIRST)
    clock.now = 10.5
    memory.redeliveries.remember_finished("1000:2:0:-1:-1")
    lose(memory, _TOPIC, 10.0, 1.0)

    assert not is_known(memory, _TOPIC, raw(1))
    # It was being handled when the connection was lost.
    assert is_known(memory, _TOPIC, raw(2))
    # The cursor was moved back again, too fast to be noticed.
    clock.now = 12.0
    memory.redeliveries.remember_finished(_FIRST)
    assert not is_known(memory, _TOPIC, raw(1))
    assert not is_known(memory, _TOPIC, raw(2))


def test_message_that_was_on_its_way_when_the_broker_was_asked_is_not_handled_twice() -> None:
    """The broker delivers it once more, although it came after the request."""
    clock = Clock()
    memory = build(clock)
    lose(memory, _TOPIC, 10.0, 1.0)
    clock.now = 12.0
    memory.redeliveries.ask(_TOPIC, clock.now)
    clock.now = 12.5
    memory.redeliveries.remember_finished(_FIRST)

    assert memory.redeliveries.sort_out(_TOPIC, [raw(1)], 13.0)[1]
    # The cursor was moved back, too fast to be noticed.
    assert not memory.redeliveries.sort_out(_TOPIC, [raw(1)], 20.0)[1]


def test_message_that_came_again_comes_once_more_if_the_broker_is_asked() -> None:
    """It was being handled when the connection was lost, and its acknowledgment was on its way."""
    clock = Clock()
    memory = build(clock)
    clock.now = 10.5
    memory.redeliveries.remember_finished(_FIRST)
    lose(memory, _TOPIC, 10.0, 1.0)
    assert is_known(memory, _TOPIC, raw(1))
    memory.redeliveries.ask(_TOPIC, 12.0)

    assert memory.redeliveries.sort_out(_TOPIC, [raw(1)], 20.0)[1]
    assert not memory.redeliveries.sort_out(_TOPIC, [raw(1)], 20.0)[1]


def test_message_whose_acknowledgment_the_broker_has_stored_is_handled_again() -> None:
    """The cursor was moved back while the broker was away."""
    clock = Clock()
    memory = build(clock)
    memory.redeliveries.remember_finished(_FIRST)
    clock.now = STORED_SECONDS
    memory.redeliveries.remember_finished("1000:2:0:-1:-1")
    lose(memory, _TOPIC, 1 + STORED_SECONDS, CRASH_SECONDS)

    assert not is_known(memory, _TOPIC, raw(1))
    assert is_known(memory, _TOPIC, raw(2))


def test_messages_of_the_batch_of_one_that_waits_are_known_after_a_crash() -> None:
    clock = Clock()
    memory = build(clock)
    keep(memory, received(1, index=1))
    memory.redeliveries.remember_finished("1000:1:0:-1:0")
    memory.redeliveries.remember_finished("1000:2:0:-1:0")
    clock.now = 10_000.0
    lose(memory, _TOPIC, 10_000.0, CRASH_SECONDS)

    assert is_known(memory, _TOPIC, raw(1, index=0))
    assert not is_known(memory, _TOPIC, raw(2, index=0))


def test_message_of_another_cluster_with_the_same_id_is_new() -> None:
    """Message ids of an emptied cluster start again, while the service URL stays the same."""
    memory = watching(_TOPIC)
    memory.redeliveries.remember_finished("1000:2:0:-1:-1")

    others = [raw(1, 2000), raw(2, 2000)]
    assert sort_out(memory, _TOPIC, *others) == (others, [])


def test_finished_messages_are_remembered_up_to_a_number() -> None:
    memory = watching(_TOPIC)
    for number in range(20_001):
        memory.redeliveries.remember_finished(f"1000:{number}:0:-1:-1")

    forgotten, known = raw(0), raw(1)
    assert sort_out(memory, _TOPIC, forgotten, known) == ([forgotten], [known])


def test_messages_of_a_group_wait_for_the_first_one() -> None:
    memory, first, second = build(), received(1, group="a"), received(2, group="a")
    other = received(3, group="b")
    keep(memory, first)
    memory.add([[second], [other]])

    assert take(memory) == [other]
    assert memory.count_waiting() == 2
    assert pop_due(memory, 4.0) == []
    assert pop_due(memory, 6.0) == [first, second]
    assert len(memory) == memory.count_waiting() == 0


def test_messages_of_a_list_stay_in_their_order_after_a_partial_failure() -> None:
    memory = build()
    unit = [received(number, group="a") for number in range(5)]
    memory.add([unit])
    taken = memory.take(block=False)
    assert taken == unit
    memory.finish(unit[0], Event.SUCCEEDED)
    memory.fail(unit[1], 5.0, 2)
    memory.fail(unit[3], 5.0, 2)
    assert memory.replace(unit[4])
    memory.release(taken)

    assert [each.state for each in unit] == [
        State.DONE,
        State.WAITING,
        State.RECEIVED,
        State.RECEIVED,
        State.COPIED,
    ]
    assert take(memory) == []
    assert pop_due(memory, 6.0) == unit[1:4]
    memory.add([[last := received(9, group="a")]])
    assert take(memory) == []
    memory.finish(unit[4], Event.STORED)
    assert take(memory) == [last]


@pytest.mark.parametrize("held", ["waiting", "in handler", "copied"])
def test_messages_that_come_again_are_handled_before_those_that_follow_them(held: str) -> None:
    """The cursor was moved back while the third message fails; it waits, and others behind it."""
    memory = build()
    first, second, third, fourth = (received(number, group="g") for number in range(1, 5))
    memory.add([[third]])
    assert memory.take(block=False) == [third]
    if held == "copied":
        assert memory.replace(third)
    if held == "waiting":
        memory.fail(third, 5.0, 2)
    if held != "in handler":
        memory.release([third])
    memory.add([[fourth], [first, second]])
    if held == "in handler":
        assert memory.take(block=False) is None
        memory.fail(third, 5.0, 2)
        memory.release([third])
    assert take(memory) == [first, second] + ([] if held == "copied" else [third, fourth])
    if held == "copied":
        memory.finish(third, Event.STORED)
        assert take(memory) == [fourth]
    assert len(memory) == 0
    assert pop_due(memory, 10.0) == []


def test_message_is_not_taken_again_before_its_thread_has_left_it() -> None:
    memory, message = build(), received(1)
    memory.add([[message]])
    unit = memory.take(block=False)
    assert unit is not None
    memory.fail(message, 0.0, 2)
    assert pop_due(memory, 1.0) == []
    memory.release(unit)
    assert pop_due(memory, 1.0) == [message]


def test_result_of_a_call_that_has_timed_out_comes_too_late() -> None:
    memory, message = build(), received(1)
    memory.add([[message]])
    unit = memory.take(block=False)
    assert unit is not None
    assert memory.replace(message)
    memory.finish(message, Event.SUCCEEDED)
    memory.fail(message, 0.0, 2)
    assert not memory.replace(message)
    memory.release(unit)

    assert (message.state, message.attempt) == (State.COPIED, 1)


def test_broker_is_asked_for_messages_that_wait_for_long() -> None:
    clock = Clock()
    memory = build(clock)
    redeliveries = memory.redeliveries
    message, other = received(1), received(2)
    keep(memory, message, other)
    clock.now = ASK_SECONDS
    assert not redeliveries.must_ask(_TOPIC)
    clock.now = ASK_SECONDS + 1
    assert redeliveries.must_ask(_TOPIC)
    assert not redeliveries.must_ask(Source())
    redeliveries.ask(_TOPIC, clock.now)
    assert pop_due(memory, clock.now) == []
    clock.now += 1
    assert memory.sort_out(_TOPIC, [raw(1)]) == ({}, [], [])
    assert pop_due(memory, clock.now) == [message]
    assert memory.note_empty(_TOPIC, clock.now) == ([], [])
    clock.now += ANSWER_SECONDS
    assert memory.note_empty(_TOPIC, clock.now) == ([], [other])
    assert other.state is State.GIVEN_UP
    assert not redeliveries.must_ask(_TOPIC)
    assert (len(memory), pop_due(memory, clock.now)) == (0, [])


def test_broker_is_asked_when_the_handler_is_idle_or_a_call_takes_long() -> None:
    """With KeyShared, it could give the message in the handler to another consumer as well."""
    clock = Clock()
    memory = build(clock)
    keep(memory, received(1))
    memory.add([[received(2)]])
    assert memory.take(block=False) is not None
    clock.now = ASK_SECONDS + BUSY_SECONDS
    assert not memory.redeliveries.must_ask(_TOPIC)
    clock.now += 1
    assert memory.redeliveries.must_ask(_TOPIC)


def test_broker_is_asked_by_a_source_whatever_others_do() -> None:
    """A source that receives many messages looks more often whether it must ask."""
    clock = Clock()
    memory, quiet = build(clock), Source()
    keep(memory, received(1, quiet))
    clock.now = ASK_SECONDS + 1
    assert not memory.redeliveries.must_ask(_TOPIC)
    assert memory.redeliveries.must_ask(quiet)


def test_broker_that_is_slow_is_not_asked_again_while_it_may_answer() -> None:
    """It would begin from the start each time."""
    clock = Clock()
    memory = build(clock)
    keep(memory, received(1))
    clock.now = ASK_SECONDS + 1
    memory.redeliveries.watch(_TOPIC, clock.now)
    assert memory.redeliveries.must_ask(_TOPIC)
    memory.redeliveries.ask(_TOPIC, clock.now)
    clock.now += ANSWER_SECONDS - 1
    assert not memory.redeliveries.must_ask(_TOPIC)
    clock.now += 1
    assert memory.redeliveries.must_ask(_TOPIC)


def test_message_that_another_consumer_returned_with_its_batch_is_not_handled_again() -> None:
    """The broker counts deliveries from zero after the cursor was moved."""
    memory = build()
    memory.redeliveries.remember_finished("1000:1:0:-1:0")

    assert is_known(memory, _TOPIC, raw(1, index=0, repeated=1))
    assert not is_known(memory, _TOPIC, raw(1, index=0))


def test_copy_that_must_not_be_stored_any_more_is_given_up() -> None:
    clock = Clock()
    memory, message = build(clock), received(1)
    memory.add([[message]])
    unit = memory.take(block=False)
    assert unit is not None
    memory.replace(message)
    memory.release(unit)
    clock.now = 100.0
    memory.redeliveries.ask(_TOPIC, 100.0)
    assert memory.note_empty(_TOPIC, 100.0 + ANSWER_SECONDS) == ([], [message])
    assert message.state is State.GIVEN_UP

    again = raw(1)
    assert sort_out(memory, _TOPIC, again) == ([again], [])


@pytest.mark.parametrize(
    "source", [Source(is_durable=False), Source(in_order=False), Source(is_retry=True)]
)
def test_only_messages_that_the_broker_redelivers_to_this_consumer_are_given_up(
    source: Source,
) -> None:
    memory = build()
    keep(memory, received(1, source))
    if source.is_retry:
        source.redelivers_in_order = False
    memory.redeliveries.ask(source, 100.0)

    assert memory.note_empty(source, 1000.0) == ([], [])
    assert len(pop_due(memory, 1000.0)) == 1


def test_message_of_a_shared_subscription_that_waits_for_long_goes_back_to_the_broker() -> None:
    clock, source = Clock(), Source(in_order=False)
    memory, message = build(clock), received(1, source)
    keep(memory, message, due=ASK_SECONDS)
    clock.now = ASK_SECONDS + 1

    assert memory.pop_due(clock.now) == [message]
    assert (message.state, memory.attempts(message.identity)) == (State.GIVEN_UP, 1)


def test_message_of_a_lost_connection_is_tried_again_when_it_comes_again() -> None:
    clock = Clock()
    memory = build(clock)
    first, second = received(1), received(2)
    keep(memory, first, second)
    lose(memory, _TOPIC, 10.0, 1.0)
    assert pop_due(memory, 20.0) == []
    clock.now = 20.0
    memory.sort_out(_TOPIC, [raw(2)])
    assert pop_due(memory, 20.0) == [second]
    assert memory.note_empty(_TOPIC, 20.0 + REDELIVERY_SECONDS) == ([], [first])


def watching(*sources: Source) -> Memory:
    """Remember a finished message, and watch sources whose broker crashed at 0.0."""
    memory = build()
    for source in sources:
        memory.redeliveries.watch(source, 0.0, crashed=True)
    memory.redeliveries.remember_finished(_FIRST)
    return memory


def note(memory: Memory, count: int, redelivered: int, now: float) -> None:
    if memory.redeliveries.note_received(_TOPIC, count, redelivered, now):
        memory.redeliveries.end(_TOPIC)


_OVER = 10.0 + REDELIVERY_SECONDS
"""When the time of a watch is over whose first message came at 10.0."""


def is_recognized(memory: Memory, source: Source = _TOPIC) -> bool:
    known = is_known(memory, source, raw(1))
    memory.redeliveries.remember_finished(_FIRST)
    return known


def test_redeliveries_are_recognized_until_the_queue_is_empty_after_their_time() -> None:
    memory = watching(_TOPIC)

    note(memory, 100, 0, 10.0)
    note(memory, 100, 0, _OVER)
    memory.note_empty(_TOPIC, _OVER - 1)  # The broker may not have sent all of it.
    memory.note_empty(Source(), _OVER)
    assert is_recognized(memory)
    memory.note_empty(_TOPIC, _OVER)
    assert not is_recognized(memory)


def test_time_of_redeliveries_starts_with_the_first_message_of_the_new_connection() -> None:
    """A broker that has just started may bring nothing for longer than it redelivers."""
    memory = watching(_TOPIC)

    memory.note_empty(_TOPIC, REDELIVERY_SECONDS)
    memory.note_empty(_TOPIC, SILENT_SECONDS - 1)
    assert is_recognized(memory)
    note(memory, 1, 0, SILENT_SECONDS - 1)
    memory.note_empty(_TOPIC, SILENT_SECONDS - 1 + REDELIVERY_SECONDS - 1)
    assert is_recognized(memory)
    memory.note_empty(_TOPIC, SILENT_SECONDS - 1 + REDELIVERY_SECONDS)
    assert not is_recognized(memory)


def test_connection_that_brings_nothing_is_not_watched_indefinitely() -> None:
    memory = watching(_TOPIC)

    memory.note_empty(_TOPIC, SILENT_SECONDS)
    assert not is_recognized(memory)


def test_connection_that_is_lost_again_starts_the_time_again() -> None:
    memory = watching(_TOPIC)

    note(memory, 1, 0, 10.0)
    memory.redeliveries.watch(_TOPIC, _OVER - 1, crashed=True)
    memory.note_empty(_TOPIC, _OVER - 1 + REDELIVERY_SECONDS)
    assert _TOPIC in memory.redeliveries._watches


def test_redeliveries_are_recognized_for_each_source() -> None:
    other = Source()
    memory = watching(_TOPIC, other)

    memory.note_empty(_TOPIC, SILENT_SECONDS)
    assert is_recognized(memory, other)
    memory.note_empty(other, SILENT_SECONDS)
    assert not is_recognized(memory, other)


def test_redeliveries_are_recognized_for_their_time_after_the_last_one() -> None:
    memory = watching(_TOPIC)

    note(memory, 1, 0, 10.0)
    note(memory, 1, 1, 50.0)
    memory.note_empty(_TOPIC, _OVER)
    assert is_recognized(memory)
    memory.note_empty(_TOPIC, 50.0 + REDELIVERY_SECONDS)
    assert not is_recognized(memory)


def test_new_connection_of_a_source_that_never_lost_one_is_not_watched() -> None:
    memory, other = watching(_TOPIC), Source()

    memory.redeliveries.restart(_TOPIC, 500.0)
    memory.redeliveries.restart(other, 500.0)
    assert other not in memory.redeliveries._watches
    memory.note_empty(_TOPIC, 500.0 + SILENT_SECONDS - 1)
    assert is_recognized(memory)
    memory.note_empty(_TOPIC, 500.0 + SILENT_SECONDS)
    assert not is_recognized(memory)


def test_queue_that_is_never_empty_is_watched_for_a_number_of_messages() -> None:
    memory = watching(_TOPIC)

    note(memory, 30_000, 0, 10.0)
    note(memory, 30_000, 0, _OVER - 1)
    note(memory, 19_999, 0, _OVER)
    assert is_recognized(memory)
    note(memory, 1, 0, _OVER)
    assert not is_recognized(memory)


def copy(number: int, copy_of: str) -> Any:
    properties = {COPY_OF: copy_of} if copy_of else {}
    return SimpleNamespace(**{**vars(raw(number)), "properties": lambda: properties})


def test_copy_that_was_stored_twice_is_recognized() -> None:
    memory, retry = build(), Source(is_retry=True)
    first, again, second = copy(5, "1:0"), copy(5, "1:0"), copy(6, "1:0")
    others = [copy(7, "1:1"), copy(8, ""), copy(9, "")]

    assert sort_out(memory, retry, first) == ([first], [])
    # The same one comes again after a lost connection.
    assert sort_out(memory, retry, again, second, *others) == ([again, *others], [second])


def test_message_that_the_queue_of_the_client_holds_twice_is_new_once() -> None:
    """The client keeps what it received of several partitions when it reconnects."""
    memory = build()
    first, again, other = raw(1), raw(1), raw(2)

    new, done = sort_out(memory, _TOPIC, first, other, again)
    assert ([id(each) for each in new], done) == ([id(again), id(other)], [])


class Payload:
    """A payload which, unlike bytes, can be seen to be gone."""

    def __len__(self) -> int:
        return 1


def test_messages_that_went_back_to_the_broker_leave_no_payloads() -> None:
    memory = build()
    messages = [received(number, data=Payload()) for number in range(2)]
    payloads = [weakref.ref(message.data) for message in messages]
    keep(memory, messages[0], due=3600.0)
    memory.add([[messages[1]]])
    memory.close(_TOPIC)
    messages.clear()
    gc.collect()

    assert [payload() for payload in payloads] == [None, None]
    assert len(memory) == memory.queued == 0


def test_copies_from_the_retry_topic_have_room_of_their_own_and_a_bound() -> None:
    """They are received to make room in the retry topic, into which others have to be copied."""
    memory, retry = Memory(2, 1000), Source(is_retry=True)
    keep(memory, received(1), received(2))
    assert (memory.is_full(_TOPIC), memory.is_full(retry)) == (True, False)
    copies = [received(number, retry) for number in (5, 6)]
    for number, each in enumerate(copies):
        memory.delay(each, number)
    assert memory.is_full(retry)
    assert pop_due(memory, 0.5) == copies[:1]
    assert not memory.is_full(retry)


def test_memory_that_is_full_receives_redeliveries_and_ends_its_watch() -> None:
    clock = Clock()
    memory = Memory(2, 1000, clock)
    kept = [received(number) for number in range(4)]
    keep(memory, *kept[:2])
    assert memory.is_full(_TOPIC)
    clock.now = ASK_SECONDS + 1
    memory.redeliveries.ask(_TOPIC, clock.now)
    assert not memory.is_full(_TOPIC)
    keep(memory, *kept[2:])  # They come first.
    assert memory.is_full(_TOPIC)
    assert memory.note_full(_TOPIC, clock.now + ANSWER_SECONDS - 1) == []
    assert memory.note_full(_TOPIC, clock.now + ANSWER_SECONDS) == kept[:2]
    assert _TOPIC not in memory.redeliveries._watches


def test_messages_that_threads_have_or_will_take_next_need_no_room() -> None:
    memory = Memory(1, 1000)
    memory.add([[received(1)], [received(2)]])
    assert memory.take(block=False)

    assert not memory.is_full(_TOPIC)


def test_message_that_already_waits_does_not_overtake_one_that_fails() -> None:
    memory, first, second = build(), received(1, group="a"), received(2, group="a")
    memory.add([[first], [second]])
    unit = memory.take(block=False)
    assert unit == [first]
    assert memory.take(block=False) is None
    memory.fail(first, 5.0, 2)
    memory.release(unit)
    assert take(memory) == []
    assert pop_due(memory, 6.0) == [first, second]
