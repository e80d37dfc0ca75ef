"""Guard: keep the permissions in a namespace until no object in it needs the operator any more.

The namespace controller of Kubernetes deletes the RoleBinding of an operator in its first round,
together with everything else in the namespace. An object with a finalizer of the operator stays,
and without the RoleBinding nobody may remove the finalizer: the namespace would be `Terminating`
indefinitely. So the RoleBinding gets a finalizer of its own before the first object gets one, and
loses it after the last object has lost its own. The authorizer honours a RoleBinding that is being
deleted, and RBAC lets anyone with `patch` on a RoleBinding change its finalizers, whatever else the
binding grants.

The RoleBinding must refer to a ClusterRole: a Role would be deleted in the same first round.

The namespace of the operator itself is a case of its own. There the operator is deleted as well, so
it removes its finalizers when it exits (`BindingGuard.leave`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from libs.common import finalizers
from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.errors import Forbidden, NotFound, SlipwayError, TransientError
from libs.common.event_manifest import Reporter, build_event
from libs.common.kinds import EVENT, NAMESPACE, ROLE_BINDING, Key, Kind, is_deleting
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Origin
from libs.common.runtime.release import BINDING_FINALIZER, release_binding, release_one
from libs.common.runtime.store import Change
from libs.common.tasks import run_together

log = structlog.get_logger(__name__)

_CONCURRENT: Final = 4
_RETRY_SECONDS: Final = 5.0
_LEAVE_SECONDS: Final = 10.0
_TERMINATING: Final = "NamespaceTerminating"
_REPORTER: Final = Reporter("slipway.dev/operator", "")


class BindingGuard:
    """A finalizer on the RoleBinding in each namespace whose objects have one of ours.

    Args:
        client: Client of the API server.
        cache: Stores of the primaries.
        name: Name of the RoleBinding; empty disables the guard.
        targets: Kinds of primaries with their finalizer.
        clock: Time source of the waits after an error.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        name: str,
        targets: Sequence[tuple[Kind, str]],
        clock: Clock,
    ) -> None:
        """Initialize; nothing is sent before `run`."""
        self._client = client
        self._cache = cache
        self._name = name
        self._clock = clock
        self._targets = [(kind, finalizer) for kind, finalizer in targets if kind.namespaced]
        self._held: set[str] = set()  # Namespaces whose RoleBinding has our finalizer.
        self._missing: set[str] = set()  # Namespaces with a warning that there is no binding.
        # Workers that are adding a finalizer to an object, and objects in the cache that have one.
        # The first closes the gap between the write and its event: without it, the RoleBinding
        # could be released while the first object of the namespace gets its finalizer.
        self._adding: Counter[str] = Counter()
        self._finalizer_counts: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}
        self._pending: set[str] = set()
        self._wakeup = asyncio.Event()
        self._semaphore = asyncio.Semaphore(_CONCURRENT)
        for kind, finalizer in self._targets if self._name else ():
            cache.informer(kind).add_handler(partial(self._count_finalizers, finalizer))

    @property
    def enabled(self) -> bool:
        """Whether the operator has a RoleBinding and a namespaced kind with a finalizer."""
        return bool(self._name and self._targets)

    async def run(self) -> None:
        """Update the finalizer in every namespace, and then in namespaces passed to `settle`.

        Errors are logged and retried.
        """
        if not self.enabled:
            return
        # A former leader may have crashed between the updates of an object and of its RoleBinding.
        self._pending.update(self._cache.informer(self._targets[0][0]).namespaces)
        while True:
            self._wakeup.clear()
            await run_together(*map(self._reconcile_finalizer, sorted(self._pending)))
            if self._pending:
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                await self._wakeup.wait()

    async def _reconcile_finalizer(self, namespace: str) -> None:
        async with self._semaphore:
            self._pending.discard(namespace)
            try:
                await (self.hold if self._is_needed(namespace) else self._release_unneeded)(
                    namespace
                )
            except SlipwayError as err:
                self._pending.add(namespace)
                log.warning(
                    "Cannot update the finalizer that keeps the permissions, retrying",
                    namespace=namespace,
                    error=str(err),
                )

    @asynccontextmanager
    async def adding(self, namespace: str) -> AsyncIterator[None]:
        """Keep the permissions while a finalizer is added to an object of a namespace.

        Raises:
            TransientError: The RoleBinding is being deleted: a finalizer would block the namespace.
            SlipwayError: The RoleBinding could not be changed.
        """
        if not self.enabled or not namespace:
            yield
            return
        self._adding[namespace] += 1
        try:
            await self.hold(namespace)
            yield
        finally:
            self._adding[namespace] -= 1

    async def hold(self, namespace: str) -> None:
        """Add the finalizer to the RoleBinding of a namespace, unless it has the finalizer."""
        if not self.enabled or not namespace or namespace in self._held:
            return
        async with self._lock(namespace):
            if namespace in self._held:
                return
            try:
                live = await self._client.get(ROLE_BINDING, Key(namespace, self._name))
                if is_deleting(live) and not finalizers.has_finalizer(live, BINDING_FINALIZER):
                    where = f"RoleBinding {namespace}/{self._name}"
                    raise TransientError(f"{where} is being deleted; no finalizers are added")
                if operations := finalizers.build_add_patch(live, BINDING_FINALIZER):
                    await self._client.patch(ROLE_BINDING, Key(namespace, self._name), operations)
            except (NotFound, Forbidden) as err:
                # If the permissions come from another binding, the operator must work nevertheless.
                # The binding may also come after its namespace, so the next object tries again.
                if namespace not in self._missing:
                    self._missing.add(namespace)
                    log.warning(
                        "Cannot set the finalizer that keeps the permissions, continuing without",
                        namespace=namespace,
                        error=str(err),
                    )
                return
            self._missing.discard(namespace)
            self._held.add(namespace)

    def settle(self, namespace: str) -> None:
        """Schedule the removal of the finalizer if no object of the namespace needs it any more."""
        if self.enabled and namespace and not self._is_needed(namespace):
            self._pending.add(namespace)
            self._wakeup.set()

    async def _release_unneeded(self, namespace: str) -> None:
        async with self._lock(namespace):
            # Another worker may have started to add a finalizer while this one waited.
            if not self._is_needed(namespace):
                self._held.discard(namespace)
                await release_binding(self._client, namespace, self._name)

    async def leave(self, own_namespace: str) -> None:
        """Remove finalizers that would block the deletion of a namespace after this process ends.

        The leader calls this after its last reconcile. Errors are logged.

        Args:
            own_namespace: Namespace of the operator; empty if it runs outside of the cluster.
        """
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                for namespace in sorted(self._pending):
                    await self._reconcile_finalizer(namespace)
                for namespace in sorted(self._held):
                    await self._leave_unwatched(namespace)
                if own_namespace:
                    await self._release_own(own_namespace)
        except (SlipwayError, TimeoutError) as err:
            log.warning("Cannot release the permissions before exiting", error=str(err))

    async def _leave_unwatched(self, namespace: str) -> None:
        """Release a RoleBinding that is being deleted although its namespace is not.

        It was deleted on purpose, for example by an upgrade with a shorter list of namespaces, and
        the next process does not watch that namespace.
        """
        try:
            live = await self._client.get(ROLE_BINDING, Key(namespace, self._name))
        except (NotFound, Forbidden):
            return
        if is_deleting(live) and not await is_terminating(self._client, namespace):
            text = "Releasing the permissions in a namespace that is no longer watched"
            log.warning(text, namespace=namespace)
            await release_binding(self._client, namespace, self._name)

    async def _release_own(self, namespace: str) -> None:
        """Remove the finalizers in the namespace of the operator if the namespace is being deleted.

        The namespace controller deletes pods first, including the operator's pod, and then nobody
        could remove the finalizers.
        """
        carriers = [
            (kind, manifest, finalizer)
            for kind, finalizer in self._targets
            for manifest in self._cache.store(kind).list(namespace)
            if finalizers.has_finalizer(manifest, finalizer)
        ]
        if not carriers or not await is_terminating(self._client, namespace):
            return
        for kind, manifest, finalizer in carriers:
            await release_one(self._client, kind, manifest, finalizer)
        text = "Removed all finalizers, since the operator is deleted together with its namespace"
        log.warning(text, namespace=namespace, objects=len(carriers))

    def _is_needed(self, namespace: str) -> bool:
        return self._adding[namespace] > 0 or self._finalizer_counts[namespace] > 0

    def _count_finalizers(self, finalizer: str, change: Change, _: Origin | None) -> None:
        """Update the number of objects with a finalizer in each namespace."""
        for manifest, step in ((change.old, -1), (change.new, 1)):
            if manifest is not None and finalizers.has_finalizer(manifest, finalizer):
                self._finalizer_counts[change.key.namespace] += step

    def _lock(self, namespace: str) -> asyncio.Lock:
        return self._locks.setdefault(namespace, asyncio.Lock())


async def is_terminating(client: Client, namespace: str) -> bool:
    """Return whether a namespace is being deleted. Needs no permission to read namespaces.

    The API server refuses creates in such a namespace with a specific reason, even in a dry run.
    This uses Events, which every operator can create.
    """
    subject = {"metadata": {"name": namespace, "namespace": namespace}}
    note = "Probes whether the namespace is being deleted"
    now = datetime.now(UTC)
    probe = build_event(_REPORTER, NAMESPACE, subject, "Normal", "Probe", note, now)
    try:
        await client.create(EVENT, probe, dry_run=True)
    except Forbidden as err:
        causes = err.details.get("causes") or ()
        return any(cause.get("reason") == _TERMINATING for cause in causes)
    return False
