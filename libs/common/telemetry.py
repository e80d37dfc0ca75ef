"""Traces: one span for each reconcile, with one span for each of its requests to the API server.

Without an endpoint, nothing is recorded and OpenTelemetry is not even imported. With an endpoint,
`libs.common.tracing` records the spans, and a thread of OpenTelemetry's SDK exports them over
OTLP/HTTP. An exporter that fails or hangs never delays a reconcile, and the shutdown waits for it
only for a limited time.

Only attributes of a fixed list are exported, and no text of an exception, so that no secret gets
into a span.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from libs.common.kinds import Key, Kind

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


class ReconcileSpan:
    """The span of one reconcile; this class records nothing."""

    def set_result(self, result: str, error: BaseException | None = None) -> None:
        """Note how the reconcile ended.

        Args:
            result: Result as in the metric, such as `success` or `requeue_after`.
            error: Exception of a failed reconcile; only its type is exported.
        """


class RequestSpan:
    """The span of one request to the API server; this class records nothing."""

    def set_status(self, code: int) -> None:
        """Note the HTTP status of the response; from 400 on, the span is an error."""

    def headers(self) -> dict[str, str]:
        """Return the headers with which the spans of the server join the trace."""
        return {}


class MessageSpan:
    """The span of the handling of one message; this class records nothing."""

    def set_error(self, error: BaseException) -> None:
        """Note an exception; only its type is exported."""

    def properties(self) -> dict[str, str]:
        """Return the properties with which messages that result from it join the trace."""
        return {}


class Telemetry:
    """Creates the spans of one process; this class records nothing."""

    @property
    def enabled(self) -> bool:
        """Whether spans are recorded."""
        return False

    def reconcile_span(
        self, controller: str, kind: Kind, key: Key, reconcile_id: str
    ) -> AbstractContextManager[ReconcileSpan]:
        """Record a reconcile; an exception that leaves it marks the span as an error."""
        return _NO_RECONCILE

    def request_span(
        self, method: str, path: str, server: str = "", port: int = 0
    ) -> AbstractContextManager[RequestSpan]:
        """Record a request if it is made within a recorded span.

        Watches and renewals of the Lease belong to no reconcile; as traces of their own they would
        be most of the exported traces.

        Args:
            method: HTTP method in capitals.
            path: Path without the query.
            server: Host of the API server.
            port: Port of the API server.
        """
        return _NO_REQUEST

    def message_span(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[MessageSpan]:
        """Record the handling of a message; an exception that leaves it marks an error.

        Args:
            name: Such as `process orders`.
            carrier: Properties of the message; the span joins the trace that they name.
            attributes: Exported if the list of `build_telemetry` contains them.
        """
        return _NO_MESSAGE

    async def close(self, timeout: float = 3.0) -> None:
        """Export the remaining spans and stop, within a time in seconds."""


# Made once, because each request and each reconcile needs one.
_NO_RECONCILE: Final = nullcontext(ReconcileSpan())
_NO_REQUEST: Final = nullcontext(RequestSpan())
_NO_MESSAGE: Final = nullcontext(MessageSpan())

NO_TELEMETRY: Final = Telemetry()
"""Records nothing; the default where a Telemetry is expected."""
