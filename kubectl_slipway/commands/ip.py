"""`kubectl slipway ip`: the use of the pools, and the claim that has an address."""

from __future__ import annotations

import argparse
from ipaddress import ip_address

from kubectl_slipway.cluster import Cluster, Json
from kubectl_slipway.errors import Exit, PluginError
from kubectl_slipway.model import at, readiness
from kubectl_slipway.output import print_data, print_table

_GROUP = "ipam.slipway.dev"


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print the pools, or the claim that has an address."""
    if options.action == "pools":
        return _print_pools(cluster, options.output)
    return _print_holder(cluster, options.address, options.output)


def _print_pools(cluster: Cluster, output: str) -> Exit:
    pools = cluster.api.list(cluster.require(_GROUP, "IPPool", "ipam").path())
    rows = [
        {
            "pool": each["metadata"]["name"],
            "family": at(each, "spec.family") or "",
            "realm": at(each, "spec.realm") or "",
            "total": at(each, "status.capacity.total") or "",
            "free": at(each, "status.capacity.free") or "",
            "allocated": at(each, "status.capacity.allocated") or 0,
            "quarantined": at(each, "status.capacity.quarantined") or 0,
            "waiting": at(each, "status.capacity.waiting") or 0,
            "ready": readiness(each).status,
        }
        for each in pools
    ]
    if output != "table":
        print_data(rows, output)
    elif rows:
        print_table([key.upper() for key in rows[0]], [list(each.values()) for each in rows])
    else:
        print("No IPPool found.")
    return Exit.PROBLEM if any(each["waiting"] for each in rows) else Exit.OK


def _print_holder(cluster: Cluster, text: str, output: str) -> Exit:
    try:
        address = ip_address(text)
    except ValueError as err:
        raise PluginError(f"{text!r} is not an IP address.", "", Exit.USAGE) from err
    resource = cluster.require(_GROUP, "IPClaim", "ipam")
    found = [
        _describe(each, str(address))
        for each in cluster.api.list(resource.path())
        if str(address) in (at(each, "status.address"), at(each, "status.secondaryAddress"))
    ]
    if output != "table":
        print_data(found, output)
    elif found:
        header = ("ADDRESS", "NAMESPACE", "CLAIM", "POOL", "TARGET", "ROUTED")
        print_table(header, [list(each.values()) for each in found])
    else:
        print(f"No IPClaim has {address}.")
    return Exit.OK if found else Exit.NOT_FOUND


def _describe(claim: Json, address: str) -> dict[str, str]:
    target = at(claim, "spec.target") or {}
    name = target.get("name") or target.get("address") or ""
    secondary = at(claim, "status.secondaryAddress") == address
    return {
        "address": address,
        "namespace": claim["metadata"]["namespace"],
        "claim": claim["metadata"]["name"],
        "pool": str(at(claim, f"spec.{'secondary.' if secondary else ''}poolRef.name") or ""),
        "target": f"{target['kind']}/{name}" if target.get("kind") else "-",
        "routed": str(at(claim, "status.binding.state") or "-"),
    }
