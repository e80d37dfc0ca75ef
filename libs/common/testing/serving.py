"""Serving: what makes a real API server know kinds that it did not know before."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator
from typing import Final

import orjson

from libs.common.client import Client
from libs.common.crd import CustomResource, build_crd
from libs.common.errors import AlreadyExists, NotFound
from libs.common.kinds import CRD, Kind, Manifest, key_of, uid_of

_SERVED_SECONDS: Final = 180.0
_POLL: Final = 0.05
_DIGEST: Final = "slipway.dev/crd-digest"
"""Annotation with the hash of the CRD that was installed here."""


async def serve(client: Client, *definitions: type[CustomResource] | Manifest) -> None:
    """Install CRDs and wait until their kinds are served.

    A CRD of the same name that somebody else installed, such as a part of it for another test, is
    deleted with its objects.

    Args:
        client: Connection with all rights.
        definitions: Models of ours, or the CRDs of others.

    Raises:
        TimeoutError: A kind is not served in time.
    """
    crds = [each if isinstance(each, dict) else build_crd(each) for each in definitions]
    async with asyncio.timeout(_SERVED_SECONDS):
        for crd in crds:
            await _install(client, crd)
        for crd in crds:
            for kind in kinds_of(crd):
                await wait_served(client, kind)


async def _install(client: Client, crd: Manifest) -> None:
    digest = hashlib.sha256(orjson.dumps(crd, option=orjson.OPT_SORT_KEYS)).hexdigest()
    notes = {**(crd["metadata"].get("annotations") or {}), _DIGEST: digest}
    wanted = {**crd, "metadata": {**crd["metadata"], "annotations": notes}}
    key = key_of(crd)
    while True:
        with contextlib.suppress(AlreadyExists):
            await client.create(CRD, wanted)
            return
        with contextlib.suppress(NotFound):
            live = await client.get(CRD, key)
            if (live["metadata"].get("annotations") or {}).get(_DIGEST) == digest:
                return
            await client.delete(CRD, key, uid=uid_of(live))
        await asyncio.sleep(_POLL)


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
