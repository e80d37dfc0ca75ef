"""Publishes what an API server trusts, in the objects that say which webhooks it calls."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.common.client import Client
from libs.common.errors import Conflict, Invalid, patch_error
from libs.common.kinds import Key, Kind, Manifest, key_of
from libs.common.reading import map_at

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class TrustingObject:
    """A cluster-scoped object that says which webhooks the API server calls and trusts.

    Attributes:
        kind: A kind of webhook configuration.
        name: Its name; it must exist.
    """

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Trusting:
    """A `TrustingObject` as it was read."""

    kind: Kind
    manifest: Manifest


class TrustPublisher:
    """Reads and writes the CA bundles of one Service.

    Args:
        client: Connection that writes on standbys too.
        service: The Service behind which the webhooks are.
        objects: Where the bundle is published.
    """

    def __init__(self, client: Client, service: Key, objects: Sequence[TrustingObject]) -> None:
        """Remember the objects; nothing is sent."""
        self._client = client
        self._service = service
        self._objects = tuple(objects)

    async def read(self) -> list[Trusting]:
        """Read the objects. Do this before the certificate is read.

        A replica that publishes between the two reads makes the write conflict; the other way
        round its bundle would be replaced by an older one.
        """
        return [
            Trusting(each.kind, await self._client.get(each.kind, Key("", each.name)))
            for each in self._objects
        ]

    def list_bundles(self, found: Trusting) -> list[bytes]:
        """Return the bundles with which an object trusts our webhooks, as it was read."""
        return [_read_bundle(config) for _, config in self._list_ours(found)]

    async def publish(self, found: Trusting, choose: Callable[[bytes], bytes]) -> None:
        """Replace the bundles of an object.

        Args:
            found: The object.
            choose: Returns the bundle that should follow on a present one.

        Raises:
            Conflict: The object has changed since it was read.
            SlipwayError: It cannot be written.
        """
        operations: list[Manifest] = []
        for path, config in self._list_ours(found):
            present = _read_bundle(config)
            if (wanted := choose(present)) != present:
                value = base64.b64encode(wanted).decode()
                operations.append({"op": "add", "path": f"{path}/caBundle", "value": value})
        if not operations:
            return
        # The webhooks are counted in the version that was read.
        version = found.manifest["metadata"]["resourceVersion"]
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        try:
            await self._client.patch(found.kind, key_of(found.manifest), [test, *operations])
        except Invalid as error:
            raise patch_error(error) from error

    def _list_ours(self, found: Trusting) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for path, config in _list_client_configs(found.manifest):
            service = map_at(config, "service")
            if not service or Key(service["namespace"], service["name"]) == self._service:
                yield path, config


async def retry_conflicts[T](call: Callable[[], Awaitable[T]]) -> T:
    """Call again, some times, after another replica was faster.

    Raises:
        Conflict: Another one was faster each time.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(Conflict):
            return await call()
    return await call()


def _list_client_configs(found: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each `clientConfig` of an object with its JSON pointer."""
    for index, webhook in enumerate(found.get("webhooks") or ()):
        yield f"/webhooks/{index}/clientConfig", webhook["clientConfig"]


def _read_bundle(config: Mapping[str, Any]) -> bytes:
    return base64.b64decode(config.get("caBundle") or "")
