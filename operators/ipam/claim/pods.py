"""Check that the endpoints of a Service are pods of its namespace.

Anyone who can write EndpointSlices could otherwise route an address to any IP, also in pools that
deny plain IPs as targets. The reference to a pod in an endpoint proves nothing, so the pod is read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from libs.common.kinds import POD, uid_of
from libs.common.reading import maps_at, text_at
from libs.common.runtime import Context
from operators.ipam.claim.binding import RoutedEndpoint

_LIMIT: Final = 20_000
"""Maximum number of remembered endpoints."""


class PodEndpoints:
    """The endpoints that were compared with their pods; the addresses of a pod never change."""

    def __init__(self) -> None:
        """Start without any endpoint."""
        self._known: OrderedDict[tuple[str, str], bool] = OrderedDict()

    async def contains(self, ctx: Context, place: RoutedEndpoint) -> bool:
        """Return whether an endpoint is a pod in the namespace of the claim."""
        if place.pod is None or place.pod.namespace != ctx.key.namespace:
            return False
        key = (place.pod_uid, place.address)
        if key not in self._known:
            pod = await ctx.live_get(POD, place.pod)
            addresses = {text_at(each, "ip") for each in maps_at(pod or {}, "status", "podIPs")}
            same = pod is not None and uid_of(pod) == place.pod_uid
            self._known[key] = same and place.address in addresses
            while len(self._known) > _LIMIT:
                self._known.popitem(last=False)
        return self._known[key]
