"""Traces by OpenTelemetry: one span a reconcile, and within it one a request to the API server.

Without an endpoint nothing is recorded and the SDK is not even imported. With one, spans are
exported over OTLP/HTTP by a thread of the SDK; an exporter that fails or hangs never delays a
reconcile, and the shutdown waits for it no longer than it is told to.

Only attributes of a fixed list are exported, and no text of an exception, so that a secret cannot
get out by a span.
"""

import asyncio
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import structlog
from opentelemetry import context, trace
from opentelemetry.trace import NoOpTracer, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from libs.common.kinds import Key, Kind

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

KIND: Final = "k8s.object.kind"
NAMESPACE: Final = "k8s.object.namespace"
NAME: Final = "k8s.object.name"
CONTROLLER: Final = "controller"
RECONCILE_ID: Final = "reconcile.id"
RESULT: Final = "reconcile.result"
ERROR_TYPE: Final = "error.type"
HTTP_METHOD: Final = "http.request.method"
HTTP_STATUS: Final = "http.response.status_code"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
URL_PATH: Final = "url.path"

ALLOWED_ATTRIBUTES: Final = frozenset(
    {
        *(KIND, NAMESPACE, NAME, CONTROLLER, RECONCILE_ID, RESULT, ERROR_TYPE),
        *(HTTP_METHOD, HTTP_STATUS, SERVER_ADDRESS, SERVER_PORT, URL_PATH),
    }
)
"""Attributes that are exported; all others are dropped."""

_FIRST_FAILURE: Final = 400
_EXPORT_TIMEOUT_SECONDS: Final = 5.0
_PROPAGATOR: Final = TraceContextTextMapPropagator()

log = structlog.get_logger("telemetry")


class ReconcileSpan:
    """The span of one reconcile."""

    def __init__(self, span: Span) -> None:
        """Wrap a span."""
        self._span = span

    def set_result(self, result: str, error: BaseException | None = None) -> None:
        """Note how the reconcile ended.

        Args:
            result: The word that the metric has, such as `success` or `requeue_after`.
            error: What it failed with; only its type is exported.
        """
        self._span.set_attribute(RESULT, result)
        if error is not None:
            _set_error(self._span, type(error).__name__)


class RequestSpan:
    """The span of one request to the API server."""

    def __init__(self, span: Span) -> None:
        """Wrap a span."""
        self._span = span

    def set_status(self, code: int) -> None:
        """Note the HTTP status of the response; from 400 on the span is an error."""
        self._span.set_attribute(HTTP_STATUS, code)
        if code >= _FIRST_FAILURE:
            _set_error(self._span, str(code))

    def headers(self) -> dict[str, str]:
        """Return the headers by which the server's own spans join the trace."""
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers, trace.set_span_in_context(self._span))
        return headers


class _UnrecordedSpan(RequestSpan):
    """A span of a request that nobody records: most requests of most operators."""

    def set_status(self, code: int) -> None:
        """Do nothing."""

    def headers(self) -> dict[str, str]:
        """Return no headers: there is no trace to join."""
        return {}


class MessageSpan:
    """The span of the handling of one message."""

    def __init__(self, span: Span) -> None:
        """Wrap a span."""
        self._span = span

    def set_error(self, error: BaseException) -> None:
        """Note what the handling failed with; only its type is exported."""
        _set_error(self._span, type(error).__name__)

    def properties(self) -> dict[str, str]:
        """Return the properties by which messages that follow from it join the trace."""
        properties: dict[str, str] = {}
        _PROPAGATOR.inject(properties, trace.set_span_in_context(self._span))
        return properties


