"""Convert the result of a handler to messages for the output topic."""

from __future__ import annotations

from collections.abc import Iterator

from slipway_handler.message import Output


def read_outputs(result: object) -> list[Output]:
    """Return the messages that a handler returned.

    Args:
        result: None, bytes, a text, an Output, or a list or tuple of these.

    Raises:
        TypeError: The result is of another type. Publish nothing in this case.
    """
    return list(_walk(result))


def _walk(result: object) -> Iterator[Output]:
    match result:
        case None:
            return
        case Output():
            yield result
        case bytes() | str():
            yield Output(result)
        case list() | tuple():
            for each in result:
                yield from _walk(each)
        case _:
            raise TypeError(
                f"the handler returned {type(result).__name__}, which cannot be published; return "
                "bytes, str, Output or a list of these"
            )
