"""Builds the telemetry of a process from its settings."""

from collections.abc import Collection, Mapping
from typing import Final

import structlog

from libs.common.telemetry import ALLOWED_ATTRIBUTES, NO_TELEMETRY, Telemetry

_EXPORT_TIMEOUT_SECONDS: Final = 5.0

log = structlog.get_logger("telemetry")


def build_telemetry(
    endpoint: str,
    service: str,
    *,
    sample_ratio: float = 1.0,
    resource: Mapping[str, str] | None = None,
    allowed_attributes: Collection[str] = (),
) -> Telemetry:
    """Build the telemetry of the settings; a failure is logged and disables traces.

    Args:
        endpoint: Base URL of an OTLP/HTTP receiver; empty for none.
        service: The `service.name`, which is the id of the operator.
        sample_ratio: Share of the traces that are recorded, from 0 to 1.
        resource: Further attributes of the process, such as `k8s.pod.name`.
        allowed_attributes: Exported attributes in addition to ALLOWED_ATTRIBUTES.
    """
    if not endpoint:
        return NO_TELEMETRY
    try:
        # Imported late, because OpenTelemetry takes memory that a process without traces saves.
        from libs.common.telemetry_export import build_provider
        from libs.common.tracing import Tracing

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
    return Tracing(provider)
