"""The number of tries travels with the message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core import headers
from operators.pulsarconsumer.app.core.headers import (
    Origin,
    build_dead_letter_properties,
    build_retry_properties,
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
