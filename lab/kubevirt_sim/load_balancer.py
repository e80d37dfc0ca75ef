"""A load balancer that announces what Services ask for, refuses it, or announces something else.

It stands in for MetalLB, Cilium or kube-vip where a cluster has none: it writes
`status.loadBalancer.ingress` of Services of type LoadBalancer and nothing else. **No packet is
routed to the addresses.** Like the real ones, it reads only its own annotation: a Service that asks
in the words of another gets an address from the pool of the load balancer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.edge import SimulatorContext, TurnResult, patch_status, take_turns
from lab.kubevirt_sim.settings import LoadBalancer
from libs.common.conditions import render_time
from libs.common.kinds import CORE_EVENT, SERVICE, Manifest, build_object, key_of, uid_of
from libs.common.plan import Create, Step
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.common.runtime import Context, Controller, Result

ANNOTATIONS: Final[Mapping[LoadBalancer, str]] = {
    "MetalLB": "metallb.io/loadBalancerIPs",
    "Cilium": "lbipam.cilium.io/ips",
    "KubeVip": "kube-vip.io/loadbalancerIPs",
}
"""Annotation by which a Service asks each load balancer for addresses."""
MODE: Final = PREFIX + "load-balancer"
"""Annotation of a Service: `refuse` or `other`."""
POOL: Final = ipaddress.ip_network("198.51.100.0/24")
"""Addresses of the load balancer itself, for Services that do not ask or get others."""


def choose_addresses(
    service: Mapping[str, Any], kind: LoadBalancer, taken: Iterable[str]
) -> list[str]:
    """Return the addresses that are announced for a Service; none if it is refused."""
    notes = text_map_at(service, "metadata", "annotations")
    if notes.get(MODE) == "refuse":
        return []
    asked = notes.get(ANNOTATIONS[kind], "") or text_at(service, "spec", "loadBalancerIP")
    if asked and notes.get(MODE) != "other":
        return [part.strip() for part in asked.split(",")]
    used = frozenset(taken)
    return [next(str(each) for each in POOL.hosts() if str(each) not in used)]


def build_load_balancer(simulator: SimulatorContext) -> Controller:
    """Build the controller of the load balancer."""
    kind = simulator.load_balancer
    assert kind != "Off", "it is built only if it is asked for"

    async def reconcile(ctx: Context) -> Result:
        async def turn(service: Manifest) -> TurnResult:
            return TurnResult(_plan(ctx, service, kind))

        result, _ = await take_turns(ctx, SERVICE, turn)
        return result

    return Controller(
        "sim-load-balancer", primary=SERVICE, reconcile=reconcile, source="reflector"
    ).reads(CORE_EVENT, source="reflector")


def _plan(ctx: Context, service: Manifest, kind: LoadBalancer) -> list[Step]:
    held = dict(service.get("status") or {})
    if not is_served(service):
        return []
    shown = announced(service)
    others = [each for each in ctx.list(SERVICE) if key_of(each) != ctx.key]
    taken = {address for each in others for address in announced(each)}
    wanted = choose_addresses(service, kind, taken)
    if wanted and shown and _are_pooled(wanted) and _are_pooled(shown) and taken.isdisjoint(shown):
        # An address of the pool stays.
        wanted = shown
    if wanted == shown:
        return [] if wanted else _refuse(ctx, service, kind)
    balancer = {"ingress": [{"ip": each} for each in wanted]} if wanted else {}
    return [patch_status(SERVICE, service, {**held, "loadBalancer": balancer})]


def is_served(service: Mapping[str, Any]) -> bool:
    """Return whether the load balancer cares for a Service.

    As the Kubernetes API asks of a default implementation, it ignores Services with a class.
    """
    spec = map_at(service, "spec")
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")


def _are_pooled(addresses: Iterable[str]) -> bool:
    return all(ipaddress.ip_address(each) in POOL for each in addresses)


def announced(service: Mapping[str, Any]) -> list[str]:
    """Return the addresses that are announced for a Service."""
    ingress = maps_at(service, "status", "loadBalancer", "ingress")
    return [address for each in ingress if (address := text_at(each, "ip"))]


def _refuse(ctx: Context, service: Manifest, kind: LoadBalancer) -> list[Step]:
    refusal = build_refusal(service, kind, ctx.now())
    if refusal is None or any(key_of(each) == key_of(refusal) for each in ctx.list(CORE_EVENT)):
        return []
    return [Create(CORE_EVENT, refusal, ours=lambda _: True)]


def build_refusal(service: Mapping[str, Any], kind: LoadBalancer, now: datetime) -> Manifest | None:
    """Build the Event by which MetalLB refuses a Service; None for others, which write none."""
    if kind != "MetalLB":
        return None
    key = key_of(service)
    asked = text_map_at(service, "metadata", "annotations").get(ANNOTATIONS[kind], "")
    return build_object(CORE_EVENT, f"{key.name}.{uid_of(service)[:8]}", key.namespace) | {
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Service",
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid_of(service),
        },
        "type": "Warning",
        "reason": "AllocationFailed",
        "message": f'Failed to allocate IP for "{key}": ["{asked}"] is not allowed in config',
        "source": {"component": "metallb-controller"},
        "firstTimestamp": render_time(now),
        "lastTimestamp": render_time(now),
    }
