"""A load balancer for tests: announces what Services ask for, refuses it, or picks an address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from libs.common.kinds import CORE_EVENT, SERVICE, Key, Manifest, build_object, key_of, uid_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.store import Change

METALLB = "metallb.io/loadBalancerIPs"
CILIUM = "lbipam.cilium.io/ips"
KUBE_VIP = "kube-vip.io/loadbalancerIPs"

type Choose = Callable[[Manifest], list[str]]
"""Returns the addresses that a load balancer announces for a Service; none for a refusal."""


def read_annotation(name: str, otherwise: str = "") -> Choose:
    """Announce what an annotation asks for, or another address if it is missing."""

    def choose(service: Manifest) -> list[str]:
        wanted = service["metadata"].get("annotations", {}).get(name, otherwise)
        return [each for each in wanted.split(",") if each]

    return choose


_METALLB_CHOICE = read_annotation(METALLB)


def announce(api: FakeApi, choose: Choose = _METALLB_CHOICE) -> None:
    """Write the status of each Service of type LoadBalancer that has none yet."""
    for service in api.objects(SERVICE):
        shown = service.get("status", {}).get("loadBalancer", {}).get("ingress")
        if service["spec"].get("type") != "LoadBalancer" or shown:
            continue
        addresses = choose(service)
        if addresses:
            ingress = [{"ip": each} for each in addresses]
            api.patch_status(SERVICE, key_of(service), {"loadBalancer": {"ingress": ingress}})


def attach_load_balancer(api: FakeApi, choose: Choose = _METALLB_CHOICE) -> Callable[[], None]:
    """Announce each Service soon after it is made or changed; returns what ends that."""
    loop = asyncio.get_running_loop()

    def look(change: Change) -> None:
        if change.table == (SERVICE.group, SERVICE.plural):
            loop.call_soon(announce, api, choose)

    api.store.listeners.append(look)
    return lambda: api.store.listeners.remove(look)


def refuse_by_event(api: FakeApi, key: Key, message: str) -> None:
    """Refuse a Service as MetalLB does: by an Event alone."""
    service = api.get(SERVICE, key)
    event = build_object(CORE_EVENT, f"{key.name}.1", key.namespace)
    involved = {"apiVersion": "v1", "kind": "Service", "name": key.name, "uid": uid_of(service)}
    event |= {
        "involvedObject": {**involved, "namespace": key.namespace},
        "type": "Warning",
        "reason": "AllocationFailed",
        "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    api.create(event)
