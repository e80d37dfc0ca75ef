"""The handler of the user: found by its name, called the same way whether it is async or not."""

from __future__ import annotations

import difflib
import importlib
import inspect
import traceback
from collections.abc import Callable
from typing import Any, Final

import structlog

from slipway_handler import Message
from slipway_handler.calls import HandlerLoop, call_hook, is_class_of_handlers

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
    if is_class_of_handlers(found):
        found = _instantiate(name, found)
    if not callable(found):
        raise HandlerInvalid(f"Handler {name}: is a {type(found).__name__}, which is not callable")
    _check_signature(name, found)
    return found


def accept(_message: Message) -> None:
    """Do nothing: the line in the log is all."""


def open_handler(handler: Handler, loop: HandlerLoop) -> None:
    """Call `open` of a handler, if it has one.

    Raises:
        HandlerInvalid: It failed.
    """
    try:
        call_hook(handler, "open", loop, _HOOK_SECONDS)
    except Exception as err:
        raise HandlerInvalid(f"open() of the handler failed: {type(err).__name__}: {err}") from err


def close_handler(handler: Handler, loop: HandlerLoop, seconds: float) -> None:
    """Call `close` of a handler, if it has one; what it raises is logged."""
    try:
        call_hook(handler, "close", loop, seconds)
    except Exception:
        log.exception("close() of the handler failed")


def _instantiate(name: str, found: Any) -> object:
    try:
        return found()
    except Exception as err:
        raise HandlerInvalid(
            f"Handler {name}: cannot be instantiated: {type(err).__name__}: {err}"
        ) from err


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
