"""IPPool, IPClaim and IPAllocation, fuzzed."""

from __future__ import annotations

from typing import Final

from lab.fuzz.subject import FuzzSubject
from libs.common.kinds import Manifest
from operators.ipam.addresses import render_address
from operators.ipam.api.v1alpha1.allocations import IPAllocation
from operators.ipam.api.v1alpha1.claims import IPClaim
from operators.ipam.api.v1alpha1.pools import IPPool
from operators.ipam.claim import whole_address
from operators.ipam.claim.binding import Binding, RoutedEndpoint
from operators.ipam.claim.resources import PortMap, Publication, build_children
from operators.ipam.claim.whole_address import is_whole
from operators.ipam.conformance_test import TestBoundClaimConformance
from operators.ipam.naming import allocation_name
from operators.ipam.pool.reconcile import build_range

_ADDRESS: Final = "203.0.113.7"


def render_pool(manifest: Manifest) -> list[Manifest]:
    """Work out what the pool has to give; entries of the ledger follow from claims."""
    found = build_range(IPPool.parse(manifest).spec)
    if found.addresses.size:
        render_address(found.addresses.at(0), v6=found.v6)
    return []


def render_claim(manifest: Manifest) -> list[Manifest]:
    """Build the Service and the slices of a claim with an address and a target."""
    claim = IPClaim.parse(manifest)
    ports = tuple(PortMap.of(port) for port in claim.spec.ports)
    if is_whole(claim):
        ports = whole_address.WHOLE_PORTS
    if claim.spec.target is None or not ports:
        return []
    binding = Binding(target=str(claim.spec.target), places=(RoutedEndpoint("10.0.0.7"),), epoch=1)
    labels = whole_address.LABELS if is_whole(claim) else {}
    shown = Publication((_ADDRESS,), binding, ports, proxy_labels=labels)
    return [child for _, child in build_children(claim, shown)]


def render_entry(manifest: Manifest) -> list[Manifest]:
    """Read an entry of the ledger, of which nothing is made."""
    IPAllocation.parse(manifest)
    return []


SUBJECTS: Final = (
    FuzzSubject(
        "ipam",
        IPClaim,
        {
            "poolRef": {"name": "public"},
            "target": {"kind": "Service", "name": "x-one"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
        render_claim,
        live=TestBoundClaimConformance.subject,
    ),
    FuzzSubject(
        "ipam",
        IPPool,
        {
            "family": "IPv4",
            "addresses": ["203.0.113.0/28", "203.0.113.32-203.0.113.40"],
            "excluded": ["203.0.113.7"],
            "prefix": 24,
            "gateway": "203.0.113.1",
            "allowedNamespaces": {"matchLabels": {"team": "shop"}},
            "quotaPerNamespace": 5,
            "maxPriority": 0,
        },
        render_pool,
    ),
    FuzzSubject(
        "ipam",
        IPAllocation,
        {
            "realm": "public",
            "address": _ADDRESS,
            "poolRef": {"name": "public", "uid": "11111111-1111-4111-8111-111111111111"},
            "claimRef": {
                "namespace": "default",
                "name": "web",
                "uid": "22222222-2222-4222-8222-222222222222",
            },
        },
        render_entry,
        name=allocation_name("public", _ADDRESS),
    ),
)
