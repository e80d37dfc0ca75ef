"""The handler of the user: found by its name, called the same way whether it is async or not."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import inspect
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from operators.pulsarconsumer.app.core.message import Message

type Handler = Callable[[Any], object]
"""Takes a Message, or a list of them; what it returns is not looked at."""


class HandlerInvalid(Exception):
    """The handler cannot be loaded; the message says why and what to do."""


def load_handler(name: str) -> Handler:
    """Return the function that `module:function` names.

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
    if not callable(found):
        raise HandlerInvalid(f"Handler {name}: is a {type(found).__name__}, which is not callable")
    _check_signature(name, found)
    return found


def accept(_message: Message) -> None:
    """Do nothing: the line in the log is all."""


def adapt(handler: Handler, loop: asyncio.AbstractEventLoop) -> Handler:
    """Return a handler that can be called from any thread and has ended when it returns.

    Args:
        handler: Plain or async.
        loop: Where an async one runs.
    """
    if not _is_async(handler):
        return handler

    def call(argument: Any) -> object:
        coroutine: Coroutine[Any, Any, object] = handler(argument)  # type: ignore[assignment]  # As _is_async said.
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    return call


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
