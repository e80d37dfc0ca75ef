"""Recorder: an independent witness that sees every version of every object, and who was there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.common.client import Client, ObjectList
from libs.common.errors import Expired, SlipwayError
from libs.common.kinds import Key, Kind, Manifest, uid_of
from tools.sweep.ownership import belongs

_RETRY: Final = 0.1


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object, from a watch.

    Attributes:
        action: ADDED, MODIFIED or DELETED.
        kind: Kind of the object.
        manifest: The object.
        phase: Phase of the workload in which it was seen.
    """

    action: str
    kind: Kind
    manifest: Manifest
    phase: str = ""

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.manifest["metadata"]["name"])

    @property
    def number(self) -> int:
        """Resource version as a number, by which versions of all kinds are in order."""
        text = str(self.manifest["metadata"].get("resourceVersion") or "")
        return int(text) if text.isdecimal() else 0

    @property
    def title(self) -> str:
        """Resource and name, as counts and messages have them."""
        return f"{self.kind.plural} {self.name}"


@dataclass
class NamespaceRecord:
    """The history of one namespace.

    Attributes:
        history: Every version, in the order of its arrival.
        live: Existing objects.
        names: Title of each UID that ever was.
        phase: Phase of the workload that new versions are booked under.
    """

    history: list[Version] = field(default_factory=list)
    live: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    phase: str = ""

    def note(self, action: str, kind: Kind, manifest: Manifest) -> None:
        """Book one version."""
        version = Version(action, kind, manifest, self.phase)
        self.history.append(version)
        self.names[uid_of(manifest)] = version.title
        place = (kind.plural, version.name)
        if action == "DELETED":
            self.live.pop(place, None)
        else:
            self.live[place] = manifest

    def get(self, kind: Kind, name: str) -> Manifest | None:
        """Return an object that is there now, or None."""
        return self.live.get((kind.plural, name))

    def list(self, kind: Kind) -> Sequence[Manifest]:
        """Return the objects of a kind that are there now, by name."""
        found = sorted(place for place in self.live if place[0] == kind.plural)
        return [self.live[place] for place in found]

    def uids(self) -> set[str]:
        """Return the UIDs of all objects that are there now."""
        return {uid_of(manifest) for manifest in self.live.values()}


class Recorder:
    """A watch of some kinds in all namespaces.

    Args:
        client: Connection with all rights.
        kinds: What to watch.
    """

    def __init__(self, client: Client, kinds: Iterable[Kind]) -> None:
        """Prepare; `start` watches."""
        self._client = client
        self._kinds = tuple(dict.fromkeys(kinds))
        self._books: dict[str, NamespaceRecord] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.tolerant = False
        """Whether a watch that missed something may list again; its history has a gap then."""

    async def start(self) -> None:
        """Begin to watch from what exists now."""
        for kind in self._kinds:
            listing = await self._client.list(kind)
            work = self._follow(kind, listing.resource_version)
            self._tasks.append(asyncio.create_task(work, name=f"record {kind}"))

    async def stop(self) -> None:
        """End the watches.

        Raises:
            Expired: A watch had missed something, so that no history can be trusted.
        """
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Expired):
                raise result

    def open(self, namespace: str) -> NamespaceRecord:
        """Begin to keep a book on a namespace."""
        return self._books.setdefault(namespace, NamespaceRecord())

    def close(self, namespace: str) -> None:
        """Keep no book on a namespace any more."""
        self._books.pop(namespace, None)

    async def _follow(self, kind: Kind, version: str) -> None:
        while True:
            try:
                async for event in self._client.watch(
                    kind, "", resource_version=version, timeout_seconds=600
                ):
                    version = event.object["metadata"]["resourceVersion"]
                    if event.type != "BOOKMARK":
                        self._note(event.type, kind, event.object)
            except Expired:
                if not self.tolerant:
                    raise
                version = await self._catch_up(kind)
            except SlipwayError:
                await asyncio.sleep(_RETRY)

    async def _catch_up(self, kind: Kind) -> str:
        """Book the difference between what is known and what exists now."""
        listing = await self._list(kind)
        for trial, record in self._books.items():
            known = {uid_of(each): each for each in record.list(kind)}
            found = {uid_of(each): each for each in listing.items if belongs(each, trial)}
            for uid in known.keys() - found.keys():
                record.note("DELETED", kind, known[uid])
            for uid, manifest in found.items():
                if manifest != known.get(uid):
                    record.note("MODIFIED" if uid in known else "ADDED", kind, manifest)
        return listing.resource_version

    async def _list(self, kind: Kind) -> ObjectList:
        while True:
            try:
                return await self._client.list(kind)
            except SlipwayError:
                await asyncio.sleep(_RETRY)

    def _note(self, action: str, kind: Kind, manifest: Manifest) -> None:
        namespace = manifest["metadata"].get("namespace")
        record = self._books.get(namespace) if namespace else None
        if not namespace:
            books = (record for name, record in self._books.items() if belongs(manifest, name))
            record = next(books, None)
        if record is not None:
            record.note(action, kind, manifest)


def place_of(manifest: Manifest) -> Key:
    """Return the key of an object."""
    return Key(manifest["metadata"].get("namespace") or "", manifest["metadata"]["name"])
