"""Exports spans over OTLP/HTTP; the part of telemetry.py that needs OpenTelemetry's SDK."""

from collections.abc import Collection, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Status


class AllowListExporter(SpanExporter):
    """Passes spans on with the attributes of a list, and with no event, link or message."""

    def __init__(self, inner: SpanExporter, allowed: Collection[str]) -> None:
        """Take the exporter that gets the spans, and the attributes that they keep."""
        self._inner = inner
        self._allowed = frozenset(allowed)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export copies of the spans."""
        return self._inner.export([self._filter(span) for span in spans])

    def shutdown(self) -> None:
        """Stop the inner exporter."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the inner exporter."""
        return self._inner.force_flush(timeout_millis)

    def _filter(self, span: ReadableSpan) -> ReadableSpan:
        attributes = span.attributes or {}
        return ReadableSpan(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes={key: attributes[key] for key in attributes if key in self._allowed},
            kind=span.kind,
            instrumentation_scope=span.instrumentation_scope,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
        )


def build_provider(
    url: str,
    resource: Mapping[str, str],
    *,
    sample_ratio: float,
    allowed: Collection[str],
    timeout: float,
) -> TracerProvider:
    """Build a provider that exports in batches, from a thread of its own.

    Args:
        url: Full URL of the receiver, with `/v1/traces`.
        resource: Attributes of the process.
        sample_ratio: Share of the traces that are recorded.
        allowed: Attributes that spans keep.
        timeout: Seconds for one export.
    """
    provider = TracerProvider(
        resource=Resource.create(dict(resource)),
        sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
        # The hook at the exit would wait without a bound; Telemetry.close() has one.
        shutdown_on_exit=False,
    )
    exporter = AllowListExporter(OTLPSpanExporter(endpoint=url, timeout=timeout), allowed)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
