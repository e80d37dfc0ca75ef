"""Structured logs on stderr: one JSON object per line, or coloured lines for people.

Everything goes through the same processors, including log records of kopf, aiohttp and other
libraries: context of the reconcile, trace id, redaction, then rendering. Log like this:

    log = structlog.get_logger(__name__)
    log.info("Creating pod", pod=name)
"""

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from libs.common.kinds import Key, Kind
from libs.common.redaction import redact, redact_items, redact_text

type LogFormat = Literal["json", "console"]

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""Values of the setting log_level."""

# Info records of these libraries are noise compared with one line per reconcile: kopf logs each
# activity, aiohttp each probe. With log_level debug they are logged.
_QUIET: Final = ("aiohttp", "asyncio", "kopf", "kubernetes", "opentelemetry", "urllib3")

# First keys of a line, named as in controller-runtime's JSON.
_FIRST_KEYS: Final = ("ts", "level", "logger", "msg")


def configure_logs(
    level: str = "info", log_format: LogFormat = "json", stream: TextIO | None = None
) -> None:
    """Send all logs of the process to a stream; can be called repeatedly.

    Args:
        level: One of LEVELS.
        log_format: `json` or `console`.
        stream: sys.stderr by default.
    """
    out = _SafeStream(stream or sys.stderr)
    threshold = LEVELS[level]
    shared = _build_processors()
    final = _build_renderer(log_format, colors=out.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_logger_name,
            *shared,
            *final,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_LoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                _add_stdlib_logger_name,
                *shared,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for name in _QUIET:
        quiet = logging.NOTSET if threshold == logging.DEBUG else logging.WARNING
        logging.getLogger(name).setLevel(max(quiet, threshold) if quiet else quiet)
    logging.captureWarnings(capture=True)


def install_excepthooks() -> None:
    """Log uncaught exceptions of all threads like any other error, in one line."""
    log = structlog.get_logger("process")

    def hook(
        kind: type[BaseException], value: BaseException, traceback: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, value, traceback)
            return
        log.error("Stopping on an uncaught exception", exc_info=(kind, value, traceback))

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            hook(args.exc_type, args.exc_value, args.exc_traceback)

    sys.excepthook = hook
    threading.excepthook = thread_hook


@contextmanager
def reconcile_context(controller: str, kind: Kind, key: Key, reconcile_id: str) -> Iterator[None]:
    """Add the keys of a reconcile to each line that is logged during it, even by libraries."""
    with structlog.contextvars.bound_contextvars(
        controller=controller,
        kind=kind.kind,
        namespace=key.namespace,
        name=key.name,
        reconcile_id=reconcile_id,
    ):
        yield


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Redact secrets in a line; the last processor before the renderer."""
    message = event.pop("event", "")
    result = redact_items(event.items())
    result["event"] = redact_text(message) if isinstance(message, str) else str(redact(message))
    return result


def add_trace_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the active span, which link log lines to traces."""
    # Nothing has a span if nothing has imported OpenTelemetry, which takes memory.
    if (trace := sys.modules.get("opentelemetry.trace")) is None:
        return event
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = trace.format_trace_id(span.trace_id)
        event["span_id"] = trace.format_span_id(span.span_id)
    return event


def _add_stdlib_logger_name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["logger"] = record.name
    return event


def _add_logger_name(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if name := getattr(logger, "name", ""):
        event["logger"] = name
    return event


def _build_processors() -> list[Processor]:
    return [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        add_trace_ids,
        # The traceback as plain text: richer forms print local variables, and so secrets.
        structlog.processors.format_exc_info,
    ]


def _build_renderer(log_format: LogFormat, *, colors: bool) -> list[Processor]:
    if log_format == "console":
        return [
            redact_event,
            structlog.dev.ConsoleRenderer(
                colors=colors,
                timestamp_key="ts",
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    return [redact_event, _render_json]


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    event["msg"] = event.pop("event", "")
    line = {key: event.pop(key) for key in _FIRST_KEYS if key in event} | dict(event)
    try:
        return orjson.dumps(line, default=str).decode()
    except TypeError:
        # orjson refuses integers beyond 64 bits and odd keys; a log line must never fail.
        return json.dumps(line, default=str)


class _SafeStream(io.TextIOBase):
    """A stream that ignores write errors: a closed stderr must not fail a reconcile."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return not self._stream.closed and self._stream.isatty()


class _NamedLogger(structlog.WriteLogger):
    """A logger with a name that writes lines to a stream."""

    def __init__(self, stream: _SafeStream, name: str) -> None:
        super().__init__(cast("TextIO", stream))
        self.name = name


class _LoggerFactory:
    """A factory of loggers that write to one stream."""

    def __init__(self, stream: _SafeStream) -> None:
        self._stream = stream

    def __call__(self, *args: object) -> _NamedLogger:
        return _NamedLogger(self._stream, str(args[0]) if args else "")
