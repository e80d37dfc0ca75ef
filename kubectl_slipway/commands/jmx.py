"""`kubectl slipway jmx scan`: the endpoints and failures of a PrometheusJmxExporter."""

from __future__ import annotations

import argparse

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.errors import Exit
from kubectl_slipway.model import at, meaning
from kubectl_slipway.output import print_data, print_table, shorten

_KIND = "PrometheusJmxExporter"


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print one row per JVM and one per container without an endpoint."""
    manifest = cluster.get(cluster.catalog.find(_KIND), options.name)
    served = at(manifest, "status.metricsEndpoints") or []
    failed = at(manifest, "status.failures") or []
    rows = [
        {
            "pod": each["pod"],
            "container": each.get("container") or "",
            "state": each.get("state") or "Serving",
            "port": each.get("port") or "",
            "detail": each.get("mainClass") or "",
        }
        for each in served
    ]
    rows += [
        {
            "pod": each["pod"],
            "container": each.get("container") or "",
            "state": each["reason"],
            "port": "",
            "detail": each.get("message") or meaning(_KIND, each["reason"]),
        }
        for each in failed
    ]
    rows.sort(key=lambda each: (each["pod"], each["container"]))
    if options.output != "table":
        print_data(rows, options.output)
    elif rows:
        print_table(
            ("POD", "CONTAINER", "STATE", "PORT", "DETAIL"),
            [(*list(each.values())[:-1], shorten(str(each["detail"]), 80)) for each in rows],
        )
    else:
        print(f"{_KIND}/{options.name} has found no JVM yet.")
    return Exit.PROBLEM if failed else Exit.OK
