"""The states of a message in a consumer, and the only transitions between them. Pure.

A message that is done or given up leaves the memory of the consumer. If the broker delivers it
again, it is received as a new message, unless the broker has only lost its acknowledgment.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """State is what a consumer does with a message."""

    __hash__ = str.__hash__  # The hash of Enum is not native, and takes much longer.

    RECEIVED = "received"
    IN_HANDLER = "in handler"
    WAITING = "waiting"
    COPIED = "copied"
    DONE = "done"
    GIVEN_UP = "given up"


class Event(StrEnum):
    """Event is what moves a message to another state."""

    __hash__ = str.__hash__

    EARLY = "its delay in the retry topic is not over, or the broker must confirm it first"
    TAKEN = "a thread takes it"
    PUT_BACK = "an earlier message of its list must be handled first, or consumption is paused"
    SUCCEEDED = "the handler returns, or its payload is skipped"
    FAILED = "the handler fails and the message is retried in place, or the handler pauses"
    REPLACED = "the handler fails and the message is moved to the retry or dead-letter topic"
    DUE = "its delay is over, and the broker has confirmed the message"
    STORED = "the broker has stored its copy"
    DROPPED = "the broker does not deliver it again, or its consumer returns it to the broker"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.RECEIVED, Event.TAKEN): State.IN_HANDLER,
    (State.RECEIVED, Event.EARLY): State.WAITING,
    (State.RECEIVED, Event.DROPPED): State.GIVEN_UP,
    (State.IN_HANDLER, Event.SUCCEEDED): State.DONE,
    (State.IN_HANDLER, Event.FAILED): State.WAITING,
    (State.IN_HANDLER, Event.REPLACED): State.COPIED,
    (State.IN_HANDLER, Event.PUT_BACK): State.RECEIVED,
    (State.WAITING, Event.DUE): State.RECEIVED,
    (State.WAITING, Event.DROPPED): State.GIVEN_UP,
    (State.COPIED, Event.STORED): State.DONE,
    (State.COPIED, Event.DROPPED): State.GIVEN_UP,
}
"""The next state, by state and event; docs/explanation/consumer-states.md shows them."""
