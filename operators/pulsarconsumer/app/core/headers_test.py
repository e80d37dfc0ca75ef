"""The number of tries travels with the message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core import headers
from operators.pulsarconsumer.app.core.headers import (
    CopyOwner,
    Origin,
    build_dead_letter_properties,
    build_retry_properties,
    find_delay,
    find_owner,
    parse_origin,
    strip_own,
)

COPY = Origin("persistent://public/default/t-sub-RETRY", "9:9:-1:-1")
origins = st.builds(
    Origin,
    st.text(min_size=1),
    st.text(min_size=1),
    st.integers(-1, 10_000),
    st.integers(1, 10_000),
)
properties = st.dictionaries(st.text(min_size=1), st.text())


@given(origins, properties)
def test_copy_knows_its_origin_and_is_the_next_try(
    origin: Origin, original: dict[str, str]
) -> None:
    built = build_retry_properties(original, origin, "sub", 1.5)

    found = parse_origin(built, COPY)
    assert (found.topic, found.message_id) == (origin.topic, origin.message_id)
    assert found.schema_version == origin.schema_version
    assert found.attempt == origin.attempt + 1


@given(origins, properties)
def test_properties_of_the_producer_survive_each_try(
    origin: Origin, original: dict[str, str]
) -> None:
    once = build_retry_properties(original, origin, "sub", 1)
    twice = build_dead_letter_properties(once, origin, "sub", "Rejected", "no")

    assert strip_own(once) == strip_own(twice) == strip_own(original)


@given(properties, st.sampled_from([headers.TRIES, headers.SCHEMA_VERSION]), st.text())
def test_nonsense_in_a_copy_is_taken_for_nothing(
    original: dict[str, str], name: str, value: str
) -> None:
    found = parse_origin({**original, name: value}, COPY)

    assert found.attempt >= 1
    assert found.schema_version >= -1


def test_dead_letter_tells_what_happened_in_the_words_of_the_java_client() -> None:
    origin = Origin("persistent://public/default/t", "1:2:-1:0", 3, 5)

    built = build_dead_letter_properties(
        {"mine": "1", headers.DELAY: "2000"}, origin, "sub", "AttemptsExhausted", "x" * 9000
    )

    assert built == {
        "mine": "1",
        "REAL_TOPIC": "persistent://public/default/t",
        "REAL_SUBSCRIPTION": "sub",
        "ORIGIN_MESSAGE_ID": "1:2:-1:0",
        "RECONSUMETIMES": "5",
        "SCHEMA_VERSION": "3",
        "DEAD_LETTER_REASON": "AttemptsExhausted",
        "EXCEPTION": "x" * 500,
    }


@pytest.mark.parametrize(
    ("subscription", "topic", "owner"),
    [
        ("s", "persistent://public/default/t", CopyOwner.SELF),
        ("s", "t", CopyOwner.SELF),
        ("s", "persistent://public/default/t-partition-3", CopyOwner.SELF),  # By the Java client.
        ("s", "", CopyOwner.SELF),
        ("s", "other", CopyOwner.OTHER_TOPIC),
        ("other", "t", CopyOwner.OTHER_SUBSCRIPTION),
        ("other", "other", CopyOwner.OTHER_SUBSCRIPTION),
    ],
)
def test_copy_belongs_to_the_consumer_of_its_topic_and_subscription(
    subscription: str, topic: str, owner: CopyOwner
) -> None:
    origin = {headers.REAL_TOPIC: topic, headers.REAL_SUBSCRIPTION: subscription}

    assert find_owner(origin, "s", {"persistent://public/default/t"}.__contains__) is owner


def test_copy_that_someone_sent_to_the_retry_topic_is_handled() -> None:
    assert find_owner({}, "s", lambda _: False) is CopyOwner.SELF


def test_copy_is_due_after_its_delay() -> None:
    assert find_delay({headers.DELAY: "1500"}, 1000) == 2.5
    assert find_delay({headers.DELAY: "x"}, 1000) == find_delay({}, 1000) == 0.0
