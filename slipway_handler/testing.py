"""Run a handler without a broker, to test it.

from slipway_handler.testing import build_message, drive

def test_order_without_id_is_rejected() -> None:
run = drive(handle, [build_message(b'{}', value={})])
assert run.results == ["rejected"]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from slipway_handler.calls import HandlerLoop, adapt, call_hook, is_class_of_handlers
from slipway_handler.message import Message, Output, PartialFailure, Pause, Reject
from slipway_handler.outputs import read_outputs

_TOPIC = "persistent://public/default/test"
_numbers = itertools.count()


class Result(str, Enum):
    """What becomes of a message."""

    ACKNOWLEDGED = "acknowledged"
    """It was handled."""
    RETRIED = "retried"
    """It failed, and is handled again after a delay while it has attempts left."""
    REJECTED = "rejected"
    """It is moved to the dead-letter topic immediately."""
    PAUSED = "paused"
    """It is handled again after a pause, which does not count as an attempt."""


@dataclass(frozen=True)
class Outcome:
    """What became of one message.

    Attributes:
        message: The message.
        result: What becomes of it.
        error: What the handler raised; None if it returned.
    """

    message: Message
    result: Result
    error: BaseException | None = None


@dataclass(frozen=True)
class Run:
    """What a handler did.

    Attributes:
        outcomes: What became of each message, in the order of the messages.
        outputs: The messages that it published.
    """

    outcomes: tuple[Outcome, ...]
    outputs: tuple[Output, ...] = field(default=())

    @property
    def results(self) -> list[str]:
        """The results, as strings."""
        return [each.result.value for each in self.outcomes]


def build_message(data: bytes = b"", value: object = None, **fields: Any) -> Message:
    """Build a message.

    Args:
        data: The payload.
        value: The payload by the schema; None means the payload itself.
        fields: Further fields of the message, such as `key` or `attempt`.
    """
    chosen = {"topic": _TOPIC, "message_id": f"1:{next(_numbers)}:-1:-1", **fields}
    return Message(data, data if value is None else value, **chosen)


def drive(
    handler: Callable[..., object],
    messages: Sequence[Message],
    *,
    batch: bool = False,
    output: bool = False,
) -> Run:
    """Call a handler for messages as a consumer does, each message once.

    A class is instantiated; `open` is called before, and `close` after it. What these raise is
    raised here.

    Args:
        handler: The function, instance or class that spec.handler names, plain or async.
        messages: The messages, in order.
        batch: Whether it gets all of them in one list, as with `batch: {delivery: Whole}`.
        output: Whether what it returns is published, as with spec.output.
    """
    called: Callable[[Any], object] = handler() if is_class_of_handlers(handler) else handler  # type: ignore[assignment]
    loop = HandlerLoop()
    driver = _Driver(adapt(called, loop), output=output)
    try:
        call_hook(called, "open", loop)
        outcomes = driver.handle_list(messages) if batch else driver.handle_each(messages)
        call_hook(called, "close", loop)
    finally:
        loop.close()
    return Run(tuple(outcomes), tuple(driver.outputs))


class _Driver:
    def __init__(self, handler: Callable[[Any], object], *, output: bool) -> None:
        self._handler, self._output = handler, output
        self.outputs: list[Output] = []

    def handle_each(self, messages: Sequence[Message], *, whole: bool = False) -> list[Outcome]:
        return [
            _judge(message, self._call([message] if whole else message)) for message in messages
        ]

    def handle_list(self, messages: Sequence[Message]) -> list[Outcome]:
        if len(messages) == 1:
            return self.handle_each(messages, whole=True)
        error = self._call(list(messages))
        if error is None:
            return [_judge(message, None) for message in messages]
        if isinstance(error, (PartialFailure, Pause)):
            failed = messages if isinstance(error, Pause) else error.failed
            named = {id(message) for message in failed}
            return [
                _judge(message, error if id(message) in named else None) for message in messages
            ]
        # One of them may be the only one that fails, so each is handled by itself.
        return self.handle_each(messages, whole=True)

    def _call(self, argument: object) -> BaseException | None:
        try:
            result = self._handler(argument)
            if self._output:
                self.outputs += read_outputs(result)
        except (Exception, SystemExit) as err:  # noqa: BLE001  # Whatever it raises, it failed.
            return err
        return None


def _judge(message: Message, error: BaseException | None) -> Outcome:
    if error is None:
        return Outcome(message, Result.ACKNOWLEDGED)
    if isinstance(error, Pause):
        return Outcome(message, Result.PAUSED, error)
    return Outcome(message, Result.REJECTED if isinstance(error, Reject) else Result.RETRIED, error)
