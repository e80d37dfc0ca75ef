"""Where dead letters are sent back to; anyone who may produce there chooses their properties."""

from __future__ import annotations

import pytest

from operators.pulsarconsumer.app.core.headers import build_redrive_properties
from operators.pulsarconsumer.app.harness import build_environment
from operators.pulsarconsumer.app.redrive import choose_target, main
from operators.pulsarconsumer.app.settings import load_settings

TOPIC = "persistent://public/default/orders"


def choose(properties: dict[str, str], **values: object) -> tuple[str, str]:
    settings = load_settings(
        build_environment("pulsar://a", TOPIC, dead_letter="Enabled", **values)
    )
    return choose_target(settings, properties)


def test_dead_letter_of_this_consumer_goes_to_the_retry_topic() -> None:
    own = {"REAL_TOPIC": TOPIC, "REAL_SUBSCRIPTION": "sub", "SCHEMA_VERSION": "2"}

    assert choose(own, retry_strategy="RetryTopic") == (f"{TOPIC}-sub-RETRY", "")
    assert choose({}, retry_strategy="RetryTopic") == (f"{TOPIC}-sub-RETRY", "")


@pytest.mark.parametrize("strategy", ["RetryTopic", "NegativeAck"])
@pytest.mark.parametrize(
    "other",
    [
        {"REAL_TOPIC": "persistent://other/b/c", "REAL_SUBSCRIPTION": "sub"},
        {"REAL_TOPIC": TOPIC, "REAL_SUBSCRIPTION": "other"},
    ],
)
def test_dead_letter_of_another_consumer_is_left(strategy: str, other: dict[str, str]) -> None:
    assert choose(other, retry_strategy=strategy)[0] == ""


def test_dead_letter_goes_only_to_a_topic_that_is_consumed() -> None:
    assert choose({"REAL_TOPIC": TOPIC}) == (TOPIC, "")
    assert choose({"REAL_TOPIC": "persistent://other/b/c"})[0] == ""
    assert choose({}) == ("", "REAL_TOPIC is not set, which is not consumed")
    pattern = {"topic_pattern": "persistent://a/b/c-.*"}
    settings = load_settings(build_environment("pulsar://a", "", dead_letter="Enabled", **pattern))
    assert choose_target(settings, {"REAL_TOPIC": "persistent://a/b/c-1"})[1] == ""
    assert choose_target(settings, {"REAL_TOPIC": "persistent://a/x/c-1"})[0] == ""


def test_dead_letter_with_a_schema_version_is_not_sent_without_it() -> None:
    assert choose({"REAL_TOPIC": TOPIC, "SCHEMA_VERSION": "2"})[0] == ""


def test_attempts_are_counted_from_the_start() -> None:
    properties = {
        "own": "a",
        "REAL_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": "1:2:-1:0",
        "REAL_SUBSCRIPTION": "sub",
        "RECONSUMETIMES": "5",
        "EXCEPTION": "x",
        "DEAD_LETTER_REASON": "Rejected",
    }

    assert build_redrive_properties(properties, keep_origin=False) == {"own": "a"}
    assert build_redrive_properties(properties, keep_origin=True) == {
        "own": "a",
        "REAL_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": "1:2:-1:0",
        "REAL_SUBSCRIPTION": "sub",
    }


def test_consumer_without_dead_letters_has_none_to_send_back() -> None:
    assert main([], build_environment("pulsar://a", TOPIC)) == 2
