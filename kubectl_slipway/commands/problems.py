"""`kubectl slipway problems`: the objects that are not ready."""

from __future__ import annotations

import argparse

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.discovery import CATEGORY
from kubectl_slipway.errors import Exit
from kubectl_slipway.model import is_deleting, is_paused, is_stale, readiness, render_age, title
from kubectl_slipway.output import print_data, print_table, shorten


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print one row per object that is not ready."""
    where = None if options.all_namespaces else cluster.namespace
    objects = cluster.list_ours(where, options.selector)
    found = []
    for _, manifest in objects:
        state = readiness(manifest)
        reason, since = state.reason, state.since
        if is_deleting(manifest):
            reason, since = "Deleting", manifest["metadata"]["deletionTimestamp"]
        elif is_paused(manifest) and state.ok:
            reason = "Paused"
        elif is_stale(manifest) and state.ok:
            reason = "StaleStatus"
        elif state.ok:
            continue
        found.append(
            {
                "namespace": manifest["metadata"].get("namespace") or "",
                "object": title(manifest),
                "ready": state.status,
                "reason": reason,
                "since": since,
                "message": state.message,
            }
        )
    found.sort(key=lambda each: (each["namespace"], each["object"]))
    if options.output != "table":
        print_data(found, options.output)
    elif found:
        print_table(
            ("NAMESPACE", "OBJECT", "READY", "REASON", "SINCE", "MESSAGE"),
            [
                (
                    each["namespace"] or "-",
                    each["object"],
                    each["ready"] or "-",
                    each["reason"],
                    render_age(each["since"], cluster.now) or "-",
                    shorten(each["message"], 80),
                )
                for each in found
            ],
        )
        print("\n`kubectl slipway why KIND/NAME` explains an object.")
    else:
        where = "" if options.all_namespaces else f" in namespace {cluster.namespace}"
        if not cluster.refused and not objects:
            print(f"Nothing was checked: no kind in the category {CATEGORY} has objects{where}.")
        elif not cluster.refused:
            print(f"All {len(objects)} objects of the category {CATEGORY}{where} are ready.")
        else:
            parts = f"{len(cluster.refused)} of {len(cluster.catalog.ours)} kinds"
            print(f"All {len(objects)} objects that you may read{where} are ready.")
            print(f"{parts} could not be read completely.")
    return Exit.PROBLEM if found else Exit.OK
