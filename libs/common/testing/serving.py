"""Serving: what makes a real API server know kinds that it did not know before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from libs.common.client import Client
from libs.common.crd import CustomResource, build_crd
from libs.common.errors import AlreadyExists, NotFound
from libs.common.kinds import CRD, Kind, Manifest

_SERVED_SECONDS: Final = 180.0
_POLL: Final = 0.05


async def serve(client: Client, *definitions: type[CustomResource] | Manifest) -> None:
    """Install CRDs, unless they are there, and wait until their kinds are served.

    Args:
        client: Connection with all rights.
        definitions: Models of ours, or the CRDs of others.

    Raises:
        TimeoutError: A kind is not served within 30 s.
    """
    crds = [each if isinstance(each, dict) else build_crd(each) for each in definitions]
    for crd in crds:
        with contextlib.suppress(AlreadyExists):
            await client.create(CRD, crd)
    async with asyncio.timeout(_SERVED_SECONDS):
        for crd in crds:
            for kind in kinds_of(crd):
                await wait_served(client, kind)


async def wait_served(client: Client, kind: Kind) -> None:
    """Wait until objects of a kind can be asked for; the caller bounds it."""
    while True:
        with contextlib.suppress(NotFound):
            await client.list(kind, metadata_only=True)
            return
        await asyncio.sleep(_POLL)


def kinds_of(crd: Manifest) -> Iterator[Kind]:
    """Yield the kinds that a CRD defines, one for each version that is served."""
    spec = crd["spec"]
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    for version in spec["versions"]:
        if version["served"]:
            yield Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                namespaced=namespaced,
            )
