"""Check that the endpoints of a Service are pods of its namespace.

Anyone who can write EndpointSlices could otherwise route an address to any IP, also in pools that
deny plain IPs as targets. The reference to a pod in an endpoint proves nothing, so the pod is read.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Final

from libs.common.kinds import POD, uid_of
from libs.common.reading import maps_at, text_at
from libs.common.runtime import Context
from operators.ipam.claim.binding import RoutedEndpoint

TRUST_SECONDS: Final = 300.0
"""Seconds for which a comparison holds. No event of a written EndpointSlice shows that its pod was
deleted, after which a pod of another namespace can get the address."""
_LIMIT: Final = 20_000
"""Maximum number of remembered endpoints."""


class PodEndpoints:
    """The endpoints that were compared with their pods, and when."""

    def __init__(self) -> None:
        """Start without any endpoint."""
        self._known: OrderedDict[tuple[str, str], datetime] = OrderedDict()

    async def contains(self, ctx: Context, place: RoutedEndpoint) -> bool:
        """Return whether an endpoint is a pod in the namespace of the claim."""
        if place.pod is None or place.pod.namespace != ctx.key.namespace:
            return False
        key, now = (place.pod_uid, place.address), ctx.now()
        known = self._known.get(key)
        if known is not None and (now - known).total_seconds() < TRUST_SECONDS:
            return True
        self._known.pop(key, None)
        pod = await ctx.live_get(POD, place.pod)
        addresses = {text_at(each, "ip") for each in maps_at(pod or {}, "status", "podIPs")}
        if pod is None or uid_of(pod) != place.pod_uid or place.address not in addresses:
            return False
        self._known[key] = now
        while len(self._known) > _LIMIT:
            self._known.popitem(last=False)
        return True
