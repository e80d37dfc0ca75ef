"""Checks whether the consumer app can run a spec, before the operator replaces pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.app.settings.load import PREFIX, SettingsInvalid, load_settings
from operators.pulsarconsumer.resources.environment import render_variables

_FIELDS: Final[Mapping[str, str]] = {
    "SERVER": "spec.serverAddress",
    "TOPIC": "spec.topic",
    "TOPICS": "spec.topics",
    "TOPIC_PATTERN": "spec.topicPattern",
    "SUBSCRIPTION_NAME": "spec.subscriptionName",
    "AUTH_TYPE": "spec.authentication.type",
    "RETRY_TOPIC": "spec.retry.topic",
    "DEAD_LETTER_TOPIC": "spec.deadLetter.topic",
    "ACK_TIMEOUT_SECONDS": "spec.consumption.ackTimeoutSeconds",
    "OUTPUT_TOPIC": "spec.output.topic",
    "HANDLER": "spec.handler",
    "HANDLER_BATCH": "spec.consumption.batch.delivery",
}
"""Fields of the spec by their environment variables, for messages."""
_VARIABLE: Final = re.compile(rf"\b{PREFIX}([A-Z0-9_]+)\b")


def find_fault(consumer: PulsarConsumer) -> str:
    """Return why the app would refuse to start with a spec; empty if it would not."""
    variables = render_variables(consumer)
    if consumer.spec.image is not None:
        # The image may set the handler itself.
        variables.setdefault("HANDLER", "image:handler")
    try:
        load_settings({f"{PREFIX}{name}": value for name, value in variables.items()})
    except SettingsInvalid as err:
        return "; ".join(_VARIABLE.sub(_name_field, fault) for fault in err.faults)
    return ""


def _name_field(found: re.Match[str]) -> str:
    return _FIELDS.get(found[1], found[0])
