"""Handlers run without a broker as they do in a consumer."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from slipway_handler import Message, Output, PartialFailure, Pause, Reject, RetryLater
from slipway_handler.testing import build_message, drive

ERRORS = {
    b"reject": Reject("no"),
    b"later": RetryLater(5),
    b"pause": Pause(5),
    b"fail": ValueError("no"),
    b"exit": SystemExit(1),
}
SENT = [b"good", *ERRORS]
RESULTS = ["acknowledged", "rejected", "retried", "paused", "retried", "retried"]


def handle(message: Message) -> None:
    if message.data in ERRORS:
        raise ERRORS[message.data]


async def handle_async(message: Message) -> None:
    handle(message)


class Opened:
    """A handler with hooks that notes what is called."""

    notes: list[str]

    def __init__(self) -> None:
        type(self).notes = []

    async def open(self) -> None:
        self.notes.append("open")

    async def __call__(self, message: Message) -> None:
        self.notes.append(message.data.decode())
        handle(message)

    def close(self) -> None:
        self.notes.append("close")


@pytest.mark.parametrize("handler", [handle, handle_async, Opened, Opened()])
def test_result_tells_what_becomes_of_each_message(handler: object) -> None:
    run = drive(handler, [build_message(data) for data in SENT])  # type: ignore[arg-type]

    assert run.results == RESULTS
    assert [each.error for each in run.outcomes] == [None, *ERRORS.values()]
    assert [each.message.data for each in run.outcomes] == SENT


def test_hooks_are_called_around_the_messages() -> None:
    drive(Opened, [build_message(b"a"), build_message(b"b")])

    assert Opened.notes == ["open", "a", "b", "close"]


async def test_driver_works_where_a_loop_runs() -> None:
    assert drive(handle_async, [build_message(b"good")]).results == ["acknowledged"]


async def test_handler_that_exits_ends_no_loop() -> None:
    """An event loop ends with the SystemExit of a task."""
    messages = [build_message(data) for data in (b"exit", b"good")]

    assert drive(handle_async, messages).results == ["retried", "acknowledged"]


def test_error_of_a_hook_fails_the_test() -> None:
    class Closed:
        def open(self) -> None:
            raise OSError("no database")

        def __call__(self, message: Message) -> None:
            raise AssertionError

    with pytest.raises(OSError, match="no database"):
        drive(Closed, [build_message()])


def test_messages_named_by_a_partial_failure_are_tried_again() -> None:
    calls: list[list[bytes]] = []

    def handle_list(messages: Sequence[Message]) -> None:
        calls.append([message.data for message in messages])
        if failed := [message for message in messages if message.data == b"fail"]:
            raise PartialFailure(failed)

    messages = [build_message(data) for data in (b"a", b"fail", b"b")]
    run = drive(handle_list, messages, batch=True)

    assert run.results == ["acknowledged", "retried", "acknowledged"]
    assert calls == [[b"a", b"fail", b"b"]]


def test_list_that_fails_is_handled_one_by_one() -> None:
    calls: list[list[bytes]] = []

    def handle_list(messages: Sequence[Message]) -> None:
        calls.append([message.data for message in messages])
        for message in messages:
            handle(message)

    run = drive(handle_list, [build_message(data) for data in (b"good", b"reject")], batch=True)

    assert run.results == ["acknowledged", "rejected"]
    assert calls == [[b"good", b"reject"], [b"good"], [b"reject"]]


def test_pause_holds_up_the_whole_list() -> None:
    def handle_list(messages: Sequence[Message]) -> None:
        raise Pause(5)

    run = drive(handle_list, [build_message(), build_message()], batch=True)

    assert run.results == ["paused", "paused"]


def test_outputs_are_collected_if_they_are_published() -> None:
    def publish(message: Message) -> object:
        return [Output(message.data, key="k"), "text"] if message.data else {}

    messages = [build_message(b"a"), build_message(b"")]

    assert drive(publish, messages).results == ["acknowledged", "acknowledged"]
    run = drive(publish, messages, output=True)
    assert run.outputs == (Output(b"a", key="k"), Output("text"))
    assert run.results == ["acknowledged", "retried"], "a mapping cannot be published"


def test_messages_have_ids_of_their_own_and_the_fields_that_are_set() -> None:
    one, two = build_message(b"a", key="k", attempt=2), build_message(b"a", value={"id": 1})

    assert one.message_id != two.message_id
    assert (one.value, one.key, one.attempt, two.value) == (b"a", "k", 2, {"id": 1})


def test_package_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    folder = Path(__file__).parent
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    copy = tmp_path / "slipway_handler"
    copy.mkdir()
    for path in folder.glob("*.py"):
        if not path.name.endswith("_test.py"):
            (copy / path.name).write_text(path.read_text())
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from slipway_handler.testing import build_message, drive\n"
        "print(drive(lambda message: None, [build_message()]).results)\n"
    )

    # -I and -S: neither the checkout nor installed packages.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "['acknowledged']\n"
    assert project["project"]["dependencies"] == []
    assert (folder / "py.typed").exists()
