"""A writer of the runtime with its cache, for tests of the steps that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from libs.common.client import Client
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, uid_of
from libs.common.ownership import build_owner_reference
from libs.common.plan import Outcome, Step
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Informer, Origin
from libs.common.runtime.listing import InformerListing
from libs.common.runtime.repairs import Repairs
from libs.common.runtime.store import Change, Store
from libs.common.runtime.unchanged_applies import UnchangedApplies
from libs.common.runtime.writer import Writer
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.widget import WIDGET

KEY: Final = Key("default", "a")
"""The object that most tests write."""
PRIMARY: Final = Key("default", "w")
"""The primary whose pass is played."""
OWNER: Final[Manifest] = {"metadata": {"name": "w", "uid": "owner-1"}}
"""Its incarnation."""
OTHER: Final[Manifest] = {"metadata": {"name": "w", "uid": "owner-2"}}
"""Another incarnation of that name."""


def build_map(name: str = "a", owner: Manifest | None = OWNER, **data: str) -> Manifest:
    """Build a ConfigMap with or without an owner."""
    metadata: Manifest = {"name": name, "namespace": "default"}
    if owner is not None:
        metadata["ownerReferences"] = [build_owner_reference(WIDGET, owner)]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Bench:
    """A writer, its cache, and the changes that handlers received.

    Args:
        api: Whose objects are written.
        client: Connection to it.
    """

    def __init__(self, api: FakeApi, client: Client) -> None:
        """Begin with an empty cache."""
        self.api = api
        api.collector.pause()  # The owners are made up.
        self.client = client
        self.cache = Cache()
        self.informer = Informer(CONFIG_MAP)
        self.cache.add(self.informer)
        self.unknown: set[tuple[Kind, Key]] = set()
        self.unchanged = UnchangedApplies()
        self.clock = FakeClock()
        self.reported: list[tuple[Change, Origin | None]] = []
        self.informer.add_handler(lambda change, origin: self.reported.append((change, origin)))
        self.origin = Origin("widget", PRIMARY)
        self.writer = Writer(
            client,
            self.cache,
            origin=self.origin,
            owner_uid=uid_of(OWNER),
            unknown=self.unknown,
            unchanged=self.unchanged,
            repairs=Repairs(self.clock),
        )

    async def take(self, *steps: Step) -> Outcome:
        """Take steps as one batch."""
        return await self.writer.execute([steps])

    def held(self, key: Key = KEY) -> Mapping[str, Any] | None:
        """Return what the cache has."""
        return self.informer.store.get(key)

    def see(self, key: Key = KEY) -> None:
        """Bring what the server has into the cache."""
        self.informer.put(self.api.get(CONFIG_MAP, key))


def fill_store(
    store: Store, items: Sequence[Manifest], version: int, namespace: str | None = None
) -> list[Change]:
    """Process a complete listing of one namespace, or of all."""
    listing = store.begin_listing(namespace)
    return [*listing.take(items), *listing.finish(version)]


def fill_scope(informer: Informer, items: Sequence[Manifest], version: int, namespace: str) -> None:
    """Process a complete listing of one scope, which is synced then."""
    listing = InformerListing(informer, namespace)
    listing.take(items, version)
    listing.finish(version)
