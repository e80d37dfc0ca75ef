"""Watch streams, and the ways in which a test can make them misbehave."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from libs.common.kinds import Kind, Manifest
from libs.common.testing.fakeapi.faults import Fault
from libs.common.testing.fakeapi.registry import Registry, Table
from libs.common.testing.fakeapi.statuses import StatusError, expired
from libs.common.testing.fakeapi.store import Change, Record, Store
from libs.common.testing.fakeapi.views import Selection

type GoneForm = Literal["stream", "http"]
"""How a watch learns that its resource version is too old."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(slots=True, eq=False)
class Stream:
    """The state of one open watch.

    Attributes:
        table: Resource that is watched.
        selection: Which of its objects.
        lines: Frames not sent yet.
        wake: Set when there is something to do.
        version: Resource version up to which the client has been told everything.
        bookmarks: Whether the client asked for bookmarks.
        begun: Whether an object was sent.
        silent: Whether nothing is ever sent again, though the connection stays open.
        closing: How the connection should end: cleanly, or in the middle of a frame.
    """

    table: Table
    selection: Selection
    version: int
    bookmarks: bool = False
    begun: bool = False
    silent: bool = False
    closing: Literal["", "clean", "abrupt"] = ""
    lines: deque[bytes] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def feed(self, change: Change) -> None:
        """Queue the frame for a change, if the selection sees it."""
        self.version = change.version
        type_ = self._type_of(change)
        if type_:
            record = change.record
            if type_ == "DELETED" and change.type != "DELETED" and change.before is not None:
                # The object left the selection: its last selected state, at this version.
                record = _at_version(change.before, change.version)
            self.put(type_, record)

    def _type_of(self, change: Change) -> str:
        now = change.type != "DELETED" and self.selection.includes(change.key, change.record.obj)
        before = change.before is not None and self.selection.includes(
            change.key, change.before.obj
        )
        if now:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else ""

    def put(self, type_: str, record: Record) -> None:
        """Queue a frame."""
        view = self.selection.view
        if view.form == "table" and self.begun:
            body = orjson.dumps(view.shown_next(record.obj))
        else:
            body = view.encode(record)
        self.begun = True
        self.lines.append(b'{"type":"%s","object":%s}\n' % (type_.encode(), body))
        self.wake.set()

    def put_bookmark(self, *, initial: bool = False) -> None:
        """Queue a bookmark at the version reached."""
        view = self.selection.view
        metadata: Manifest = {"resourceVersion": str(self.version), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        target = view.target
        obj: Manifest = {"kind": target.resource.kind, "apiVersion": target.api_version}
        if view.form != "object":
            kind = "PartialObjectMetadata" if view.form == "metadata" else "Table"
            obj = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        frame = {"type": "BOOKMARK", "object": {**obj, "metadata": metadata}}
        self.lines.append(orjson.dumps(frame) + b"\n")
        self.wake.set()

    def put_error(self, error: StatusError) -> None:
        """Queue an ERROR frame; the stream ends after it."""
        self.lines.append(orjson.dumps({"type": "ERROR", "object": error.body}) + b"\n")
        self.closing = "clean"
        self.wake.set()

    def close(self, how: Literal["clean", "abrupt"]) -> None:
        """End the stream."""
        self.closing = how
        self.wake.set()


def _at_version(record: Record, version: int) -> Record:
    metadata = {**record.obj["metadata"], "resourceVersion": str(version)}
    return Record({**record.obj, "metadata": metadata}, version)


@dataclass(slots=True)
class _WatchFaults:
    """What is wrong, on purpose, with the watches of one resource."""

    paused: bool = False
    silent: bool = False
    drop: int = 0
    duplicate: int = 0
    refuse: deque[GoneForm] = field(default_factory=deque)


class Watches:
    """Feed all watch streams; the controls of a test are methods here.

    Every control takes a kind. `resume` and `restore` undo `pause` and `silence`.
    """

    def __init__(self, store: Store, registry: Registry) -> None:
        """Listen to the store."""
        self._store = store
        self._registry = registry
        self._streams: defaultdict[Table, list[Stream]] = defaultdict(list)
        self._disorder: defaultdict[Table, _WatchFaults] = defaultdict(_WatchFaults)
        store.listeners.append(self._publish)

    # -- controls -----------------------------------------------------------------------------

    def count(self, kind: Kind) -> int:
        """Return how many watches of a kind are open."""
        return len(self._streams[self._table(kind)])

    def cut(self, kind: Kind, *, mid_line: bool = False) -> int:
        """End the open watches of a kind; returns how many there were.

        Args:
            kind: Which watches.
            mid_line: Send half a frame and drop the connection, rather than end the response.
        """
        streams = list(self._streams[self._table(kind)])
        for stream in streams:
            stream.close("abrupt" if mid_line else "clean")
        return len(streams)

    def silence(self, kind: Kind) -> None:
        """Keep watches of a kind open but send nothing, even on new ones, until `restore`.

        The streams that are open now stay dead permanently, as behind a broken load balancer.
        """
        table = self._table(kind)
        self._disorder[table].silent = True
        for stream in self._streams[table]:
            stream.silent = True

    def restore(self, kind: Kind) -> None:
        """Let new watches of a kind work again after `silence`."""
        self._disorder[self._table(kind)].silent = False

    def pause(self, kind: Kind) -> None:
        """Hold back the events of a kind, so that caches go stale; `resume` delivers them."""
        self._disorder[self._table(kind)].paused = True

    def resume(self, kind: Kind) -> None:
        """Deliver what `pause` held back, in order."""
        table = self._table(kind)
        self._disorder[table].paused = False
        for stream in self._streams[table]:
            stream.wake.set()

    def drop_next(self, kind: Kind, n: int = 1) -> None:
        """Never deliver the next events of a kind to the watches open then."""
        self._disorder[self._table(kind)].drop += n

    def duplicate_next(self, kind: Kind, n: int = 1) -> None:
        """Deliver the next events of a kind twice."""
        self._disorder[self._table(kind)].duplicate += n

    def expire(self, kind: Kind, form: GoneForm = "stream") -> None:
        """Tell the watches of a kind that their resource version is too old.

        Args:
            kind: Which watches.
            form: `stream` sends an ERROR event on those open, or on the next one when none is;
                `http` ends those open and answers the next request with status 410.
        """
        table = self._table(kind)
        streams = list(self._streams[table])
        if form == "http" or not streams:
            self._disorder[table].refuse.append(form)
        for stream in streams:
            if form == "http":
                stream.close("clean")
            else:
                stream.put_error(too_old(stream.version, self._store.version))

    def fail(self, kind: Kind, status: int = 500) -> None:
        """Send an ERROR event of some status on the watches of a kind, and end them."""
        for stream in list(self._streams[self._table(kind)]):
            stream.put_error(Fault(status=status).error())

    def bookmark(self, kind: Kind) -> None:
        """Send a bookmark at the current resource version to those who asked for them."""
        for stream in self._streams[self._table(kind)]:
            if stream.bookmarks:
                stream.version = self._store.version
                stream.put_bookmark()

    # -- streams ------------------------------------------------------------------------------

    def open(self, stream: Stream) -> None:
        """Start feeding a stream."""
        stream.silent = stream.silent or self._disorder[stream.table].silent
        self._streams[stream.table].append(stream)

    def close(self, stream: Stream) -> None:
        """Stop feeding a stream."""
        if stream in self._streams[stream.table]:
            self._streams[stream.table].remove(stream)

    def close_all(self) -> None:
        """End every stream, when the server stops."""
        for streams in self._streams.values():
            for stream in streams:
                stream.close("clean")

    def is_held(self, stream: Stream) -> bool:
        """Return whether nothing may be sent on a stream now."""
        return stream.silent or self._disorder[stream.table].paused

    def take_refusal(self, table: Table) -> GoneForm | None:
        """Return how the next watch should be refused, if a test requested that."""
        refusals = self._disorder[table].refuse
        return refusals.popleft() if refusals else None

    def _table(self, kind: Kind) -> Table:
        return self._registry.of(kind)[0].table

    def _publish(self, change: Change) -> None:
        disorder = self._disorder[change.table]
        if disorder.drop:
            disorder.drop -= 1
            return
        times = 1
        if disorder.duplicate:
            disorder.duplicate -= 1
            times = 2
        for stream in self._streams[change.table]:
            for _ in range(times):
                stream.feed(change)


def too_old(version: int, current: int) -> StatusError:
    """Build the 410 for a resource version whose history is gone."""
    return expired(f"too old resource version: {version} ({current})")


async def pump(
    stream: Stream,
    watches: Watches,
    write: Callable[[bytes], Any],
    *,
    timeout: float | None,
    bookmark_interval: float,
) -> None:
    """Send the frames of a stream until it is closed or its time is up.

    Args:
        stream: What to send.
        watches: Knows what is held back.
        write: Sends bytes; awaited.
        timeout: Seconds after which a working stream ends; None for never.
        bookmark_interval: Seconds between bookmarks on an idle stream.
    """
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + timeout
    while True:
        stream.wake.clear()
        if not watches.is_held(stream) and stream.lines:
            chunk = b"".join(stream.lines)
            stream.lines.clear()
            if stream.closing == "abrupt":
                chunk = chunk[: max(1, len(chunk) // 2)]
            await write(chunk)
            continue
        if stream.closing:
            if stream.closing == "abrupt":
                await write(b'{"type":"MODIFIED","object":{"kind":')
            return
        if not await _wait(stream, end, bookmark_interval):
            if end is not None and loop.time() >= end and not stream.silent:
                if stream.bookmarks and not watches.is_held(stream):
                    stream.put_bookmark()
                    await write(stream.lines.pop())
                return
            if stream.bookmarks:
                stream.put_bookmark()


async def _wait(stream: Stream, end: float | None, bookmark_interval: float) -> bool:
    """Wait until the stream is woken; False when it is time for a bookmark or the end."""
    loop = asyncio.get_running_loop()
    due = bookmark_interval
    if end is not None and not stream.silent:
        due = min(due, max(0.0, end - loop.time()))
    try:
        async with asyncio.timeout(due):
            await stream.wake.wait()
    except TimeoutError:
        return False
    return True
