"""Writer: executes the steps of a plan, and updates the cache.

Three rules make a step safe to repeat. A create is guarded by the name. A change or deletion is
guarded by the UID. Each response is stored in the cache before the next line of code runs, so that
the next read sees it; an object whose response was lost is read again before the next reconcile, so
that no plan is based on an unknown state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import structlog

from libs.common import finalizers
from libs.common.apply import build_desired, find_changed, is_applied
from libs.common.client import Client
from libs.common.errors import (
    AlreadyExists,
    Conflict,
    ForeignObject,
    Invalid,
    MutatedByAdmission,
    NotFound,
    SlipwayError,
    TransientError,
    UnknownOutcome,
    api_error,
    patch_error,
)
from libs.common.kinds import Key, Kind, Manifest, describe, is_deleting, uid_of, version_text
from libs.common.labels import APPLIED_HASH
from libs.common.ownership import (
    build_inherit_patch,
    controller_of,
    controller_uid,
    is_former_child,
)
from libs.common.plan import (
    Apply,
    Create,
    Delete,
    Outcome,
    Patch,
    Step,
    StepFailure,
)
from libs.common.runtime.cache import Cache
from libs.common.runtime.confirmation import Confirm, PrimaryChanged, PrimaryGone
from libs.common.runtime.informer import Origin
from libs.common.runtime.repairs import Repairs
from libs.common.runtime.unchanged_applies import UnchangedApplies

log = structlog.get_logger(__name__)

_WORKERS: Final = 32
"""Maximum number of concurrent steps of a batch; the client limits all requests."""


class Writer:
    """Executes steps for one primary.

    Args:
        client: Client of the API server.
        cache: Cache that is updated with the responses.
        origin: The reconcile; its controller is the field manager.
        owner_uid: UID of the primary, which its children refer to.
        unknown: Objects whose write got no response; they are read before the next reconcile.
        unchanged: Applies that changed nothing.
        repairs: Repairs of what other clients change.
        warn: Called with each warning of the API server about a new object.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        *,
        origin: Origin,
        owner_uid: str,
        unknown: set[tuple[Kind, Key]],
        unchanged: UnchangedApplies,
        repairs: Repairs,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """Initialize for one reconcile."""
        self._client = client
        self._cache = cache
        self._origin = origin
        self._manager = origin.controller
        self._owner_uid = owner_uid
        self._unknown = unknown
        self._unchanged = unchanged
        self._repairs = repairs
        self._warn = warn
        self._logs_steps = bool(log.is_enabled_for(logging.DEBUG))
        self._confirm: Confirm | None = None
        self._confirming = asyncio.Lock()

    async def execute(
        self, batches: Sequence[Sequence[Step]], *, confirm: Confirm | None = None
    ) -> Outcome:
        """Execute batches one after the other; a failure skips the following batches.

        Args:
            batches: Steps to take.
            confirm: Called once before an apply creates an object; None if this was done.

        Raises:
            PrimaryGone: `confirm` raised it; the create was not sent.
            PrimaryChanged: The same.
        """
        self._confirm = confirm
        done: list[Step] = []
        failures: list[StepFailure] = []
        skipped: list[Step] = []
        changed = 0
        for batch in batches:
            results = [] if failures else await self._take_all(batch)
            skipped.extend(batch[len(results) :])
            for step, result in zip(batch, results, strict=False):
                if isinstance(result, PrimaryGone | PrimaryChanged):
                    raise result
                if isinstance(result, Exception):
                    failures.append(StepFailure(step, result))
                else:
                    done.append(step)
                    changed += result
        return Outcome(tuple(done), tuple(failures), tuple(skipped), changed)

    async def _take_all(self, batch: Sequence[Step]) -> list[bool | Exception]:
        """Execute steps concurrently; return the results of the executed steps, which come first.

        Slow start: the first step runs alone, and each success starts two more. If a quota is
        exhausted, one create fails instead of five hundred. Deletions need no slow start.
        """
        results: dict[int, bool | Exception] = {}
        ahead = iter(enumerate(batch))
        deletes_only = all(isinstance(step, Delete) for step in batch)
        workers = min(len(batch), _WORKERS) if deletes_only else 1
        failed = False

        async def work() -> None:
            nonlocal workers, failed
            for index, step in ahead:
                result = results[index] = await self._attempt(step)
                failed = failed or (isinstance(result, Exception) and not deletes_only)
                if failed:
                    return
                if workers < _WORKERS:
                    workers += 1
                    group.create_task(work())

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
        return [results[index] for index in range(len(results))]

    async def _attempt(self, step: Step) -> bool | Exception:
        try:
            changed = await self._take(step)
        except UnknownOutcome as err:
            self._unknown.add((step.kind, step.key))
            return err
        except asyncio.CancelledError:
            # The reconcile timed out; a request that was sent may still be executed.
            self._unknown.add((step.kind, step.key))
            raise
        except (SlipwayError, PrimaryGone, PrimaryChanged) as err:
            return err
        if changed and self._logs_steps:
            log.debug("Took step", step=str(step))
        return changed

    async def _take(self, step: Step) -> bool:
        match step:
            case Create():
                return await self._create(step)
            case Apply():
                return await self._apply(step)
            case Delete():
                return await self._delete(step)
            case Patch():
                return await self._patch(step)

    async def _create(self, step: Create) -> bool:
        response = await self._claim_name(step)
        if isinstance(response, bool):
            return response
        # A new object contains no changes of other clients, so this reconcile has seen all of it.
        self._record_written(step.kind, response, self._origin)
        objection = step.objection(response) if step.objection is not None else ""
        if objection:
            # A reconcile that its own deletion triggered would repeat this without back-off.
            await self._delete(Delete.of(step.kind, response), self._origin)
            raise MutatedByAdmission(step.kind, step.key, objection)
        return True

    async def _claim_name(self, step: Create) -> Manifest | bool:
        """Create an object; if ours has the name already, return whether it was adopted now.

        After a deletion without grace period, the name becomes free a moment after the event.
        """
        for attempts_left in (2, 1, 0):
            try:
                with self._writing(step.kind, step.key):
                    return await self._client.create(
                        step.kind, step.manifest, field_manager=self._manager, warn=self._warn
                    )
            except AlreadyExists:
                if attempts_left > 1 and self._may_be_deleted(step):
                    continue
                try:
                    live = await self._client.get(step.kind, step.key)
                except NotFound:
                    # The object with the name was being deleted.
                    if not attempts_left:
                        raise
                    continue
                self._record_written(step.kind, live)
                owned = await self._inherit(step, live) if step.inherits else live
                self._refuse_foreign(step, owned)
                return owned is not live
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _may_be_deleted(self, step: Create) -> bool:
        """Return whether the cached object with this name may have been deleted by now."""
        informer = self._cache.find(step.kind)
        held = informer.store.get(step.key) if informer is not None else None
        return held is not None and is_deleting(held) and not finalizers.is_deletion_delayed(held)

    async def _apply(self, step: Apply) -> bool:
        desired = build_desired(step.manifest)
        informer = self._cache.find(step.kind)
        held = informer.store.get(step.key) if informer is not None else None
        # Only the server knows whether another object has the name: a watch does not report the
        # deletion of objects that its selector excludes.
        if held is not None and self._is_ours(step, held):
            if self._is_unchanged(step.kind, held, desired):
                return False
            self._refuse_contested(step, held, desired)
        try:
            live = await self._client.get(step.kind, step.key)
        except NotFound:
            # A create, not an apply: the name is the lock, and an apply would take over an object
            # that somebody else created in the meantime.
            await self._confirm_once()
            return await self._create(Create(step.kind, desired, step.ours))
        held, live = live, await self._inherit(step, live)
        self._refuse_foreign(step, live)
        if self._is_unchanged(step.kind, live, desired):
            self._record_written(step.kind, live)
            return live is not held
        _refuse_changed(step, live)
        self._refuse_contested(step, live, desired)
        await self._own_fields(step.kind, step.key, live)
        # The UID makes the API server refuse the apply if the object was recreated since the read.
        metadata = {**desired["metadata"], "uid": uid_of(live)}
        if step.version:
            metadata["resourceVersion"] = version_text(live)
        response = await self._client.apply(
            step.kind,
            {**desired, "metadata": metadata},
            field_manager=self._manager,
            force=step.force,
        )
        self._record_written(step.kind, response)
        if response["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]:
            self._unchanged.add(self._reduce(step.kind, response), desired)
            return False
        self._repairs.note_applied(uid_of(response), _hash_of(desired))
        return True

    def _refuse_contested(self, step: Apply, live: Manifest, desired: Manifest) -> None:
        """Raise TransientError if another client keeps changing the object: repair it later."""
        seconds = self._repairs.seconds_to_next(uid_of(live), _hash_of(desired))
        if seconds:
            paths = find_changed(live, desired, self._manager) or ["metadata.annotations"]
            raise TransientError(
                f"another client keeps changing {', '.join(paths[:3])} of "
                f"{describe(step.kind, step.key)}, so the operator repairs it less and less often; "
                "stop that client, which kubectl get --show-managed-fields names",
                retry_after=seconds,
            )

    async def _confirm_once(self) -> None:
        # The steps of a batch run concurrently: the first one confirms, the others wait for it.
        async with self._confirming:
            if self._confirm is not None:
                await self._confirm()
                self._confirm = None

    async def _own_fields(self, kind: Kind, key: Key, live: Manifest) -> None:
        """Move ownership of the fields of our create to our applies. Applies can then prune them.

        The server records a create as operation Update; an apply of the same manager never prunes
        such fields.
        """
        entries = live["metadata"].get("managedFields") or []
        ours = [
            index
            for index, entry in enumerate(entries)
            if entry.get("manager") == self._manager
            and entry.get("operation") == "Update"
            and not entry.get("subresource")
        ]
        applied = any(
            entry.get("manager") == self._manager and entry.get("operation") == "Apply"
            for entry in entries
        )
        if not ours or applied:
            return
        operations: list[Manifest] = [
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": live["metadata"]["resourceVersion"],
            },
            {
                "op": "replace",
                "path": f"/metadata/managedFields/{ours[0]}/operation",
                "value": "Apply",
            },
        ]
        try:
            response = await self._client.patch(kind, key, operations, field_manager=self._manager)
        except Invalid as err:
            raise patch_error(err) from err
        live["metadata"]["resourceVersion"] = response["metadata"]["resourceVersion"]

    async def _delete(self, step: Delete, origin: Origin | None = None) -> bool:
        try:
            with self._writing(step.kind, step.key, step.uid) if origin else nullcontext():
                response = await self._client.delete(
                    step.kind,
                    step.key,
                    uid=step.uid,
                    resource_version=step.resource_version,
                    grace_seconds=step.grace_seconds,
                    propagation=step.propagation,
                )
        except NotFound:
            self._record_deleted(step, origin)
            return False
        except Conflict:
            # Probably another object has the name now. A webhook may have refused as well, and then
            # the object still exists: read it to be sure.
            if await self._is_alive(step):
                raise
            self._record_deleted(step, origin)
            return False
        if uid_of(response) == step.uid and finalizers.is_deletion_delayed(response):
            self._record_written(step.kind, response, origin)
        else:
            self._record_deleted(step, origin)
        return True

    async def _is_alive(self, step: Delete) -> bool:
        try:
            live = await self._client.get(step.kind, step.key)
        except NotFound:
            return False
        return uid_of(live) == step.uid

    async def _patch(self, step: Patch) -> bool:
        await self._send_patch(step)
        return True

    async def _send_patch(self, step: Patch) -> Manifest:
        guards = [{"op": "test", "path": "/metadata/uid", "value": step.uid}]
        if step.resource_version:
            guards.append(
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": step.resource_version,
                }
            )
        try:
            response = await self._client.patch(
                step.kind,
                step.key,
                [*guards, *step.operations],
                subresource=step.subresource,
                field_manager=self._manager,
            )
        except Invalid as err:
            raise patch_error(err) from err
        self._record_written(step.kind, response)
        return response

    def _is_ours(self, step: Create | Apply, held: Manifest) -> bool:
        return controller_uid(held) == self._owner_uid or (
            step.ours is not None and step.ours(held)
        )

    def _refuse_foreign(self, step: Create | Apply, live: Manifest) -> None:
        if self._is_ours(step, live):
            return
        reference = controller_of(live)
        holder = (
            f"controlled by {reference.get('kind')} {reference.get('name')}"
            if reference is not None
            else "not controlled by this object"
        )
        raise ForeignObject(step.kind, step.key, holder)

    async def _inherit(self, step: Create | Apply, live: Manifest) -> Manifest:
        """Adopt a child of an earlier incarnation of the owner; return other objects unchanged."""
        if self._is_ours(step, live) or not is_former_child(live, step.manifest):
            return live
        # A deletion that orphans the children may be under way: if its owner is gone, the garbage
        # collector would delete the child.
        await self._confirm_once()
        version = live["metadata"]["resourceVersion"]
        operations = build_inherit_patch(step.manifest)
        patch = Patch(step.kind, step.key, uid_of(live), operations, version)
        return await self._send_patch(patch)

    def _is_unchanged(self, kind: Kind, live: Manifest, desired: Manifest) -> bool:
        return is_applied(live, desired, self._manager) or self._unchanged.contains(
            self._reduce(kind, live), desired
        )

    def _reduce(self, kind: Kind, live: Manifest) -> Manifest:
        informer = self._cache.find(kind)
        return live if informer is None else informer.store.reduce(live)

    def _record_written(self, kind: Kind, response: Manifest, origin: Origin | None = None) -> None:
        informer = self._cache.find(kind)
        if informer is not None:
            informer.wrote(response, origin)

    def _writing(self, kind: Kind, key: Key, uid: str = "") -> AbstractContextManager[None]:
        informer = self._cache.find(kind)
        return nullcontext() if informer is None else informer.writing(key, self._origin, uid)

    def _record_deleted(self, step: Delete, origin: Origin | None) -> None:
        informer = self._cache.find(step.kind)
        if informer is not None:
            informer.observe_deleted(step.key, step.uid, origin=origin)


def _hash_of(desired: Manifest) -> str:
    return str(desired["metadata"]["annotations"][APPLIED_HASH])


def _refuse_changed(step: Apply, live: Manifest) -> None:
    """Refuse an apply that was planned from another version of the object.

    Raises:
        Conflict: The object has changed since.
    """
    if step.version and version_text(live) != step.version:
        message = f"{step}: planned from version {step.version}, but the object has changed"
        raise api_error(409, {"reason": "Conflict", "message": message}, operation=str(step))


async def look_up(client: Client, cache: Cache, kind: Kind, key: Key) -> None:
    """Read an object after a write without a response, and update the cache.

    Raises:
        ApiError: The server cannot be reached now.
    """
    informer = cache.find(kind)
    if informer is None:
        return
    # Only an object that existed before the read can be missing afterwards: a delayed write may
    # create a new object in the meantime, and its event may arrive before the response.
    held = informer.store.get(key)
    try:
        live = await client.get(kind, key)
    except NotFound:
        if held is not None:
            informer.observe_deleted(key, uid_of(held))
        return
    informer.wrote(live)
