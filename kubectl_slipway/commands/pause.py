"""`kubectl slipway pause` and `resume`: the annotation that stops reconciliation of one object."""

from __future__ import annotations

import argparse

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.errors import Exit
from kubectl_slipway.model import PAUSED, is_paused, title


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Set or remove the annotation."""
    resource, name = cluster.parse_target(options.target, options.second)
    manifest = cluster.get(resource, name)
    wanted = bool(options.pause)
    if is_paused(manifest) is wanted:
        print(f"{title(manifest)} {'is paused already' if wanted else 'is not paused'}")
        return Exit.OK
    patch = {"metadata": {"annotations": {PAUSED: "true" if wanted else None}}}
    where = manifest["metadata"].get("namespace") or ""
    cluster.api.patch(resource.path(where, name), patch)
    print(f"{title(manifest)} {'paused' if wanted else 'resumed'}")
    return Exit.OK
