"""The handler of the user: found by its name, called the same way whether it is async or not."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import inspect
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from operators.pulsarconsumer.app.core.message import Message

type Handler = Callable[[Any], object]
"""Takes a Message, or a list of them; what it returns is ignored."""
_HOOK_SECONDS: Final = 60.0
"""Time that `open` of a handler may take."""


log = structlog.get_logger("handler")


class HandlerInvalid(Exception):
    """The handler cannot be loaded; the message says why and what to do."""


def load_handler(name: str) -> Handler:
    """Return the function that `module:function` names, or an instance of the class.

    Raises:
        HandlerInvalid: There is none, or it does not take one argument.
    """
    if not name:
        return accept
    module_name, _, path = name.partition(":")
    found: object = _import(module_name, name)
    for part in path.split("."):
        parent = found
        found = getattr(parent, part, None)
        if found is None:
            raise HandlerInvalid(_describe_absence(name, parent, part))
    if inspect.isclass(found) and any("__call__" in base.__dict__ for base in found.__mro__):
        found = _instantiate(name, found)
    if not callable(found):
        raise HandlerInvalid(f"Handler {name}: is a {type(found).__name__}, which is not callable")
    _check_signature(name, found)
    return found


def accept(_message: Message) -> None:
    """Do nothing: the line in the log is all."""


class HandlerLoop:
    """An event loop in a thread of its own: a handler that blocks it holds up no probe.

    The thread starts with the first coroutine.
    """

    def __init__(self) -> None:
        """Prepare."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, object], seconds: float | None = None) -> object:
        """Run a coroutine to its end.

        Raises:
            TimeoutError: It did not end in time.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self._find()).result(seconds)

    def _find(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="handler-loop", daemon=True).start()
            return self._loop


def adapt(handler: Handler, loop: HandlerLoop) -> Handler:
    """Return a handler that can be called from any thread and has ended when it returns.

    Args:
        handler: Plain or async.
        loop: Where an async one runs.
    """
    if not _is_async(handler):
        return handler

    def call(argument: Any) -> object:
        coroutine: Coroutine[Any, Any, object] = handler(argument)  # type: ignore[assignment]  # As _is_async said.
        return loop.run(coroutine)

    return call


def open_handler(handler: Handler, loop: HandlerLoop) -> None:
    """Call `open` of a handler, if it has one.

    Raises:
        HandlerInvalid: It failed.
    """
    try:
        _call_hook(handler, "open", loop, _HOOK_SECONDS)
    except Exception as err:
        raise HandlerInvalid(f"open() of the handler failed: {type(err).__name__}: {err}") from err


def close_handler(handler: Handler, loop: HandlerLoop, seconds: float) -> None:
    """Call `close` of a handler, if it has one; what it raises is logged."""
    try:
        _call_hook(handler, "close", loop, seconds)
    except Exception:
        log.exception("close() of the handler failed")


def _call_hook(handler: Handler, name: str, loop: HandlerLoop, seconds: float) -> None:
    # A function may have attributes as well, but none that are meant as hooks.
    hook = None if inspect.isroutine(handler) else getattr(handler, name, None)
    if not callable(hook):
        return
    result = hook()
    if inspect.iscoroutine(result):
        loop.run(result, seconds)


def _instantiate(name: str, found: type) -> object:
    try:
        return found()
    except Exception as err:
        raise HandlerInvalid(
            f"Handler {name}: cannot be instantiated: {type(err).__name__}: {err}"
        ) from err


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004  # An object's method may be async.
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _import(module: str, handler: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name and module.startswith(err.name):
            raise HandlerInvalid(
                f"Handler {handler}: there is no module {err.name!r}; install it in the image, or "
                "add its folder to PYTHONPATH"
            ) from None
        raise HandlerInvalid(
            f"Handler {handler}: module {module} imports {err.name!r}, which is not installed"
        ) from None
    except BaseException as err:
        where = traceback.extract_tb(err.__traceback__)[-1]
        raise HandlerInvalid(
            f"Handler {handler}: module {module} failed in {where.filename}:{where.lineno}: "
            f"{type(err).__name__}: {err}"
        ) from err


def _describe_absence(handler: str, parent: object, part: str) -> str:
    names = [name for name in dir(parent) if callable(getattr(parent, name, None))]
    close = difflib.get_close_matches(part, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    owner = getattr(parent, "__name__", type(parent).__name__)
    return f"Handler {handler}: {owner} has no {part!r}{hint}"


def _check_signature(name: str, handler: Callable[..., object]) -> None:
    try:
        inspect.signature(handler).bind(object())
    except TypeError as err:
        raise HandlerInvalid(
            f"Handler {name}: must take one argument, the message; {err}"
        ) from None
    except ValueError:
        return  # Functions in C need not tell.
