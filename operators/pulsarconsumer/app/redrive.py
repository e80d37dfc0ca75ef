"""Send dead letters back: `python -m operators.pulsarconsumer.app.redrive [--limit N]`.

The command uses the environment variables of the app, so it runs in the container of a consumer.
With strategy RetryTopic, dead letters go to the retry topic, which only this subscription reads.
Otherwise they go to the topic they came from, and all its subscriptions receive them.

A dead letter is acknowledged after the broker has stored its copy. If the command is interrupted,
run it again: no dead letter is lost. The client sends acknowledgments together, so after SIGKILL or
a lost connection the dead letters of the last moment are sent twice.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulsar

from libs.common.logs import configure_logs
from operators.pulsarconsumer.app.client import CredentialsMissing
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.core import headers
from operators.pulsarconsumer.app.core.retry import Strategy
from operators.pulsarconsumer.app.received import RawMessage
from operators.pulsarconsumer.app.settings import Settings, SettingsInvalid, Switch, load_settings

_WAIT_SECONDS: Final = 10.0
"""Time to wait for the next dead letter, which another consumer may hold."""


@dataclass(slots=True)
class Result:
    """The result of a redrive.

    Attributes:
        moved: Number of dead letters that were sent back.
        left: Number of dead letters that were not, by the reason.
    """

    moved: int
    left: dict[str, int]


def redrive(settings: Settings, limit: int | None = None) -> Result:
    """Send the current dead letters back, and return the result.

    Args:
        settings: Settings of the app, with a dead-letter topic.
        limit: Maximum number of dead letters; None for all.
    """
    connection = Connection(settings)
    result = Result(0, {})
    try:
        for topic in connection.client().get_topic_partitions(settings.dead_letter_topic_name):
            _redrive_partition(settings, connection, topic, limit, result)
        if former := settings.former_dead_letter_topic_name:
            _redrive_former(settings, connection, former, limit, result)
    finally:
        connection.renew()
    return result


def _redrive_former(
    settings: Settings, connection: Connection, topic: str, limit: int | None, result: Result
) -> None:
    """Send back what an earlier release moved to its default dead-letter topic."""
    try:
        partitions = connection.client().get_topic_partitions(topic)
        for each in partitions:
            _redrive_partition(settings, connection, each, limit, result)
    except (pulsar.TopicNotFound, pulsar.AuthorizationError):
        return  # There is no such topic, or it belongs to others.


def _redrive_partition(
    settings: Settings, connection: Connection, topic: str, limit: int | None, result: Result
) -> None:
    consumer = connection.client().subscribe(
        topic,
        settings.dead_letter_subscription or settings.subscription_name,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        crypto_key_reader=connection.build_key_reader(),
        # Needed to send back only a part of a batch.
        batch_index_ack_enabled=True,
    )
    try:
        # Stop at the current last message: dead letters that fail again come after it, and must not
        # be sent back in an endless loop.
        last = _position(consumer.get_last_message_id())
        while limit is None or result.moved < limit:
            try:
                message = consumer.receive(round(_WAIT_SECONDS * 1000))
            except pulsar.Timeout:
                return
            here = _position(message.message_id())
            if here > last:
                return
            target, problem = choose_target(settings, message.properties())
            if problem:
                result.left[problem] = result.left.get(problem, 0) + 1
            else:
                _send_back(settings, connection, target, message)
                consumer.acknowledge(message)
                result.moved += 1
            if here == last:
                return
    finally:
        consumer.close()


def choose_target(settings: Settings, properties: Mapping[str, str]) -> tuple[str, str]:
    """Return the topic for a dead letter, or why it cannot be sent back.

    Args:
        settings: Settings of the app.
        properties: Properties of the dead letter; any producer of the dead-letter topic can set
            them, so they are not trusted.
    """
    subscription = properties.get(headers.REAL_SUBSCRIPTION, settings.subscription_name)
    if subscription != settings.subscription_name:
        return "", f"{headers.REAL_SUBSCRIPTION} is {subscription}, another subscription"
    topic = properties.get(headers.REAL_TOPIC, "")
    to_retry = settings.retry_strategy is Strategy.RETRY_TOPIC
    if not settings.consumes(topic) and (topic or not to_retry):
        return "", f"{headers.REAL_TOPIC} is {topic or 'not set'}, which is not consumed"
    if to_retry:
        return settings.retry_topic_name, ""
    if headers.SCHEMA_VERSION in properties:
        return "", "the schema version of the message is kept with retry strategy RetryTopic only"
    return topic, ""


def _send_back(settings: Settings, connection: Connection, topic: str, message: RawMessage) -> None:
    to_retry = settings.retry_strategy is Strategy.RETRY_TOPIC
    properties = headers.build_redrive_properties(message.properties(), keep_origin=to_retry)
    connection.send_copy(topic, message, properties)


def _position(message: pulsar.MessageId) -> tuple[int, int, int]:
    return message.ledger_id(), message.entry_id(), message.batch_index()


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Send dead letters back, print how many, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="redrive", description="Send the dead letters of this consumer back."
    )
    parser.add_argument("--limit", type=int, help="how many at most [default: all]")
    options = parser.parse_args(argv)
    try:
        settings = load_settings(environ)
        if settings.dead_letter is not Switch.ENABLED:
            raise SettingsInvalid(["PULSAR_CONSUMER_DEAD_LETTER: is not Enabled"])
        result = redrive(settings, options.limit)
    except SettingsInvalid as err:
        sys.stderr.write(f"{err}\n")
        return 2
    except (CredentialsMissing, pulsar.PulsarException) as err:
        sys.stderr.write(f"Cannot send dead letters back: {type(err).__name__}: {err}\n")
        return 1
    sys.stdout.write(f"Sent {result.moved} messages of {settings.dead_letter_topic_name} back\n")
    for problem, count in result.left.items():
        sys.stderr.write(f"Left {count} messages: {problem}\n")
    return 1 if result.left else 0


if __name__ == "__main__":
    configure_logs()
    sys.exit(main(sys.argv[1:]))
