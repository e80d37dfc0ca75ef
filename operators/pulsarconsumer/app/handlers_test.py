"""Handlers are found by their names, and what is wrong with them is said."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from operators.pulsarconsumer.app.handlers import (
    HandlerInvalid,
    accept,
    close_handler,
    load_handler,
    open_handler,
)
from slipway_handler.calls import HandlerLoop, adapt

MODULE = """
import asyncio

def handle(message): ...
def no_argument(): ...
async def later(message):
    await asyncio.sleep(0)
    return message
async def fails(message):
    raise KeyError("no")
class Many:
    @staticmethod
    def handle(message): ...
class Called:
    async def __call__(self, message):
        return message
called = Called()
number = 3
class Opened:
    def __init__(self):
        self.calls = []
    def open(self):
        self.calls.append("open")
    def __call__(self, message):
        self.calls.append(message)
    async def close(self):
        self.calls.append("close")
class Fails:
    def open(self):
        raise OSError("no database")
    def __call__(self, message): ...
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_test.py").write_text(MODULE)
    (tmp_path / "broken_of_test.py").write_text("x = 1\nraise OSError('disk')\n")
    (tmp_path / "needs_of_test.py").write_text("import not_installed_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", ["handle", "later", "Many.handle", "called"])
def test_handler_is_found(name: str) -> None:
    assert callable(load_handler(f"mine_of_test:{name}"))


def test_no_name_means_the_log_is_all() -> None:
    assert load_handler("") is accept


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere_at_all:handle", "no module 'nowhere_at_all'; install it in the image"),
        ("mine_of_test.sub:handle", "no module 'mine_of_test.sub'"),
        ("needs_of_test:handle", "imports 'not_installed_at_all', which is not installed"),
        ("broken_of_test:handle", "broken_of_test.py:2: OSError: disk"),
        ("mine_of_test:handel", "mine_of_test has no 'handel'; did you mean 'handle'?"),
        ("mine_of_test:Many.no", "Many has no 'no'"),
        ("mine_of_test:number", "is a int, which is not callable"),
        ("mine_of_test:no_argument", "must take one argument, the message"),
    ],
)
def test_fault_is_told(name: str, expected: str) -> None:
    with pytest.raises(HandlerInvalid, match="Handler " + name) as caught:
        load_handler(name)

    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["later", "called"])
async def test_async_handler_has_ended_when_the_call_returns(name: str) -> None:
    called = adapt(load_handler(f"mine_of_test:{name}"), HandlerLoop())

    assert await asyncio.to_thread(called, "message") == "message"


async def test_error_of_an_async_handler_reaches_the_caller() -> None:
    called = adapt(load_handler("mine_of_test:fails"), HandlerLoop())

    with pytest.raises(KeyError):
        await asyncio.to_thread(called, "message")


async def test_plain_handler_stays_in_its_thread() -> None:
    called = adapt(lambda _: threading.get_ident(), HandlerLoop())

    assert called("message") == threading.get_ident()


def test_class_is_instantiated_opened_and_closed() -> None:
    handler, loop = load_handler("mine_of_test:Opened"), HandlerLoop()

    open_handler(handler, loop)
    handler("message")
    close_handler(handler, loop, 10)

    assert getattr(handler, "calls") == ["open", "message", "close"]  # noqa: B009


def test_handler_that_cannot_be_opened_is_invalid() -> None:
    with pytest.raises(HandlerInvalid, match="OSError: no database"):
        open_handler(load_handler("mine_of_test:Fails"), HandlerLoop())
