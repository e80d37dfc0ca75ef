"""Test a handler without a broker.

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
    """The result of handling a message."""

    ACKNOWLEDGED = "acknowledged"
    """The handler returned."""
    RETRIED = "retried"
    """The handler failed; the message is handled again after a delay while attempts are left."""
    REJECTED = "rejected"
    """The message is moved to the dead-letter topic immediately."""
    PAUSED = "paused"
    """The message is handled again after a pause; the call does not count as an attempt."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one message.

    Attributes:
        error: The exception of the handler; None if it returned.
    """

    message: Message
    result: Result
    error: BaseException | None = None


@dataclass(frozen=True)
class Run:
    """The outcome of a call of `drive`.

    Attributes:
        outcomes: One outcome per message, in the order of the messages.
        outputs: The messages that the handler published.
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
        fields: Other fields of the message, such as `key` or `attempt`.
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

    A class is instantiated. `open` is called before the first message and `close` after the last;
    their exceptions propagate.

    Args:
        handler: The function, instance or class that spec.handler names, plain or async.
        messages: The messages, in order.
        batch: Whether the handler receives all messages in one list, as with spec.batch.
        output: Whether the results are published, as with spec.output.
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
            _evaluate(message, self._call([message] if whole else message)) for message in messages
        ]

    def handle_list(self, messages: Sequence[Message]) -> list[Outcome]:
        if len(messages) == 1:
            return self.handle_each(messages, whole=True)
        error = self._call(list(messages))
        if error is None:
            return [_evaluate(message, None) for message in messages]
        if isinstance(error, (PartialFailure, Pause)):
            failed = messages if isinstance(error, Pause) else error.failed
            named = {id(message) for message in failed}
            return [
                _evaluate(message, error if id(message) in named else None) for message in messages
            ]
        # Only one of them may be faulty, so each message is handled separately.
        return self.handle_each(messages, whole=True)

    def _call(self, argument: object) -> BaseException | None:
        try:
            result = self._handler(argument)
            if self._output:
                self.outputs += read_outputs(result)
        except (Exception, SystemExit) as err:  # noqa: BLE001  # Any exception means failure.
            return err
        return None


def _evaluate(message: Message, error: BaseException | None) -> Outcome:
    if error is None:
        return Outcome(message, Result.ACKNOWLEDGED)
    if isinstance(error, Pause):
        return Outcome(message, Result.PAUSED, error)
    return Outcome(message, Result.REJECTED if isinstance(error, Reject) else Result.RETRIED, error)
