"""Reconcile on the objects of a `FakeApi` directly: without HTTP, caches and waiting.

A reconcile that awaits only its context takes a few milliseconds, so a test can afford hundreds of
runs of a whole system, each with a crash at another write. Reads are always current.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import structlog

from libs.common.errors import ApiError, Conflict, ForeignObject, NotFound, api_error
from libs.common.finalizers import is_orphaning
from libs.common.kinds import SECRET, Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import build_inherit_patch, controller_uid, is_former_child
from libs.common.plan import Apply, Create, Delete, Outcome, Patch, Step, StepFailure
from libs.common.runtime import IndexFunction
from libs.common.testing.fakeapi import FakeApi, StatusError
from libs.common.testing.fakeapi.patches import PatchError

type Commit = Callable[[str, Callable[[], Any]], Any]
"""Performs a write, from its description and the function that writes."""
type Objects = list[Manifest]
type FindIndex = Callable[[Kind, str], IndexFunction]
"""Returns the index function of a kind by the name of the index."""


def commit_now(_: str, write: Callable[[], Any]) -> Any:
    """Perform a write."""
    return write()


def finish[T](work: Awaitable[T]) -> T:
    """Run a coroutine that never waits, and return its result.

    Raises:
        RuntimeError: It waits.
    """
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("a reconcile without an event loop waits for something")


class DirectClient:
    """The part of `Client` that such reconciles use, on a `FakeApi`."""

    def __init__(self, api: FakeApi) -> None:
        """Store the API server."""
        self.api = api

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """Return an object.

        Raises:
            NotFound: There is none.
        """
        held = self.api.find(kind, key)
        if held is None:
            raise NotFound(404, "NotFound", f'{kind.plural} "{key.name}" not found')
        return held

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create an object."""
        with refusals(f"create {kind}"):
            return self.api.create(manifest)

    async def patch(self, kind: Kind, key: Key, patch: Any, *, subresource: str = "") -> Manifest:
        """Change an object by a JSON patch or a merge patch."""
        with refusals(f"patch {kind}"):
            return self.api.patch(kind, key, patch, subresource=subresource)

    async def raw(self, method: str, path: str, body: Any) -> None:
        """Put a pod on a node, the only request by path that the fake answers here."""
        *_, namespace, _plural, name, subresource = path.split("/")
        assert (method, subresource) == ("POST", "binding")
        self.api.bind(Key(namespace, name), body["target"]["name"])


