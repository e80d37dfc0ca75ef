"""Messages as the client has them: each field is read when it is first asked for.

Each field is a call into the client. A handler looks at one or two of them, and a message that is
handled and acknowledged needs none of the rest; to read them all takes longer than its receipt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property

import pulsar

from operators.pulsarconsumer.app.core.headers import Origin, parse_origin, strip_own
from operators.pulsarconsumer.app.core.message import Message
from operators.pulsarconsumer.app.core.topics import without_partition
from operators.pulsarconsumer.app.schemas import version_of
from operators.pulsarconsumer.app.session import Source

type CountTries = Callable[[str, str, int], int]
"""Returns which try a message is, from its topic, its id and the broker's count."""


class Received(Message):
    """One message that is neither acknowledged nor given back.

    Attributes:
        source: The consumer that received it.
        raw: The message of the client.
    """

    # What is read is kept in the instance's dictionary, which the slots of Message give way to.
    source: Source
    raw: pulsar.Message
    _count_tries: CountTries

    @cached_property
    def origin(self) -> Origin:
        """Where it was first sent, and which try this is."""
        raw = self.raw
        # The client shows (ledger,entry,partition,batch), in one call instead of four.
        shown = str(raw.message_id())[1:-1].replace(",", ":")
        topic = without_partition(raw.topic_name())
        if self.source.is_retry:
            return parse_origin(raw.properties(), Origin(topic, shown))
        tries = self._count_tries(topic, shown, raw.redelivery_count())
        return Origin(topic, shown, version_of(raw), tries)

    @cached_property
    def data(self) -> bytes:
        """The payload as it was sent."""
        data: bytes = self.raw.data()
        return data

    @cached_property
    def value(self) -> object:
        """The payload, until `set_value`."""
        return self.data

    @cached_property
    def topic(self) -> str:
        """The topic that it was first sent to."""
        return self.origin.topic

    @cached_property
    def message_id(self) -> str:
        """Its id in that topic."""
        return self.origin.message_id

    @cached_property
    def key(self) -> str:
        """The partition key."""
        key: str = self.raw.partition_key()
        return key

    @cached_property
    def ordering_key(self) -> str:
        """What Key_Shared goes by in place of the key."""
        key: str = self.raw.ordering_key()
        return key

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties that the producer set."""
        properties: dict[str, str] = self.raw.properties()
        return strip_own(properties) if self.source.is_retry else properties

    @cached_property
    def publish_time(self) -> int:
        """When it was sent, in milliseconds since 1970."""
        time: int = self.raw.publish_timestamp()
        return time

    @cached_property
    def event_time(self) -> int:
        """What the producer says when it happened."""
        time: int = self.raw.event_timestamp()
        return time

    @cached_property
    def attempt(self) -> int:
        """Which try this is."""
        return self.origin.attempt

    def read(self) -> None:
        """Read what a line of the log needs, in one go: quicker than one after the other."""
        raw, origin = self.raw, self.origin
        self.__dict__.update(
            data=raw.data(),
            topic=origin.topic,
            message_id=origin.message_id,
            key=raw.partition_key(),
            publish_time=raw.publish_timestamp(),
            attempt=origin.attempt,
        )

    def __reduce__(self) -> tuple[type[Message], tuple[object, ...]]:
        """Be copied, and sent to other processes, as a message with all its fields."""
        return Message, tuple(getattr(self, field.name) for field in fields(Message))


def receive_message(source: Source, raw: pulsar.Message, count_tries: CountTries) -> Received:
    """Return what a source received; its value is the payload until `set_value`."""
    message = object.__new__(Received)
    message.__dict__.update(source=source, raw=raw, _count_tries=count_tries)
    return message


def set_value(message: Received, value: object) -> None:
    """Set the value that the schema gave a message, before anybody else has seen it."""
    message.__dict__["value"] = value
