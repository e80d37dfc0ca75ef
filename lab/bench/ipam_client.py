"""A client of the benchmark of ipam: it creates claims and measures when they have addresses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from libs.common.client import Client
from libs.common.errors import Expired, Unreachable
from libs.common.kinds import Kind, Manifest, key_of

_PATIENCE: Final = 300.0
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a candidate.

    Attributes:
        kind: Their kind.
        build: Builds one of a name, namespace and pool.
        is_served: Says whether one has its address.
    """

    kind: Kind
    build: Callable[[str, str, str], Manifest]
    is_served: Callable[[Manifest], bool]


class Requester:
    """A client that creates claims and measures when they get their addresses.

    Args:
        client: The user.
        namespace: Where the claims are.
        claims: What they are like.
    """

    def __init__(self, client: Client, namespace: str, claims: Claims) -> None:
        """Begin with nothing made and nothing seen."""
        self.client = client
        self.claims = claims
        self._namespace = namespace
        self._made: dict[str, float] = {}
        self._served: dict[str, float] = {}

    async def request(self, pool: str, count: int, prefix: str) -> list[float]:
        """Make claims of one pool and wait for all; returns the seconds that each waited.

        Raises:
            TimeoutError: Some got none.
        """
        version = (await self.client.list(self.claims.kind, self._namespace)).resource_version
        watch = asyncio.create_task(self._follow(version, f"{prefix}-", count))
        names = iter([f"{prefix}-{number}" for number in range(count)])

        async def make() -> None:
            for name in names:
                manifest = self.claims.build(name, self._namespace, pool)
                await self.client.create(self.claims.kind, manifest)
                self._made[name] = time.monotonic()

        await asyncio.gather(*(make() for _ in range(_AT_ONCE)))
        async with asyncio.timeout(_PATIENCE):
            await watch
        mine = [name for name in self._made if name.startswith(f"{prefix}-")]
        # An address may be seen before the response to the create is.
        return [max(0.0, self._served[name] - self._made[name]) for name in mine]

    async def _follow(self, version: str, prefix: str, count: int) -> None:
        """Note when claims get their addresses, even after the server has ended a stream."""
        seen = len(self._served)
        while len(self._served) - seen < count:
            with contextlib.suppress(Expired, Unreachable):
                async for event in self.client.watch(
                    self.claims.kind, self._namespace, resource_version=version
                ):
                    if event.type != "BOOKMARK":
                        self._note(event.object, prefix)
                    if len(self._served) - seen >= count:
                        return
            listing = await self.client.list(self.claims.kind, self._namespace)
            version = listing.resource_version
            for item in listing.items:
                self._note(item, prefix)

    def _note(self, claim: Manifest, prefix: str) -> None:
        name = key_of(claim).name
        if name.startswith(prefix) and self.claims.is_served(claim):
            self._served.setdefault(name, time.monotonic())
