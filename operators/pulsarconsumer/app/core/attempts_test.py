"""Failed attempts, counted over all consumers of a subscription."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core.attempts import AttemptRecord, AttemptTable, parse_record

TOPIC = "t-ATTEMPTS"
KEEP_SECONDS = 1000.0


class Stored:
    """A table that reads records with ascending positions, all published at the same time."""

    def __init__(self, records: Sequence[AttemptRecord] = (), most: int = 100) -> None:
        self.table = AttemptTable(KEEP_SECONDS, most)
        self.next = 0
        for record in records:
            self.read(record)

    def read(self, record: AttemptRecord, published: float = 0.0, *, is_new: bool = True) -> None:
        parsed = parse_record(record.render())
        assert parsed == record
        self.table.apply(parsed, TOPIC, self.next, published, is_new=is_new)
        self.next += 1

    def unneeded(self, now: float = 0.0) -> int | None:
        """Return the position up to which no record is needed."""
        found: int | None = self.table.pop_unneeded(now).get(TOPIC)
        return found


def failed(consumer: str, **attempts: int) -> AttemptRecord:
    return AttemptRecord(consumer, attempts)


def test_attempts_of_all_consumers_are_added() -> None:
    stored = Stored([failed("a", x=1), failed("b", x=1), failed("a", x=2)])

    assert stored.table.count("x") == 3
    assert stored.table.count("y") == 0


@given(st.permutations([failed("a", x=1), failed("a", x=2), failed("b", x=1, y=1)]), st.data())
def test_order_and_duplicates_of_records_do_not_matter(
    records: list[AttemptRecord], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(records)))
    table = Stored([*records, *again]).table

    assert (table.count("x"), table.count("y")) == (3, 1)


def test_own_attempts_count_before_and_after_their_record_is_read() -> None:
    stored = Stored([failed("b", x=1)])

    assert stored.table.add("a", "x") == 1
    assert stored.table.add("a", "x") == 2
    stored.read(failed("a", x=1))  # It was published before the second attempt failed.
    assert stored.table.count("x") == 3
    stored.read(failed("a", x=2))
    assert stored.table.count("x") == 3


def test_acknowledged_message_starts_again_and_is_not_recognized() -> None:
    stored = Stored([failed("a", x=2), AttemptRecord("b", acknowledged=("x",))])

    assert stored.table.count("x") == 0
    assert not stored.table.is_dead_lettered("x")
    assert stored.table.is_empty


def test_dead_letter_is_recognized_for_some_time() -> None:
    stored = Stored([failed("a", x=2), AttemptRecord("b", dead_lettered=("x",))])

    assert stored.table.count("x") == 0
    assert stored.table.is_dead_lettered("x")
    stored.table.pop_unneeded(599.0)
    assert stored.table.is_dead_lettered("x")
    stored.table.pop_unneeded(601.0)
    assert not stored.table.is_dead_lettered("x")
    assert stored.table.is_empty


def test_old_dead_letter_is_not_recognized_when_the_subscription_is_moved_back() -> None:
    stored = Stored()
    stored.read(AttemptRecord("a", dead_lettered=("x",)), is_new=False)

    assert not stored.table.is_dead_lettered("x")


def test_records_are_needed_until_a_later_record_or_the_result_replaces_them() -> None:
    stored = Stored([failed("a", x=1, y=1), failed("a", x=2)])
    assert stored.unneeded() is None

    stored.read(AttemptRecord("b", acknowledged=("y",)))
    assert stored.unneeded() == 0
    stored.read(AttemptRecord("b", dead_lettered=("x",)))
    assert stored.unneeded() == 3
    assert stored.unneeded() is None, "it was returned before"


def test_record_of_a_message_that_is_never_finished_is_dropped_after_some_time() -> None:
    stored = Stored([failed("a", x=1)])
    stored.read(failed("a", y=1), published=900.0)

    assert stored.unneeded(1001.0) == 0
    assert (stored.table.count("x"), stored.table.count("y")) == (0, 1)


def test_record_that_is_needed_for_long_keeps_no_others_in_memory() -> None:
    stored = Stored([failed("a", x=1)], most=10)
    for number in range(1000):
        stored.read(failed("b", **{f"y-{number}": 1}))
        stored.read(AttemptRecord("b", acknowledged=(f"y-{number}",)))

    assert len(stored.table._stored[TOPIC]) <= 42
    stored.read(AttemptRecord("a", acknowledged=("x",)))
    assert stored.unneeded() == 2001
    assert not stored.table._stored[TOPIC]


def test_number_of_messages_is_bounded() -> None:
    stored = Stored(
        [failed("a", w=1), failed("a", x=1), failed("b", w=1), failed("a", y=1)], most=2
    )

    assert [stored.table.count(each) for each in ("w", "x", "y")] == [2, 0, 1]
    assert stored.unneeded() is None
    for number in range(3):
        stored.table.note_dead_letter(f"dead-{number}", 0.0)
    assert [stored.table.is_dead_lettered(f"dead-{number}") for number in range(3)] == [
        False,
        True,
        True,
    ]


def test_records_that_are_read_again_are_counted_once() -> None:
    records = [failed("a", x=1), failed("a", x=2)]
    stored = Stored(records)
    stored.table.restart()
    stored.next = 0
    for record in records:
        stored.read(record)

    assert stored.table.count("x") == 2
    assert stored.unneeded() == 0


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"consumer":"a"}',
        b'{"consumer":"a","attempts":{"x":"many"},"acknowledged":[],"deadLettered":[]}',
        b'{"consumer":"a","attempts":[],"acknowledged":[],"deadLettered":[]}',
        b'{"consumer":"a","attempts":{},"acknowledged":1,"deadLettered":[]}',
    ],
)
def test_other_payloads_are_ignored(payload: bytes) -> None:
    assert parse_record(payload) is None
