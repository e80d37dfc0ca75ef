"""`kubectl slipway force-finalize`: skip the clean-up of an object that is being deleted."""

from __future__ import annotations

import argparse
import sys

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.errors import Exit, PluginError
from kubectl_slipway.model import FORCE_FINALIZE, condition, is_deleting, title


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """List what the clean-up would leave behind, ask for confirmation, and set the annotation."""
    resource, name = cluster.parse_target(options.target, options.second)
    manifest = cluster.get(resource, name)
    if not is_deleting(manifest):
        raise PluginError(
            f"{title(manifest)} is not being deleted.",
            f"Delete it first: kubectl delete {resource.qualified} {name}",
            Exit.USAGE,
        )
    children = cluster.gather(resource, manifest).children
    waiting = condition(manifest, "Terminating")
    if waiting is not None and waiting.message:
        print(f"The clean-up waits: {waiting.message}")
    print("Without the clean-up, the operator deletes nothing outside of the cluster.")
    if children:
        listed = ", ".join(sorted(title(each.manifest) for each in children))
        print(f"Kubernetes deletes the objects that {title(manifest)} owns: {listed}.")
    if not options.yes and not _confirm(name):
        print("Nothing was changed.")
        return Exit.PROBLEM
    where = manifest["metadata"].get("namespace") or ""
    patch = {
        "metadata": {
            "uid": manifest["metadata"]["uid"],
            "annotations": {FORCE_FINALIZE: "true"},
        }
    }
    cluster.api.patch(resource.path(where, name), patch)
    print(f"{title(manifest)} annotated; its operator removes the finalizer")
    return Exit.OK


def _confirm(name: str) -> bool:
    if not sys.stdin.isatty():
        raise PluginError(
            "Cannot ask for confirmation: standard input is not a terminal.",
            "Use --yes.",
            Exit.USAGE,
        )
    return input(f"Type the name of the object to continue ({name}): ").strip() == name
