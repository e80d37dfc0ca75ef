"""Spans of OpenTelemetry: the part of telemetry.py that needs its API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

import structlog
from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from libs.common import telemetry
from libs.common.kinds import Key, Kind

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_FIRST_FAILURE: Final = 400
_PROPAGATOR: Final = TraceContextTextMapPropagator()

log = structlog.get_logger("telemetry")


class _ReconcileSpan(telemetry.ReconcileSpan):
    def __init__(self, span: Span) -> None:
        self._span = span

    def set_result(self, result: str, error: BaseException | None = None) -> None:
        self._span.set_attribute(telemetry.RESULT, result)
        if error is not None:
            _set_error(self._span, type(error).__name__)


class _RequestSpan(telemetry.RequestSpan):
    def __init__(self, span: Span) -> None:
        self._span = span

    def set_status(self, code: int) -> None:
        self._span.set_attribute(telemetry.HTTP_STATUS, code)
        if code >= _FIRST_FAILURE:
            _set_error(self._span, str(code))

    def headers(self) -> dict[str, str]:
        return _inject(self._span)


class _MessageSpan(telemetry.MessageSpan):
    def __init__(self, span: Span) -> None:
        self._span = span

    def set_error(self, error: BaseException) -> None:
        _set_error(self._span, type(error).__name__)

    def properties(self) -> dict[str, str]:
        return _inject(self._span)


class Tracing(telemetry.Telemetry):
    """Creates the spans of one process, and gives them to a provider."""

    def __init__(self, provider: TracerProvider) -> None:
        """Take the provider that exports the spans."""
        self._provider = provider
        self._tracer = provider.get_tracer("slipway")

    @property
    def enabled(self) -> bool:
        """Whether spans are recorded."""
        return True

    @contextmanager
    def reconcile_span(
        self, controller: str, kind: Kind, key: Key, reconcile_id: str
    ) -> Iterator[telemetry.ReconcileSpan]:
        """Record a reconcile; an exception that leaves it marks the span as an error."""
        attributes = {
            telemetry.CONTROLLER: controller,
            telemetry.KIND: kind.kind,
            telemetry.NAMESPACE: key.namespace,
            telemetry.NAME: key.name,
            telemetry.RECONCILE_ID: reconcile_id,
        }
        with self._span(f"reconcile {kind.kind}", SpanKind.INTERNAL, attributes) as span:
            yield _ReconcileSpan(span)

    def request_span(
        self, method: str, path: str, server: str = "", port: int = 0
    ) -> AbstractContextManager[telemetry.RequestSpan]:
        """Record a request if it is made within a recorded span."""
        if not trace.get_current_span().is_recording():
            return super().request_span(method, path, server, port)
        attributes: dict[str, str | int] = {
            telemetry.HTTP_METHOD: method,
            telemetry.URL_PATH: path,
        }
        if server:
            attributes |= {telemetry.SERVER_ADDRESS: server, telemetry.SERVER_PORT: port}
        return self._request_span(method, attributes)

    @contextmanager
    def _request_span(
        self, method: str, attributes: Mapping[str, str | int]
    ) -> Iterator[telemetry.RequestSpan]:
        with self._span(method, SpanKind.CLIENT, attributes) as span:
            yield _RequestSpan(span)

    @contextmanager
    def message_span(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, str | int]
    ) -> Iterator[telemetry.MessageSpan]:
        """Record the handling of a message; an exception that leaves it marks an error."""
        token = context.attach(_PROPAGATOR.extract(carrier))
        try:
            with self._span(name, SpanKind.CONSUMER, attributes) as span:
                yield _MessageSpan(span)
        finally:
            context.detach(token)

    async def close(self, timeout: float = 3.0) -> None:
        """Export the remaining spans and stop, within a time in seconds."""
        # A daemon thread, because the exporter may hang for longer than the process may live.
        thread = threading.Thread(target=self._provider.shutdown, daemon=True, name="traces-flush")
        thread.start()
        await asyncio.to_thread(thread.join, timeout)
        if thread.is_alive():
            log.warning("Cannot export the remaining spans", timeout_seconds=timeout)

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: Mapping[str, str | int]
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=dict(attributes),
            # The text of an exception may contain a secret.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as err:
                _set_error(span, type(err).__name__)
                raise


def _inject(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return carrier


def _set_error(span: Span, error_type: str) -> None:
    span.set_attribute(telemetry.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR))
