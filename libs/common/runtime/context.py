"""Context: the view and the operations of one reconcile of one object."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import structlog

from libs.common.actions import Action, done_of
from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.conditions import (
    READY,
    STALLED,
    conditions_of,
    evaluate_stalled,
    find_condition,
    find_new_condition,
    find_new_reason,
)
from libs.common.errors import Conflict, NotFound, SlipwayError
from libs.common.kinds import Key, Kind, Manifest, build_object, describe, is_deleting, uid_of
from libs.common.metrics import Metrics
from libs.common.ownership import build_owner_reference, controller_uid
from libs.common.plan import Apply, Create, Delete, Outcome, Step
from libs.common.runtime.cache import Cache, Projection
from libs.common.runtime.confirmation import PrimaryChanged, PrimaryGone
from libs.common.runtime.informer import Origin
from libs.common.runtime.statuses import drop_empty, drop_generations, same_status
from libs.common.runtime.store import strip_noise
from libs.common.runtime.writer import Writer

_STATUS_TRIES = 5

type Objects = list[Manifest]
type Wake = Callable[[Kind, Iterable[Key]], None]
"""Trigger reconciles of primaries of another controller in the same process."""


class Recorder(Protocol):
    """Records Events about an object, without ever blocking or failing a reconcile."""

    def event(
        self,
        kind: Kind,
        regarding: Mapping[str, Any],
        event_type: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        *,
        action: str = "",
        related: Mapping[str, Any] | None = None,
    ) -> None:
        """Queue an Event of events.k8s.io/v1."""


class Context:
    """The object of a reconcile, the cache, and the operations that write.

    Reads come from the cache, which contains our own writes as soon as the response arrives.
    Objects are shared with the cache: never change them, build new ones.

    Attributes:
        key: Key of the primary.
        kind: Kind of the primary.
        client: Client, for the rare read that must not come from the cache.
        metrics: Metrics of the process, including the metrics of the operator.
        is_orphaning: Whether the primary is being deleted with `--cascade=orphan`: whatever belongs
            to it must be kept.
        log: Logger with controller, object and reconcile id.
    """

    def __init__(
        self,
        *,
        kind: Kind,
        primary: Manifest,
        key: Key,
        client: Client,
        cache: Cache,
        writer: Writer,
        recorder: Recorder,
        clock: Clock,
        metrics: Metrics,
        origin: Origin,
        wake: Wake = lambda _kind, _keys: None,
        blocks_deletion: bool = True,
        stalls_after: float = 600.0,
        resting: Container[str] = (),
        status_subresource: bool = True,
        is_orphaning: bool = False,
        requeue: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """Initialize; called by the runtime."""
        self.key = key
        self.kind = kind
        self.primary = primary
        self.client = client
        self.metrics = metrics
        self.is_orphaning = is_orphaning
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger(origin.controller)
        self._cache = cache
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._origin = origin
        self._manager = origin.controller
        self._wake = wake
        self._blocks_deletion = blocks_deletion
        self._stalls_after = stalls_after
        self._resting = resting
        self._status_subresource = status_subresource
        self._requeue = requeue

    def __str__(self) -> str:
        """Return the name of the primary for messages: `PodSet default/web`."""
        return describe(self.kind, self.key)

    @property
    def uid(self) -> str:
        """UID of the primary."""
        return uid_of(self.primary)

    @property
    def generation(self) -> int:
        """Generation of the primary in this reconcile."""
        return int(self.primary["metadata"].get("generation") or 0)

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._clock.now()

    def owner_reference(self) -> Manifest:
        """Build the controller reference for a child of the primary."""
        return build_owner_reference(self.kind, self.primary, block=self._blocks_deletion)

    def children(self, kind: Kind) -> Objects:
        """Return the objects that the primary controls by name, including terminating ones."""
        return self._cache.store(kind).owned_by(self.uid)

    def get(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object of a watched kind from the cache, or None."""
        return self._cache.store(kind).get(key)

    def is_served(self, kind: Kind) -> bool:
        """Return whether the cluster serves an optional watched kind."""
        return self._cache.informer(kind).served

    def is_watched(self, kind: Kind, namespace: str) -> bool:
        """Return whether a watched kind is watched in a namespace."""
        return self._cache.informer(kind).scopes == ("",) or (
            namespace in self._cache.informer(kind).scopes
        )

    def projection[P: Projection](self, type_: type[P]) -> P:
        """Return a projection of the cache that the controller declares by `projects`."""
        return self._cache.projection(type_)

    def wake(self, kind: Kind, keys: Iterable[Key]) -> None:
        """Trigger reconciles of primaries of another controller for which no event will come.

        For decisions of one controller about objects of another that are kept only in memory: after
        a restart each object is reconciled anyway, and must come to the same decision.
        """
        self._wake(kind, keys)

    def indexed(self, kind: Kind, index: str, value: str) -> Objects:
        """Return the objects that an index of a watched kind has for a value, by name."""
        return self._cache.store(kind).indexed(index, value)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        selector: Mapping[str, Any] | None = None,
    ) -> Objects:
        """Return objects of a watched kind, by default in the primary's namespace.

        Args:
            kind: A watched kind.
            namespace: Namespace; None for the namespace of the primary (all namespaces if it has
                none), `*` for all that are watched. Ignored for cluster-scoped kinds.
            selector: A `LabelSelector`; None for all.
        """
        where = (namespace or self.key.namespace or None) if kind.namespaced else None
        return self._cache.store(kind).list(None if where == "*" else where, selector)

    async def live_get(self, kind: Kind, key: Key) -> Manifest | None:
        """Read an object from the API server; None if it does not exist."""
        try:
            return await self.client.get(kind, key)
        except NotFound:
            return None

    async def is_current(self) -> bool:
        """Return whether the UID and spec of the primary are unchanged on the API server.

        Check this before adding an owner reference to an existing object: if the owner no longer
        exists, the garbage collector deletes the object.
        """
        live = await self.live_get(self.kind, self.key)
        return (
            live is not None
            and uid_of(live) == self.uid
            and not is_deleting(live)
            and live["metadata"].get("generation") == self.primary["metadata"].get("generation")
        )

    async def execute(self, *batches: Sequence[Step], confirmed: bool = False) -> Outcome:
        """Take the steps of a plan.

        Batches are taken one after the other, the steps of a batch concurrently with slow start.
        Refusals of the API server are part of the outcome and not raised.

        Args:
            batches: Steps to take.
            confirmed: Whether even a single create waits until the primary was read. Pass True for
                objects that must not be created from an outdated spec and cannot be deleted again,
                such as an address of a draining pool.

        Raises:
            PrimaryGone: A step creates an object, and the primary was deleted or is being deleted.
            PrimaryChanged: A step creates an object, and the spec is outdated. Nothing was done;
                the new spec is in the cache.
        """
        creates = [step for batch in batches for step in batch if self._creates_child(step)]
        if len(creates) == 1 and isinstance(creates[0], Create) and not confirmed:
            return await self._execute_one(creates[0], batches)
        if creates:
            await self._confirm_primary()
        # An apply may still find that its object is missing: the cache lags, or has no such kind.
        confirm = None if creates else self._confirm_primary
        return await self._writer.execute(batches, confirm=confirm)

    def _creates_child(self, step: Step) -> bool:
        """Return whether the cache shows that a step will create an object."""
        if not isinstance(step, Apply):
            return isinstance(step, Create)
        informer = self._cache.find(step.kind)
        return informer is not None and informer.store.get(step.key) is None

    async def _execute_one(self, create: Create, batches: Sequence[Sequence[Step]]) -> Outcome:
        """Take steps that create one child, and confirm the primary afterwards.

        A failed child is replaced without delay: the create does not wait for another request. If
        the primary no longer exists, the replacement is deleted again. A replacement for an older
        spec is kept, as if it had been created a moment earlier.
        """
        try:
            outcome = await self._writer.execute(batches, confirm=self._confirm_primary)
            with contextlib.suppress(PrimaryChanged):
                await self._confirm_primary()
        except PrimaryGone:
            await self._delete_child(create)
            raise
        return outcome

    async def _delete_child(self, create: Create) -> None:
        # Another object may have the name by now: delete only what this incarnation controls.
        child = await self.live_get(create.kind, create.key)
        if child is not None and controller_uid(child) == self.uid:
            await self._writer.execute([[Delete.of(create.kind, child)]])

    async def _confirm_primary(self) -> None:
        """Check with the API server that the primary is unchanged before it gets new children.

        Each kind has its own watch: the garbage collector's deletion of a child may be seen before
        the deletion of its owner, and the child would be recreated without an owner. In the same
        way, a cause for a new child may be seen before the change that excludes it.
        """
        informer = self._cache.informer(self.kind)
        live = await self.live_get(self.kind, self.key)
        if live is None or uid_of(live) != self.uid:
            informer.observe_deleted(self.key, self.uid)
        elif is_deleting(live) and not is_deleting(self.primary):
            informer.wrote(live)
        elif live["metadata"].get("generation", 0) != self.generation:
            informer.wrote(live)
            raise PrimaryChanged(str(self))
        else:
            return
        raise PrimaryGone(str(self))

    async def apply_status(self, status: Mapping[str, Any]) -> bool:
        """Set the status to the given one.

        A status with the condition Ready but without Stalled gets that condition: it becomes True
        at the deadline of the controller if the object is not ready by then.

        Returns:
            Whether a request was sent: an equal status is not written.

        Raises:
            ApiError: The server refused. Do not catch this in the reconciler, so that the reconcile
                is retried.
        """
        held = self._cache.store(self.kind).get(self.key)
        if held is None or uid_of(held) != self.uid:
            return False
        if not self._status_subresource:
            status = drop_generations(status)
        foreign, status = self._cache.foreign, drop_empty(self._add_stalled(status, held))
        explained = foreign.explain(self._manager, held, status)
        if explained and same_status(held.get("status"), status):
            return False
        try:
            response = await self._send_status(status, held)
        except NotFound:
            # The object was deleted. (If it was recreated, the apply is a conflict and the next
            # reconcile handles it.)
            live = await self.live_get(self.kind, self.key)
            if live is not None and uid_of(live) == self.uid:
                raise SlipwayError(
                    f"The status of {self} cannot be written: the installed CRD of {self.kind} has "
                    "no status subresource; apply the CRD of this release, or declare the "
                    "controller with status_subresource=False"
                ) from None
            return False
        foreign.learn(self._manager, response, status)
        # Handlers skip this reconcile as the origin, unless the response contains other changes
        # than the status: their event will be outdated when it arrives, so this is the only
        # notification.
        is_status_only = _is_same_but_status(held, self._cache.store(self.kind).reduce(response))
        self._cache.informer(self.kind).wrote(response, self._origin if is_status_only else None)
        return True

    def _add_stalled(self, status: Mapping[str, Any], held: Manifest) -> Mapping[str, Any]:
        ready = find_condition({"status": status}, READY)
        if (
            ready is None
            or ready["status"] != "False"
            or ready["reason"] in self._resting
            or find_condition({"status": status}, STALLED) is not None
        ):
            return status
        seconds, now = self._stalls_after, self.now()
        stalled, left = evaluate_stalled(conditions_of(held), ready, seconds=seconds, now=now)
        if left > 0:
            self._requeue(left)
        return {**status, "conditions": [*status["conditions"], stalled]}

    async def _send_status(self, status: Mapping[str, Any], held: Manifest) -> Manifest:
        """Apply the status to this incarnation of the primary, even if other fields have changed.

        The server ignores a UID in status applies, so a recreated object would get the status of
        the old one. The resource version is the guard instead; after a conflict, the UID is
        compared.
        """
        for left in reversed(range(_STATUS_TRIES)):
            version = held["metadata"]["resourceVersion"]
            manifest: Manifest = build_object(
                self.kind, self.key.name, metadata={"resourceVersion": version}, status=status
            )
            if self.key.namespace:
                manifest["metadata"]["namespace"] = self.key.namespace
            manager = f"{self._manager}-status"
            try:
                return await self.client.apply(
                    self.kind,
                    manifest,
                    field_manager=manager,
                    subresource="status" if self._status_subresource else "",
                )
            except Conflict:
                held = await self.client.get(self.kind, self.key)
                if not left or uid_of(held) != self.uid:
                    raise
        raise AssertionError  # The last attempt returns or raises.

    def event(
        self,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        *,
        action: str = "Reconcile",
        related: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an Event about the primary, which `kubectl describe` and `kubectl events` show."""
        self._recorder.event(
            self.kind, self.primary, event_type, reason, note, action=action, related=related
        )

    def report[A: Action](self, actions: Iterable[A], outcome: Outcome) -> tuple[A, ...]:
        """Record Events and log lines for the actions that were taken.

        Returns:
            The recorded actions, for the metrics of the operator.
        """
        reported = tuple(action for action in done_of(actions, outcome) if action.note)
        for action in reported:
            self.log.info(action.note, reason=str(action.reason))
            self.event("Warning" if action.warning else "Normal", action.reason, action.note)
        return reported

    def warn_on_new_condition(self, status: Mapping[str, Any], *types: str) -> Sequence[str]:
        """Record a warning for each condition that becomes True with a new status.

        Returns:
            Types of these conditions, for the metrics of the operator.
        """
        begun = []
        for type_ in types:
            condition = find_new_condition(self.primary, {"status": status}, type_)
            if condition is not None:
                self.event("Warning", condition["reason"], condition["message"])
                begun.append(type_)
        return begun

    def warn_on_new_reason(
        self, status: Mapping[str, Any], type: str, reasons: Container[str]
    ) -> None:
        """Record a warning if the reason of a condition changes to one of the given reasons.

        Args:
            status: Status that will be written.
            type: Type of the condition, such as `Ready`.
            reasons: Reasons that require action by a person.
        """
        condition = find_new_reason(self.primary, {"status": status}, type, reasons)
        if condition is not None:
            self.event("Warning", condition["reason"], condition["message"])


def _is_same_but_status(held: Mapping[str, Any], response: Mapping[str, Any]) -> bool:
    """Return whether two versions differ only in fields that a status write changes."""
    first, second = strip_noise(dict(held)), strip_noise(dict(response))
    for manifest in (first, second):
        manifest.pop("status", None)
        manifest["metadata"] = {
            name: value for name, value in manifest["metadata"].items() if name != "resourceVersion"
        }
    return first == second
