"""Monitors, by which the Prometheus operator finds endpoints, and what they can contain.

Users who can edit a PrometheusJmxExporter may not be allowed to create monitors. So the fields that
the operator copies into a monitor can neither send Prometheus to another address nor name files of
its pod.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from libs.common.crd import (
    DnsSubdomain,
    KubernetesModel,
    LabelKey,
    LabelMap,
    ListAtomic,
    ListSet,
    Rule,
    Waive,
)


class Relabeling(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.targetLabel) || !self.targetLabel.startsWith('__') || "
            "self.targetLabel.startsWith('__tmp_') || self.targetLabel == '__name__'",
            "targetLabel must not begin with __, except for __tmp_ and __name__: labels such as "
            "__address__ say what Prometheus scrapes",
            field_path=".targetLabel",
        ),
    ),
):
    """Relabeling changes, keeps or drops labels, targets or metrics, as Prometheus does."""

    action: Literal[
        "replace",
        "keep",
        "drop",
        "hashmod",
        "labeldrop",
        "labelkeep",
        "lowercase",
        "uppercase",
        "keepequal",
        "dropequal",
    ] = "replace"
    """action is what to do if regex matches. labelmap is not allowed."""
    source_labels: Annotated[
        list[Annotated[str, Field(max_length=256)]], ListAtomic(), Field(max_length=20)
    ] = []
    """sourceLabels are labels whose values are joined by separator and matched by regex."""
    separator: Annotated[str, Field(max_length=16)] | None = None
    """separator joins the values. Defaults to a semicolon."""
    target_label: (
        Annotated[str, Field(max_length=256, pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")] | None
    ) = None
    """targetLabel is the label that gets the result."""
    regex: Annotated[str, Field(max_length=1024)] | None = None
    """regex is matched against the joined values. Defaults to everything."""
    modulus: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """modulus is the number of classes of action hashmod."""
    replacement: Annotated[str, Field(max_length=1024)] | None = None
    """replacement is the new value, with groups of regex as $1. Defaults to $1."""


class MonitorTls(KubernetesModel):
    """MonitorTls names the Secrets that Prometheus uses for an endpoint with TLS."""

    ca_secret_name: DnsSubdomain | None = None
    """caSecretName is the name of a Secret whose key ca.crt verifies the endpoint. Defaults to the
    Secret of spec.tls."""
    client_certificate_secret_name: DnsSubdomain | None = None
    """clientCertificateSecretName is the name of a Secret whose keys tls.crt and tls.key are the
    certificate of Prometheus. Defaults to no certificate."""


class Monitor(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.scrapeTimeoutSeconds) || self.scrapeTimeoutSeconds <= self.intervalSeconds",
            "scrapeTimeoutSeconds must be at most intervalSeconds",
            field_path=".scrapeTimeoutSeconds",
        ),
    ),
):
    """Monitor lets the Prometheus operator find the endpoints."""

    labels: LabelMap = {}
    """labels are the labels by which Prometheus selects monitors."""
    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """intervalSeconds is the time between scrapes, in seconds. Defaults to 30."""
    scrape_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """scrapeTimeoutSeconds is the time after which a scrape fails, in seconds. Defaults to the
    scrape timeout of Prometheus."""
    honor_labels: Annotated[
        bool, Waive("no-booleans", "the Prometheus operator has this field, with this meaning")
    ] = False
    """honorLabels keeps the labels of the metrics if they conflict with labels of the target."""
    relabelings: Annotated[list[Relabeling], ListAtomic(), Field(max_length=50)] = []
    """relabelings change the labels of targets."""
    metric_relabelings: Annotated[list[Relabeling], ListAtomic(), Field(max_length=50)] = []
    """metricRelabelings change or drop metrics before they are stored."""
    tls: MonitorTls | None = None
    """tls names the Secrets that Prometheus uses if spec.tls is set. Defaults to verification of
    the certificate against ca.crt of the Secret of spec.tls."""


class ServiceMonitor(Monitor):
    """ServiceMonitor is a monitor of the Service."""

    job_label: LabelKey | None = None
    """jobLabel is the label of the Service whose value becomes the label job."""
    target_labels: Annotated[list[LabelKey], ListSet(), Field(max_length=20)] = []
    """targetLabels are labels of the Service that metrics get."""
