"""Storage-version migration: every object is stored in the storage version of its CRD.

A version can be removed from a CRD only after no object is stored in it. The API server lists the
versions in which objects may be stored in `status.storedVersions`. The leader rewrites each object
without changing it, which stores it in the current storage version, and then shortens the list.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    SlipwayError,
    patch_error,
)
from libs.common.kinds import CRD, Key, Kind, Manifest, key_of
from libs.common.metric_specs import STORED_VERSIONS
from libs.common.metrics import Metrics
from libs.common.reading import texts_at
from libs.common.runtime.manager import Manager
from libs.common.tasks import run_together

log = structlog.get_logger("migration")

__all__ = ["StorageMigration", "migrate_storage"]

_RETRY_SECONDS: Final = 60.0
_CHECK_SECONDS: Final = 3600.0
"""Time between two looks at the CRD, which can change without a restart of the operator."""
_SETTLE_SECONDS: Final = 30.0
_PER_SECOND: Final = 50.0
_FAILURE_LIMIT: Final = 10
"""Number of failures in a row after which the objects that remain have to wait."""
_PROGRESS: Final = 1000


def migrate_storage(manager: Manager, *kinds: Kind) -> Coroutine[Any, Any, None] | None:
    """Return the task that migrates the objects of kinds; for `Operator.runnables`.

    Args:
        manager: The process. Only the leader migrates.
        kinds: Kinds, in a version that the API server serves.
    """
    return _migrate(manager, kinds) if kinds else None


async def _migrate(manager: Manager, kinds: tuple[Kind, ...]) -> None:
    await manager.working.wait()
    migrations = [
        StorageMigration(manager.client, manager.clock, kind, metrics=manager.metrics)
        for kind in kinds
    ]
    await run_together(*(migration.run() for migration in migrations))


class StorageMigration:
    """The migration of the objects of one kind.

    An error stops it for a minute; it then continues with the objects that remain. After a restart
    it begins with the first object. An object that is already stored in the right version costs one
    request, and no write.

    Args:
        client: Connection that writes on the leader only.
        clock: Time source.
        kind: Kind of the objects, in a version that the API server serves.
        metrics: Metrics of the process.
        per_second: Maximum number of requests per second.
        settle_seconds: Seconds between the change of the CRD and the first request. Until all API
            servers know the new storage version, some of them store objects in the old one.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        kind: Kind,
        *,
        metrics: Metrics | None = None,
        per_second: float = _PER_SECOND,
        settle_seconds: float = _SETTLE_SECONDS,
    ) -> None:
        """Initialize; nothing is sent before `run`."""
        self._client = client
        self._clock = clock
        self._kind = kind
        self._gauge = metrics.gauge(STORED_VERSIONS) if metrics is not None else None
        self._pause = 1 / per_second
        self._settle = settle_seconds
        self._generation = 0
        self._pending: list[Key] = []

    async def run(self) -> None:
        """Migrate whenever the CRD needs it, until cancelled."""
        while True:
            done = False
            try:
                done = await self.migrate()
            except SlipwayError as error:
                log.warning(
                    "Cannot migrate stored objects, retrying",
                    resource=self._kind.resource,
                    remaining=len(self._pending),
                    error=str(error),
                )
            await self._clock.sleep(_CHECK_SECONDS if done else _RETRY_SECONDS)

    async def migrate(self) -> bool:
        """Migrate once.

        Returns:
            Whether all objects are stored in the storage version.

        Raises:
            SlipwayError: The CRD or its objects cannot be read or written. The next call continues
                with the objects that remain.
        """
        crd = await self._read()
        storage, stored = _find_storage(crd), texts_at(crd, "status", "storedVersions")
        if stored == (storage,):
            return True
        if crd["metadata"]["generation"] != self._generation:
            log.info(
                "Migrating stored objects",
                resource=self._kind.resource,
                versions=list(stored),
                to=storage,
            )
            await self._clock.sleep(self._settle)
            self._pending = await self._list()
            self._generation = crd["metadata"]["generation"]
        await self._rewrite()
        if self._pending:
            return False
        return await self._shorten(storage)

    async def _read(self) -> Manifest:
        crd = await self._client.get(CRD, Key("", self._kind.resource))
        if self._gauge is not None:
            stored = texts_at(crd, "status", "storedVersions")
            self._gauge.labels(self._kind.resource).set(len(stored))
        return crd

    async def _list(self) -> list[Key]:
        """List the keys of all objects.

        A continue token expires after some minutes, so the pages are read before the first write.
        Objects that are created later are stored in the right version.
        """
        keys: list[Key] = []
        async for page in self._client.pages(self._kind, metadata_only=True):
            if page.first:
                keys.clear()
            keys.extend(key_of(item) for item in page.items)
        # Taken from the end.
        keys.reverse()
        return keys

    async def _rewrite(self) -> None:
        """Rewrite the objects that remain, and keep those that fail."""
        total = len(self._pending)
        failed: list[Key] = []
        in_a_row = 0
        try:
            while self._pending and in_a_row < _FAILURE_LIMIT:
                key = self._pending[-1]
                try:
                    await self._client.patch(self._kind, key, {})
                    in_a_row = 0
                except (NotFound, Conflict):
                    # Somebody deleted it, or wrote it and thereby stored it in the right version.
                    in_a_row = 0
                except ApiError as error:
                    in_a_row += 1
                    failed.append(key)
                    log.warning(
                        "Cannot rewrite an object",
                        resource=self._kind.resource,
                        object=str(key),
                        error=str(error),
                    )
                self._pending.pop()
                done = total - len(self._pending)
                if done % _PROGRESS == 0:
                    log.info(
                        "Rewriting stored objects",
                        resource=self._kind.resource,
                        done=done,
                        total=total,
                    )
                await self._clock.sleep(self._pause)
        finally:
            self._pending = [*failed, *self._pending]

    async def _shorten(self, storage: str) -> bool:
        """Set the stored versions, if the CRD is the one that the objects were rewritten for."""
        crd = await self._read()
        if crd["metadata"]["generation"] != self._generation:
            return False
        version = crd["metadata"]["resourceVersion"]
        operations = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/status/storedVersions", "value": [storage]},
        ]
        try:
            await self._client.patch(CRD, key_of(crd), operations, subresource="status")
        except Invalid as error:
            raise patch_error(error) from error
        await self._read()
        log.info("Migrated stored objects", resource=self._kind.resource, version=storage)
        return True


def _find_storage(crd: Manifest) -> str:
    names: list[str] = [each["name"] for each in crd["spec"]["versions"] if each["storage"]]
    return names[0]
