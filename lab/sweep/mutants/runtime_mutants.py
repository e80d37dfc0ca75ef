"""Mutants of the runtime: writes, caches, retries."""

from __future__ import annotations

import itertools
import os
from typing import Any

from lab.sweep.mutants.mutant import swap
from libs.common import conditions, finalizers
from libs.common.client import Client
from libs.common.errors import AlreadyExists
from libs.common.kinds import Kind, Manifest, is_deleting
from libs.common.runtime import context, controller, queue, reflector, runner, store, sweep, writer
from libs.common.runtime.informer import Informer
from operators.podset import reconcile


def generate_names() -> None:
    """Let the server choose the names of children."""
    before = Client.create

    async def create(self: Client, kind: Kind, manifest: Manifest, **options: Any) -> Manifest:
        if kind.kind == "Pod":
            metadata = {k: v for k, v in manifest["metadata"].items() if k != "name"}
            manifest = {**manifest, "metadata": {**metadata, "generateName": "web-pod-"}}
        return await before(self, kind, manifest, **options)

    swap(Client, "create", create)


def randomize_names() -> None:
    """Give each pod a new random name, so that the name is no lock."""

    def build_pod(*args: Any, **options: Any) -> Manifest:
        pod: Manifest = before(*args, **options)
        pod["metadata"]["name"] = f"web-{os.urandom(4).hex()}"
        return pod

    before = swap(reconcile, "build_pod", build_pod)


def count_stale_cache() -> None:
    """Count pods in a cache that lags behind our own writes, and name them at random."""
    randomize_names()

    def wrote(self: Informer, manifest: Manifest, origin: Any = None) -> None:
        if self.kind.kind != "Pod":
            before(self, manifest, origin)

    before = swap(Informer, "wrote", wrote)


def forget_lost_responses() -> None:
    """Retry a write without a response as if it had failed, under the next name."""
    numbers = itertools.count(1)

    def build_pod(*args: Any, **options: Any) -> Manifest:
        pod: Manifest = before(*args, **options)
        pod["metadata"]["name"] = f"web-{next(numbers)}"
        return pod

    async def look_up(self: runner.Runner, key: Any) -> None:
        self._unknown.pop(key, None)

    before = swap(reconcile, "build_pod", build_pod)
    swap(runner.Runner, "_look_up_unknown", look_up)
    swap(runner, "_UNKNOWN_RETRY", 0.001)


def delete_by_name() -> None:
    """Delete whatever has the name."""

    async def delete(self: Client, kind: Kind, key: Any, **options: Any) -> Manifest:
        return await self.raw("DELETE", kind.path(key.namespace, key.name))

    swap(Client, "delete", delete)


def overwrite_foreign() -> None:
    """Delete what somebody else has under our name, and create our own."""

    async def create(self: writer.Writer, step: Any) -> bool:
        try:
            response = await self._client.create(step.kind, step.manifest)
        except AlreadyExists:
            live = await self._client.get(step.kind, step.key)
            uid = live["metadata"]["uid"]
            await self._client.delete(step.kind, step.key, uid=uid, grace_seconds=0)
            response = await self._client.create(step.kind, step.manifest)
        self._record_written(step.kind, response, self._origin)
        return True

    swap(writer.Writer, "_create", create)


def write_equal_status() -> None:
    """Write the status in each reconcile, even if it is equal."""
    swap(context, "same_status", lambda held, wanted: False)


def renew_condition_times() -> None:
    """Set lastTransitionTime in each reconcile, though nothing changed."""
    from operators.podset import status

    def build(current: Any, wanted: Any, **options: Any) -> Any:
        return conditions.build_conditions([], wanted, **options)

    swap(status, "build_conditions", build)


def drop_failed_keys() -> None:
    """Forget an object whose pass failed, until its next event."""

    def retry(self: queue.WorkQueue, key: Any, *, after: Any = None) -> float:
        self.forget(key)
        return 0.0

    swap(queue.WorkQueue, "retry", retry)


def retry_at_once() -> None:
    """Retry a failed pass without any delay."""
    before = queue.WorkQueue.retry

    def retry(self: queue.WorkQueue, key: Any, *, after: Any = None) -> float:
        return before(self, key, after=0.001)

    swap(queue.WorkQueue, "retry", retry)


def skip_relisting() -> None:
    """Resume a watch that expired at the present, without looking at what went in the gap."""

    async def list_once(client: Client, informer: Informer, namespace: str) -> str:
        if not informer.synced:
            return str(await before(client, informer, namespace))
        listing = await client.list(informer.kind, namespace)
        for item in listing.items:
            informer.put(item)
        return str(listing.resource_version)

    before = swap(reflector, "list_scope", list_once)


def skip_sweeps() -> None:
    """Trust the watches indefinitely."""

    async def keep(self: Any, informer: Informer) -> None:
        await informer.wait_synced()

    swap(sweep.Sweeper, "keep", keep)


def guard_nothing() -> None:
    """Patch finalizers without a test of what was looked at."""
    swap(finalizers, "_guards", lambda manifest: [])


def tombstone_on_conflict() -> None:
    """Take any conflict of a deletion for the end of the object."""

    async def is_alive(self: writer.Writer, step: Any) -> bool:
        return False

    swap(writer.Writer, "_is_alive", is_alive)


def drop_changes_at_work() -> None:
    """Forget a change that arrives while the object is being reconciled."""

    def done(self: queue.WorkQueue, key: Any) -> None:
        self._again.pop(key, None)
        before(self, key)

    before = swap(queue.WorkQueue, "done", done)


def keep_unlisted() -> None:
    """Keep objects that were on no page of a listing."""
    swap(store.Listing, "finish", lambda self, version: [])


def trust_applied() -> None:
    """Take an object that exists for one that is up to date."""
    swap(writer.Writer, "_is_unchanged", lambda self, kind, live, desired: True)


def requeue_without_limit() -> None:
    """Request the next reconcile immediately after a failure, each time without a delay."""

    def from_outcome(outcome: Any, *, requeue_after: float | None = None) -> controller.Result:
        return controller.Result(requeue_after if outcome.ok else 0.0)

    def requeue(self: queue.WorkQueue, key: Any) -> float:
        self.add(key)
        return 0.0

    swap(controller.Result, "from_outcome", staticmethod(from_outcome))
    swap(queue.WorkQueue, "requeue", requeue)


def hide_changes_in_responses() -> None:
    """Take everything in the response to a status write for a change of its own."""
    swap(context, "_is_same_but_status", lambda held, response: True)


def accept_older_versions() -> None:
    """Store each version of an object, even if the cache has a newer one or saw the deletion."""
    swap(store.Store, "_is_newer", lambda self, old, new: False)
    swap(store.Store, "_add_tombstone", lambda self, uid, version: None)


def keep_deleted() -> None:
    """Keep an object in the cache as it was before its deletion, until the event arrives."""

    def wrote(self: writer.Writer, kind: Kind, response: Manifest, origin: Any = None) -> None:
        if not is_deleting(response):
            before(self, kind, response, origin)

    before = swap(writer.Writer, "_record_written", wrote)
    swap(writer.Writer, "_record_deleted", lambda self, step, origin: None)
