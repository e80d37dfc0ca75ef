"""Send sample messages: `python -m operators.pulsarconsumer.app.producer`.

PULSAR_SERVER, PULSAR_TOPIC and PULSAR_MESSAGE set the broker, the topic and the text. PULSAR_COUNT
sets the number of messages, each with its number after the text. Credentials are set as for the
app, for example by PULSAR_TOKEN_FILE.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import pulsar
from pydantic import Field

from operators.pulsarconsumer.app.client import CredentialsMissing, build_client
from operators.pulsarconsumer.app.settings import ConnectionSettings, SettingsInvalid, load


class ProducerSettings(ConnectionSettings):
    """What to send, and where to."""

    topic: str = Field(min_length=1)
    """topic is where the messages go."""

    message: str
    """message is the text that is sent."""

    count: int = Field(default=1, ge=1)
    """count is how many messages are sent; above 1 each has its number after the text."""


def send_messages(settings: ProducerSettings) -> None:
    """Send the messages, and return after the broker has stored them."""
    client = build_client(settings)
    try:
        producer = client.create_producer(settings.topic)
        for number in range(settings.count):
            text = f"{settings.message} {number}" if settings.count > 1 else settings.message
            producer.send(text.encode())
        producer.close()
    finally:
        client.close()


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Send the messages of the environment, and return the exit status."""
    try:
        settings = load(ProducerSettings, environ, "PULSAR_")
        send_messages(settings)
    except SettingsInvalid as err:
        sys.stderr.write(f"{err}\n")
        return 2
    except (CredentialsMissing, pulsar.PulsarException) as err:
        sys.stderr.write(f"Cannot send: {type(err).__name__}: {err}\n")
        return 1
    sys.stdout.write(f"Sent {settings.count} of {settings.count} messages to {settings.topic}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