class DirectContext:
    """A replacement of `Context` that reads and writes the objects of a `FakeApi`.

    Args:
        api: API server.
        kind: Kind of the primary.
        primary: Object to reconcile.
        now: Returns the time.
        find_index: Returns the function of an index.
        commit: Performs each write.
    """

    def __init__(
        self,
        api: FakeApi,
        kind: Kind,
        primary: Manifest,
        now: Callable[[], datetime],
        find_index: FindIndex,
        commit: Commit = commit_now,
    ) -> None:
        """Start a reconcile of an object."""
        self.api = api
        self.kind = kind
        self.primary = primary
        self.key = key_of(primary)
        self.uid = uid_of(primary)
        self.generation = int(primary["metadata"].get("generation") or 0)
        self.is_orphaning = is_orphaning(primary)
        self.log = structlog.get_logger("direct")
        self.client: Any = DirectClient(api)
        self.now = now
        self._find_index = find_index
        self._commit = commit

    def get(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object, or None; it is shared and must not be changed."""
        return find_shared(self.api, kind, key)

    async def live_get(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object, or None."""
        return find_shared(self.api, kind, key)

    def list(self, kind: Kind, namespace: str | None = None) -> Objects:
        """Return the objects of a kind, by default in the namespace of the primary."""
        where = (namespace or self.key.namespace) if kind.namespaced else ""
        return [
            held for held in list_shared(self.api, kind) if where in ("", key_of(held).namespace)
        ]

    def indexed(self, kind: Kind, index: str, value: str) -> Objects:
        """Return the objects of an index with a value."""
        function = self._find_index(kind, index)
        return [held for held in list_shared(self.api, kind) if value in function(held)]

    def is_served(self, kind: Kind) -> bool:
        """Return whether the API server serves a kind."""
        return self.api.registry.find(kind.group, kind.version, kind.plural) is not None

    async def execute(self, *batches: Sequence[Step]) -> Outcome:
        """Execute steps as the writer of the runtime does."""
        done: list[Step] = []
        for step in (step for batch in batches for step in batch):
            try:
                with refusals(str(step)):
                    self._take(step)
            except (ApiError, ForeignObject) as err:
                return Outcome(tuple(done), (StepFailure(step, err),))
            done.append(step)
        return Outcome(tuple(done))

    def _take(self, step: Step) -> None:
        held = find_shared(self.api, step.kind, step.key)
        match step:
            case Create():
                if held is None:
                    manifest = copy.deepcopy(step.manifest)
                    self._commit(str(step), lambda: self.api.create(manifest))
                elif step.inherits and is_former_child(held, step.manifest):
                    adoption = build_inherit_patch(step.manifest)
                    self._commit(str(step), lambda: self.api.patch(step.kind, step.key, adoption))
                elif not (step.ours(held) if step.ours else controller_uid(held) == self.uid):
                    raise ForeignObject(step.kind, step.key, "owned by another object")
            case Apply():
                self._apply(step, held)
            case Delete():
                if held is not None and uid_of(held) == step.uid:
                    self._delete(step, held)
            case Patch():
                if held is None or uid_of(held) != step.uid:
                    raise NotFound(404, "NotFound", f"{step.key} is gone")
                if step.resource_version not in ("", held["metadata"]["resourceVersion"]):
                    raise Conflict(409, "Conflict", f"{step.key} has changed")
                change = step.operations
                self._commit(
                    str(step),
                    lambda: self.api.patch(
                        step.kind, step.key, change, subresource=step.subresource
                    ),
                )

    def _apply(self, step: Apply, held: Manifest | None) -> None:
        manifest = copy.deepcopy(step.manifest)
        if held is None:
            self._commit(str(step), lambda: self.api.create(manifest))
            return
        if is_former_child(held, manifest):
            adopted = {"metadata": manifest["metadata"]}
            self._commit(str(step), lambda: self.api.patch(step.kind, step.key, adopted))
        if step.kind != SECRET and held["spec"] != manifest["spec"]:
            change = [{"op": "replace", "path": "/spec", "value": manifest["spec"]}]
            self._commit(str(step), lambda: self.api.patch(step.kind, step.key, change))

    def _delete(self, step: Delete, held: Manifest) -> None:
        if step.grace_seconds == 0:
            self._commit(str(step), lambda: self.api.finish_termination(step.kind, step.key))
        elif not is_deleting(held):
            self._commit(str(step), lambda: self.api.delete(step.kind, step.key))


@contextlib.contextmanager
def refusals(operation: str) -> Iterator[None]:
    """Raise the errors of a client for the refusals of the fake."""
    try:
        yield
    except StatusError as err:
        raise api_error(err.code, err.body, operation=operation) from err
    except PatchError as err:
        raise Conflict(409, "Conflict", str(err), operation=operation) from err


def find_shared(api: FakeApi, kind: Kind, key: Key) -> Manifest | None:
    """Return an object, or None; it is shared and must not be changed."""
    resource, _ = api.registry.of(kind)
    record = api.store.get(resource.table, key)
    return None if record is None else record.obj


def list_shared(api: FakeApi, kind: Kind) -> Objects:
    """Return the objects of a kind, ordered by key; they are shared and must not be changed."""
    resource, _ = api.registry.of(kind)
    records = api.store.table(resource.table)
    return [records[key].obj for key in sorted(records)]
