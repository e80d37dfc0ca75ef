"""The consumer app: receives messages of Pulsar topics, has them handled, and acks what was.

What a handler needs is here; it is named by PULSAR_CONSUMER_HANDLER as `module:function`:

    from operators.pulsarconsumer.app import Message, Reject

    def handle(message: Message) -> None:
        if not message.data:
            raise Reject("empty")
"""

from operators.pulsarconsumer.app.core.message import (
    Message,
    Output,
    PartialFailure,
    Pause,
    Reject,
    RetryLater,
)

__all__ = ["Message", "Output", "PartialFailure", "Pause", "Reject", "RetryLater"]
