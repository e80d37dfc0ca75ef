"""Tests of the lines that the process writes."""

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from libs.common.kinds import POD, Key
from libs.common.logs import configure_logs, install_excepthooks, reconcile_context

CANARY = "canary-s3cr3t"


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    hooks = sys.excepthook, threading.excepthook
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook, threading.excepthook = hooks
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture
def stream() -> io.StringIO:
    out = io.StringIO()
    configure_logs("info", "json", out)
    return out


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_line_is_json_with_the_fixed_keys_first(stream: io.StringIO) -> None:
    structlog.get_logger("podset").info("Creating pod", pod="web-0")

    line = lines(stream)[0]
    assert list(line) == ["ts", "level", "logger", "msg", "pod"]
    assert (line["level"], line["logger"], line["msg"]) == ("info", "podset", "Creating pod")
    assert line["ts"].endswith("Z")


def test_library_logs_take_the_same_form(stream: io.StringIO) -> None:
    logging.getLogger("kopf.objects").warning("Failing for %s", "web")
    logging.getLogger("aiohttp.access").info("GET /healthz")
    logging.getLogger("other").info("Hello")

    assert [(line["logger"], line["msg"]) for line in lines(stream)] == [
        ("kopf.objects", "Failing for web"),
        ("other", "Hello"),
    ]


def test_quiet_library_speaks_with_debug_and_not_with_error() -> None:
    debug, error = io.StringIO(), io.StringIO()
    configure_logs("debug", "json", debug)
    logging.getLogger("kopf").debug("Said")
    configure_logs("error", "json", error)
    logging.getLogger("kopf").warning("Unsaid")

    assert [line["msg"] for line in lines(debug)] == ["Said"]
    assert error.getvalue() == ""


def test_level_filters_own_logs(stream: io.StringIO) -> None:
    structlog.get_logger().debug("Unsaid")

    assert stream.getvalue() == ""


def test_context_of_the_reconcile_is_on_each_line_within(stream: io.StringIO) -> None:
    with reconcile_context("podset", POD, Key("default", "web"), "r1"):
        structlog.get_logger().info("Within")
        logging.getLogger("lib").info("Within too")
    structlog.get_logger().info("After")

    within, too, after = lines(stream)
    for line in (within, too):
        assert line["controller"] == "podset"
        assert (line["kind"], line["namespace"], line["name"]) == ("Pod", "default", "web")
        assert line["reconcile_id"] == "r1"
    assert "reconcile_id" not in after


def test_trace_id_is_on_lines_within_a_span(stream: io.StringIO) -> None:
    with TracerProvider().get_tracer("t").start_as_current_span("s") as span:
        structlog.get_logger().info("Within")

    expected = trace.format_trace_id(span.get_span_context().trace_id)
    assert lines(stream)[0]["trace_id"] == expected


def test_secrets_do_not_show_in_any_part_of_a_line(stream: io.StringIO) -> None:
    log = structlog.get_logger()
    message = f"Using password={CANARY}"
    log.info(message, token=CANARY, headers={"Authorization": CANARY})
    logging.getLogger("lib").warning("Sending %s", {"token": CANARY})
    logging.getLogger("lib").warning("Sending", extra={"token": CANARY})
    local_secret = CANARY
    try:
        raise ValueError(f"Bearer {local_secret}")
    except ValueError:
        log.exception("Failing")
        logging.getLogger("lib").exception("Failing")

    assert len(lines(stream)) == 5
    assert "Traceback" in stream.getvalue()
    assert CANARY not in stream.getvalue()


def test_secrets_do_not_show_on_the_console() -> None:
    stream = io.StringIO()
    configure_logs("info", "console", stream)
    local_secret = CANARY
    try:
        raise ValueError(f"Bearer {local_secret}")
    except ValueError:
        structlog.get_logger().exception("Failing", token=CANARY)

    assert "Failing" in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert CANARY not in stream.getvalue()


def test_value_that_json_cannot_hold_does_not_fail(stream: io.StringIO) -> None:
    structlog.get_logger().info("Odd", big=2**70, thing=object(), raw=b"x", nan=float("nan"))

    assert lines(stream)[0]["big"] == 2**70


def test_broken_stream_does_not_fail_what_logs() -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    for stream in (Broken(), closed):
        configure_logs("info", "json", stream)
        structlog.get_logger().info("Unheard")
        logging.getLogger("lib").info("Unheard too")


def test_uncaught_exceptions_are_logged(stream: io.StringIO) -> None:
    install_excepthooks()

    def fail() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()

    assert "in a thread" in lines(stream)[0]["exception"]


def test_warnings_are_logged(stream: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)

    assert lines(stream)[0]["logger"] == "py.warnings"