class Telemetry:
    """Makes the spans of one process."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        """Take what exports the spans; without it, nothing is recorded."""
        self._provider = provider
        self._tracer: Tracer = provider.get_tracer("slipway") if provider else NoOpTracer()

    @property
    def enabled(self) -> bool:
        """Whether spans are recorded."""
        return self._provider is not None

    @contextmanager
    def reconcile_span(
        self, controller: str, kind: Kind, key: Key, reconcile_id: str
    ) -> Iterator[ReconcileSpan]:
        """Record a reconcile; an exception that leaves it marks the span as an error."""
        attributes = {
            CONTROLLER: controller,
            KIND: kind.kind,
            NAMESPACE: key.namespace,
            NAME: key.name,
            RECONCILE_ID: reconcile_id,
        }
        with self._span(f"reconcile {kind.kind}", SpanKind.INTERNAL, attributes) as span:
            yield ReconcileSpan(span)

    def request_span(
        self, method: str, path: str, server: str = "", port: int = 0
    ) -> AbstractContextManager[RequestSpan]:
        """Record a request, when it is made within a span that is recorded.

        Watches and renewals of the Lease belong to no reconcile; as traces of their own they would
        be most of all that is exported.

        Args:
            method: HTTP method in capitals.
            path: Path without the query.
            server: Host of the API server.
            port: Port of the API server.
        """
        if not trace.get_current_span().is_recording():
            return _UNRECORDED
        attributes: dict[str, str | int] = {HTTP_METHOD: method, URL_PATH: path}
        if server:
            attributes |= {SERVER_ADDRESS: server, SERVER_PORT: port}
        return self._request_span(method, attributes)

    @contextmanager
    def _request_span(
        self, method: str, attributes: Mapping[str, str | int]
    ) -> Iterator[RequestSpan]:
        with self._span(method, SpanKind.CLIENT, attributes) as span:
            yield RequestSpan(span)

    @contextmanager
    def message_span(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, str | int]
    ) -> Iterator[MessageSpan]:
        """Record the handling of a message; an exception that leaves it marks an error.

        Args:
            name: Such as `process orders`.
            carrier: Properties of the message; the span joins the trace that they name.
            attributes: Exported as far as the list of `build_telemetry` has them.
        """
        token = context.attach(_PROPAGATOR.extract(carrier))
        try:
            with self._span(name, SpanKind.CONSUMER, attributes) as span:
                yield MessageSpan(span)
        finally:
            context.detach(token)

    async def close(self, timeout: float = 3.0) -> None:
        """Export what is waiting and stop, within a time in seconds."""
        if self._provider is None:
            return
        # A daemon thread, since the exporter may hang for longer than the process shall live.
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
            # The text of an exception may hold a secret.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as err:
                _set_error(span, type(err).__name__)
                raise


_UNRECORDED: Final = nullcontext(_UnrecordedSpan(trace.INVALID_SPAN))


def _set_error(span: Span, error_type: str) -> None:
    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR))


NO_TELEMETRY: Final = Telemetry()
"""Records nothing; the default where a Telemetry is asked for."""


def build_telemetry(
    endpoint: str,
    service: str,
    *,
    sample_ratio: float = 1.0,
    resource: Mapping[str, str] | None = None,
    allowed_attributes: Collection[str] = (),
) -> Telemetry:
    """Build what the settings ask for; a failure is logged and leaves tracing off.

    Args:
        endpoint: Base URL of an OTLP/HTTP receiver; empty means none.
        service: The `service.name`, hence the operator's id.
        sample_ratio: Share of the traces that are recorded, from 0 to 1.
        resource: Further attributes of the process, such as `k8s.pod.name`.
        allowed_attributes: Attributes to export beside ALLOWED_ATTRIBUTES.
    """
    if not endpoint:
        return NO_TELEMETRY
    try:
        # Imported late: a process that does not trace does not pay for the SDK.
        from libs.common.telemetry_export import build_provider

        provider = build_provider(
            f"{endpoint.rstrip('/')}/v1/traces",
            {"service.name": service, **(resource or {})},
            sample_ratio=sample_ratio,
            allowed=ALLOWED_ATTRIBUTES | set(allowed_attributes),
            timeout=_EXPORT_TIMEOUT_SECONDS,
        )
    except Exception:
        log.exception("Disabling traces", endpoint=endpoint)
        return NO_TELEMETRY
    log.info("Exporting traces", endpoint=endpoint, sample_ratio=sample_ratio)
    return Telemetry(provider)
