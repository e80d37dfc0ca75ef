"""Recorder: watches record every version of every object, independently of the operators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from lab.sweep.ownership import belongs
from libs.common.client import Client
from libs.common.client_requests import ObjectList
from libs.common.errors import Expired, SlipwayError
from libs.common.kinds import Kind, Manifest, uid_of

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
        """Resource version as a number, which orders versions of all kinds."""
        text = str(self.manifest["metadata"].get("resourceVersion") or "")
        return int(text) if text.isdecimal() else 0

    @property
    def title(self) -> str:
        """Resource and name, as in counts and messages."""
        return f"{self.kind.plural} {self.name}"


@dataclass
class NamespaceRecord:
    """The history of one namespace.

    Attributes:
        history: Every version, in the order of its arrival.
        live: Existing objects.
        names: Title of every object that ever existed, by UID.
        phase: Current phase of the workload, which new versions are assigned to.
    """

    history: list[Version] = field(default_factory=list)
    live: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    phase: str = ""

    def note(self, action: str, kind: Kind, manifest: Manifest) -> None:
        """Record one version."""
        version = Version(action, kind, manifest, self.phase)
        self.history.append(version)
        self.names[uid_of(manifest)] = version.title
        place = (kind.plural, version.name)
        if action == "DELETED":
            self.live.pop(place, None)
        else:
            self.live[place] = manifest

    def get(self, kind: Kind, name: str) -> Manifest | None:
        """Return an existing object, or None."""
        return self.live.get((kind.plural, name))

    def list(self, kind: Kind) -> Sequence[Manifest]:
        """Return the existing objects of a kind, in the order of their names."""
        found = sorted(place for place in self.live if place[0] == kind.plural)
        return [self.live[place] for place in found]

    def uids(self) -> set[str]:
        """Return the UIDs of all existing objects."""
        return {uid_of(manifest) for manifest in self.live.values()}


class Recorder:
    """A watch of some kinds in all namespaces.

    Args:
        client: Connection with all rights.
        kinds: Kinds to watch.
    """

    def __init__(self, client: Client, kinds: Iterable[Kind]) -> None:
        """Initialize; `start` starts the watches."""
        self._client = client
        self.kinds = tuple(dict.fromkeys(kinds))
        self._books: dict[str, NamespaceRecord] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.tolerant = False
        """Whether a watch that missed events may list again, which leaves a gap in the history."""

    async def start(self) -> None:
        """Start watching from the current state."""
        for kind in self.kinds:
            listing = await self._client.list(kind)
            work = self._follow(kind, listing.resource_version)
            self._tasks.append(asyncio.create_task(work, name=f"record {kind}"))

    async def stop(self) -> None:
        """Stop the watches.

        Raises:
            Expired: A watch missed events, so the history is incomplete.
        """
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Expired):
                raise result

    def open(self, namespace: str) -> NamespaceRecord:
        """Start the record of a namespace."""
        return self._books.setdefault(namespace, NamespaceRecord())

    def close(self, namespace: str) -> None:
        """End the record of a namespace."""
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
        """Record the difference between the recorded and the existing objects."""
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
