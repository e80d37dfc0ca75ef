"""The load balancer of the simulator on a fake API server: immediately, and without a process.

For tests that drive a fake API server themselves, such as a conformance run of hundreds of crashes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from lab.kubevirt_sim.load_balancer import (
    announced,
    build_refusal,
    choose_addresses,
    is_served,
)
from lab.kubevirt_sim.settings import LoadBalancer
from libs.common.errors import AlreadyExists
from libs.common.kinds import SERVICE, key_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.store import Change

_LONG_AGO: Final = datetime(2026, 1, 1, tzinfo=UTC)


def announce(api: FakeApi, kind: LoadBalancer = "MetalLB") -> None:
    """Announce or refuse each Service of type LoadBalancer that has no address yet."""
    for service in api.objects(SERVICE):
        if not is_served(service) or announced(service):
            continue
        taken = [address for each in api.objects(SERVICE) for address in announced(each)]
        addresses = choose_addresses(service, kind, taken)
        refusal = None if addresses else build_refusal(service, kind, _LONG_AGO)
        if addresses:
            ingress = [{"ip": each} for each in addresses]
            api.patch_status(SERVICE, key_of(service), {"loadBalancer": {"ingress": ingress}})
        elif refusal is not None:
            with suppress(AlreadyExists):
                api.create(refusal)


def attach_load_balancer(api: FakeApi, kind: LoadBalancer = "MetalLB") -> Callable[[], None]:
    """Announce each Service soon after it is created or changed; return what ends that."""
    loop = asyncio.get_running_loop()

    def look(change: Change) -> None:
        if change.table == (SERVICE.group, SERVICE.plural):
            loop.call_soon(announce, api, kind)

    api.store.listeners.append(look)
    return lambda: api.store.listeners.remove(look)
