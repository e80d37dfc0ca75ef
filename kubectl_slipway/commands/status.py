"""`kubectl slipway status`: the operators, and how many of their objects are not ready."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.errors import Exit
from kubectl_slipway.model import readiness
from kubectl_slipway.operators import Operator
from kubectl_slipway.output import print_data, print_table

_HEADER = (
    "OPERATOR",
    "NAMESPACE",
    "RELEASE",
    "VERSION",
    "LEADER",
    "REPLICAS",
    "WATCHES",
    "OBJECTS",
    "NOT READY",
)


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print one row per operator, and a warning for objects that no operator watches."""
    report = build_report(cluster)
    if options.output != "table":
        print_data(report, options.output)
    else:
        _print(report, readable=cluster.operators is not None)
    healthy = all(each["leads"] for each in report["operators"]) and not report["unwatched"]
    return Exit.OK if healthy else Exit.PROBLEM


def build_report(cluster: Cluster, namespace: str | None = None) -> dict[str, Any]:
    """Build the report from the objects of a namespace, or of all namespaces."""
    operators = cluster.operators or []
    objects = cluster.list_ours(namespace)
    namespaces = cluster.namespaces or {}
    counts: Counter[int] = Counter()
    not_ready: Counter[int] = Counter()
    unwatched: Counter[tuple[str, str, str]] = Counter()
    for resource, manifest in objects:
        namespace = manifest["metadata"].get("namespace") or ""
        labels = (namespaces.get(namespace) or {"metadata": {}})["metadata"].get("labels") or {}
        id = cluster.operator_id(resource)
        index = _find_watcher(operators, id, namespace, labels)
        if index is None:
            if cluster.operators is not None:
                unwatched[(id, resource.kind, namespace)] += 1
            continue
        counts[index] += 1
        not_ready[index] += not readiness(manifest).ok
    return {
        "operators": [
            _describe(cluster, each, counts[index], not_ready[index])
            for index, each in enumerate(operators)
        ],
        "unwatched": [
            {"operator": id, "kind": kind, "namespace": namespace, "objects": number}
            for (id, kind, namespace), number in sorted(unwatched.items())
        ],
    }


def _find_watcher(
    operators: Sequence[Operator], id: str, namespace: str, labels: Mapping[str, str]
) -> int | None:
    for index, each in enumerate(operators):
        if each.id == id and each.watches(namespace, labels):
            return index
    return None


def _describe(cluster: Cluster, operator: Operator, objects: int, not_ready: int) -> dict[str, Any]:
    leads = operator.leads(cluster.now)
    return {
        "operator": operator.id,
        "namespace": operator.namespace,
        "release": operator.release,
        "version": operator.version,
        "leader": operator.leader.partition("_")[0] if leads else "",
        "leads": leads,
        "readyReplicas": operator.ready,
        "replicas": operator.replicas,
        "watches": operator.watches_text,
        "objects": objects,
        "notReady": not_ready,
    }


def _print(report: Mapping[str, Any], *, readable: bool) -> None:
    if not readable:
        print("Operators cannot be read.")
    elif not report["operators"]:
        print("No operator found.")
    else:
        print_table(
            _HEADER,
            [
                (
                    each["operator"],
                    each["namespace"],
                    each["release"],
                    each["version"],
                    each["leader"] or ("<none>" if not each["leads"] else "-"),
                    f"{each['readyReplicas']}/{each['replicas']}",
                    each["watches"],
                    each["objects"],
                    each["notReady"],
                )
                for each in report["operators"]
            ],
        )
    for each in report["unwatched"]:
        where = f" in namespace {each['namespace']}" if each["namespace"] else ""
        what = f"{each['objects']} {each['kind']}{'s' if each['objects'] > 1 else ''}"
        print(f"Warning: no {each['operator']} operator watches {what}{where}.")
