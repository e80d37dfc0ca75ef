"""Call plain and async handlers in the same way, in consumers and in tests."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any


def is_class_of_handlers(found: object) -> bool:
    """Return whether an object is a class whose instances can be called."""
    return inspect.isclass(found) and any("__call__" in base.__dict__ for base in found.__mro__)


class HandlerLoop:
    """An event loop in its own thread, so that a handler that blocks it delays nothing else.

    The thread starts with the first coroutine.
    """

    def __init__(self) -> None:
        """Start no thread yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, object], seconds: float | None = None) -> object:
        """Run a coroutine and return its result.

        Raises:
            TimeoutError: The coroutine did not end in time.
        """
        future = asyncio.run_coroutine_threadsafe(_guard(coroutine), self._find())
        result, error = future.result(seconds)
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the thread; no coroutine may run."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _find(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                self._thread = threading.Thread(target=run, name="handler-loop", daemon=True)
                self._thread.start()
            return self._loop


async def _guard(
    coroutine: Coroutine[Any, Any, object],
) -> tuple[object, BaseException | None]:
    """Return the result of a coroutine, or its error."""
    try:
        return await coroutine, None
    except (SystemExit, KeyboardInterrupt) as err:
        # These errors would end the loop, and the caller would wait indefinitely.
        return None, err


def adapt(handler: Callable[[Any], object], loop: HandlerLoop) -> Callable[[Any], object]:
    """Return a plain function that calls a handler; any thread may call it.

    Args:
        handler: A plain or async handler.
        loop: The loop that runs async handlers.
    """
    if not _is_async(handler):
        return handler

    def call(argument: Any) -> object:
        coroutine: Coroutine[Any, Any, object] = handler(argument)  # type: ignore[assignment]  # As _is_async said.
        return loop.run(coroutine)

    return call


def call_hook(
    handler: Callable[[Any], object], name: str, loop: HandlerLoop, seconds: float | None = None
) -> None:
    """Call the hook `open` or `close` of a handler, if the handler has it.

    Args:
        handler: An instance of a class. A function has no hooks.
        name: Name of the hook.
        loop: The loop that runs async handlers.
        seconds: Time limit for an async hook.
    """
    # A function may have attributes as well, but none that are meant as hooks.
    hook = None if inspect.isroutine(handler) else getattr(handler, name, None)
    if not callable(hook):
        return
    result = hook()
    if inspect.iscoroutine(result):
        loop.run(result, seconds)


def _is_async(handler: Callable[[Any], object]) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004  # An object's method may be async.
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
