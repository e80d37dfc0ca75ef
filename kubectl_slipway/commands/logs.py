"""`kubectl slipway logs`: the log of all pods of an operator, or the lines about one object."""

from __future__ import annotations

import argparse
import json

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.errors import Exit, PluginError
from kubectl_slipway.model import title


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print the log lines of every pod of the operator."""
    operators = cluster.operators or []
    found = [each for each in operators if each.id == options.operator]
    if not found:
        known = ", ".join(sorted({each.id for each in operators})) or "none"
        raise PluginError(
            f"There is no operator {options.operator!r} in the cluster.",
            f"Installed operators: {known}.",
            Exit.NOT_FOUND,
        )
    pods = [pod for each in found for pod in each.pods]
    if not pods:
        raise PluginError(
            f"The {options.operator} operator has no pod.",
            "kubectl slipway status",
            Exit.NOT_FOUND,
        )
    query = {"tailLines": str(options.tail)}
    for pod in pods:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
        if len(pods) > 1:
            print(f"==> {title(pod)} <==")
        for line in cluster.api.text(path, query):
            if not options.object or is_about(line, options.object):
                print(line)
    return Exit.OK


def is_about(line: str, object: str) -> bool:
    """Return whether a log line names an object, as `name` or `namespace/name`."""
    namespace, _, name = object.rpartition("/")
    try:
        fields = json.loads(line)
    except ValueError:
        return object in line
    if not isinstance(fields, dict):
        return object in line
    same = name == str(fields.get("name", "")).rpartition("/")[2]
    return same and namespace in ("", str(fields.get("namespace", namespace)))
