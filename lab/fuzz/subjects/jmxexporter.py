"""PrometheusJmxExporter, fuzzed."""

from __future__ import annotations

from typing import Final

from lab.fuzz.subject import FuzzSubject
from libs.common.kinds import Manifest
from libs.common.ownership import build_owner_reference
from libs.common.plan import Apply
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.conformance_test import TestJmxExporterConformance
from operators.jmxexporter.discovery import MONITORS, Address, plan_discovery
from operators.jmxexporter.samples import build_exporter


def render(manifest: Manifest) -> list[Manifest]:
    """Make what leads Prometheus to one JVM that serves."""
    exporter = PrometheusJmxExporter.parse(manifest)
    uid = "22222222-2222-4222-8222-222222222222"
    address = Address(exporter.spec.port, "shop-0", uid, "10.0.0.7")
    owner = build_owner_reference(PROMETHEUS_JMX_EXPORTER, manifest)
    steps = plan_discovery(exporter, [address], (), owner, monitored=MONITORS)
    return [step.manifest for step in steps if isinstance(step, Apply)]


SUBJECTS: Final = (
    FuzzSubject(
        "jmxexporter",
        PrometheusJmxExporter,
        {
            **build_exporter()["spec"],
            "lastPort": 9410,
            "minFreeMemory": "64Mi",
            "hostNetwork": "Allow",
            "annotations": "None",
            "podMonitor": {"labels": {"release": "prometheus"}},
            "tls": {"secretName": "cert", "clientCertificates": "Require"},
            "basicAuth": {"secretName": "login"},
            "service": {
                "labels": {"team": "shop"},
                "monitor": {
                    "labels": {"release": "prometheus"},
                    "scrapeTimeoutSeconds": 10,
                    "targetLabels": ["team"],
                    "relabelings": [{"targetLabel": "zone", "replacement": "a"}],
                },
            },
        },
        render,
        pinned=(build_exporter()["spec"],),  # What the kind always had.
        live=TestJmxExporterConformance.subject,
    ),
)
