"""The types that a message handler of a PulsarConsumer uses.

    from slipway_handler import Message, Reject

    def handle(message: Message) -> None:
        if not message.data:
            raise Reject("empty")

`slipway_handler.testing` runs a handler without a broker.
"""

from slipway_handler.message import (
    Message,
    Output,
    PartialFailure,
    Pause,
    Reject,
    RetryLater,
)

__version__ = "0.1.0"
__all__ = ["Message", "Output", "PartialFailure", "Pause", "Reject", "RetryLater"]
