"""Context: what one pass over one object may see and do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import structlog

from libs.common.actions import Action, done_of
from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.conditions import find_begun, find_turned
from libs.common.errors import Conflict, NotFound, SlipwayError
from libs.common.kinds import Key, Kind, Manifest, build_object, describe, is_deleting, uid_of
from libs.common.metrics import Metrics
from libs.common.ownership import build_owner_reference, controller_uid
from libs.common.plan import Apply, Create, Delete, Outcome, Step
from libs.common.runtime.cache import Cache, Projection
from libs.common.runtime.informer import Origin
from libs.common.runtime.statuses import drop_empty, same_status
from libs.common.runtime.store import strip_noise
from libs.common.runtime.writer import Writer

_STATUS_TRIES = 5

type Objects = list[Manifest]
type Wake = Callable[[Kind, Iterable[Key]], None]
"""Ask for passes over some primaries of another controller of the process."""


class PrimaryGone(Exception):
    """The primary was deleted since the pass began; there is nothing left to do for it."""


class PrimaryChanged(Exception):
    """The spec of the primary was changed since the pass began; a new pass makes a new plan."""


class Recorder(Protocol):
    """Tell people what happened to an object, without ever blocking or failing a reconcile."""

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
    """Give a reconciler its object, a view of the others, and the ways to write.

    What is read here comes from the cache, which holds our own writes as soon as they are
    answered. Objects are shared with the cache: read them, build new ones, never change them.

    Attributes:
        key: Key of the primary.
        primary: The primary itself.
        kind: Kind of the primary.
        client: Connection, for the rare read that must not come from the cache.
        metrics: Metrics of the process, for those that the operator declares itself.
        log: Logger that carries controller, object and reconcile id.
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
    ) -> None:
        """Build the context of one reconcile; the runtime does."""
        self.key = key
        self.kind = kind
        self.primary = primary
        self.client = client
        self.metrics = metrics
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger(origin.controller)
        self._cache = cache
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._origin = origin
        self._manager = origin.controller
        self._wake = wake

    def __str__(self) -> str:
        """Name the primary as messages do: `PodSet default/web`."""
        return describe(self.kind, self.key)

    @property
    def uid(self) -> str:
        """UID of the primary."""
        return uid_of(self.primary)

    @property
    def generation(self) -> int:
        """Generation of the primary that this reconcile looks at."""
        return int(self.primary["metadata"].get("generation") or 0)

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._clock.now()

    def owner_reference(self) -> Manifest:
        """Build the controller reference for a child of the primary."""
        return build_owner_reference(self.kind, self.primary)

    def children(self, kind: Kind) -> Objects:
        """Return the objects that the primary controls, by name, terminating ones too."""
        return self._cache.store(kind).owned_by(self.uid)

    def get(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object of a watched kind from the cache, or None."""
        return self._cache.store(kind).get(key)

    def is_served(self, kind: Kind) -> bool:
        """Return whether an optional kind that is watched exists on this cluster."""
        return self._cache.informer(kind).served

    def is_watched(self, kind: Kind, namespace: str) -> bool:
        """Return whether objects of a watched kind are seen in a namespace."""
        return self._cache.informer(kind).scopes == ("",) or (
            namespace in self._cache.informer(kind).scopes
        )

    def projection[P: Projection](self, type_: type[P]) -> P:
        """Return a projection of the cache that the controller declares by `projects`."""
        return self._cache.projection(type_)

    def wake(self, kind: Kind, keys: Iterable[Key]) -> None:
        """Ask for passes over primaries of another controller, for which no event will come.

        Meant for what one controller decides about the objects of another and keeps in memory
        alone: after a restart each object has a reconcile anyway, and must find the same.
        """
        self._wake(kind, keys)

    def indexed(self, kind: Kind, index: str, value: str) -> Objects:
        """Return what an index of a watched kind has under a value, by name."""
        return self._cache.store(kind).indexed(index, value)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        selector: Mapping[str, Any] | None = None,
    ) -> Objects:
        """Return objects of a watched kind; by default those of the primary's namespace.

        Args:
            kind: A watched kind.
            namespace: Namespace; None for that of the primary (all when it has none). It does not
                matter for kinds that have no namespaces.
            selector: A `LabelSelector`; None for all.
        """
        where = (namespace or self.key.namespace or None) if kind.namespaced else None
        return self._cache.store(kind).list(where, selector)

    async def live_get(self, kind: Kind, key: Key) -> Manifest | None:
        """Read an object from the API server; None when it does not exist."""
        try:
            return await self.client.get(kind, key)
        except NotFound:
            return None

    async def is_current(self) -> bool:
        """Return whether the API server has the spec of the primary just as this reconcile has it.

        Ask before the owner's mark is written on an object that exists: a mark of an owner that is
        gone already hands the object to the garbage collector.
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

        Batches are taken one after the other, the steps of a batch side by side with slow start.
        What the API server refuses is told by the outcome, never raised.

        Args:
            batches: Steps to take.
            confirmed: Whether even a single create waits until the primary was read. Give True for
                what must not be made on the ground of an outdated spec, and cannot be taken back:
                an address from a pool that drains.

        Raises:
            PrimaryGone: Something was to be created for a primary that is gone or going.
            PrimaryChanged: Something was to be created for a spec that is not the newest. Nothing
                was done; the new spec is in the cache.
        """
        creates = [step for batch in batches for step in batch if self._makes_child(step)]
        if len(creates) == 1 and isinstance(creates[0], Create) and not confirmed:
            return await self._execute_one(creates[0], batches)
        if creates:
            await self._confirm_primary()
        return await self._writer.execute(batches)

    def _makes_child(self, step: Step) -> bool:
        """Return whether a step is about to make an object that was not there."""
        if not isinstance(step, Apply):
            return isinstance(step, Create)
        informer = self._cache.find(step.kind)
        return informer is not None and informer.store.get(step.key) is None

    async def _execute_one(self, birth: Create, batches: Sequence[Sequence[Step]]) -> Outcome:
        """Take steps that make one child, and confirm the primary afterwards.

        A child that died is replaced immediately: nothing is asked before, nor beside, if it would
        share the API server with the create. Where the primary turns out to be gone, the
        replacement is taken back. One that was made for an older spec stays, as it would have had
        it been made a moment earlier.
        """
        outcome = await self._writer.execute(batches)
        try:
            with contextlib.suppress(PrimaryChanged):
                await self._confirm_primary()
        except PrimaryGone:
            await self._take_back(birth)
            raise
        return outcome

    async def _take_back(self, birth: Create) -> None:
        child = await self.live_get(birth.kind, birth.key)
        if child is not None and controller_uid(child) == self.uid:
            await self._writer.execute([[Delete.of(birth.kind, child)]])

    async def _confirm_primary(self) -> None:
        """Ask the API server whether the primary is as it was before it gets new children.

        Kinds are watched by streams of their own: the garbage collector's deletion of a child may
        be seen before the deletion of its owner, and the child would be made again for nobody. In
        the same way what asks for a child may be seen before the change that rules it out.
        """
        informer = self._cache.informer(self.kind)
        live = await self.live_get(self.kind, self.key)
        if live is None or uid_of(live) != self.uid:
            informer.vanished(self.key, self.uid)
        elif is_deleting(live) and not is_deleting(self.primary):
            informer.wrote(live)
        elif live["metadata"].get("generation", 0) != self.generation:
            informer.wrote(live)
            raise PrimaryChanged(str(self))
        else:
            return
        raise PrimaryGone(str(self))

    async def apply_status(self, status: Mapping[str, Any]) -> bool:
        """Make the status be exactly the given one.

        Returns:
            Whether a request was sent: an equal status is not written.

        Raises:
            ApiError: The server refused; let it out of the pass, which is then tried again.
        """
        held = self._cache.store(self.kind).get(self.key)
        if held is None or uid_of(held) != self.uid:
            return False
        foreign, status = self._cache.foreign, drop_empty(status)
        explained = foreign.explain(self._manager, held, status)
        if explained and same_status(held.get("status"), status):
            return False
        try:
            answer = await self._send_status(status, held)
        except NotFound:
            # Deleted meanwhile. (Deleted and created again is a conflict: the next reconcile sees.)
            live = await self.live_get(self.kind, self.key)
            if live is not None and uid_of(live) == self.uid:
                raise SlipwayError(
                    f"The status of {self} cannot be written: the installed CRD of {self.kind} has "
                    "no status subresource; apply the CRD of this release"
                ) from None
            return False
        foreign.learn(self._manager, answer, status)
        # Told to everybody but this reconcile, unless the response shows that somebody changed more
        # than the status meanwhile: then its event is outdated, and this is how we hear of it.
        alone = _is_same_but_status(held, self._cache.store(self.kind).reduce(answer))
        self._cache.informer(self.kind).wrote(answer, self._origin if alone else None)
        return True

    async def _send_status(self, status: Mapping[str, Any], held: Manifest) -> Manifest:
        """Apply the status to this incarnation of the primary, whatever else was written to it.

        The server overlooks a UID there: the old status of a namesake would become that of the new
        object. So the guard is the resource version, and who conflicts looks which object it is.
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
                    self.kind, manifest, field_manager=manager, subresource="status"
                )
            except Conflict:
                held = await self.client.get(self.kind, self.key)
                if not left or uid_of(held) != self.uid:
                    raise
        raise AssertionError  # The last try returns or raises.

    def event(
        self,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        *,
        action: str = "Reconcile",
        related: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell people about the primary, as `kubectl describe` and `kubectl events` show it."""
        self._recorder.event(
            self.kind, self.primary, event_type, reason, note, action=action, related=related
        )

    def tell[A: Action](self, actions: Iterable[A], outcome: Outcome) -> tuple[A, ...]:
        """Tell people and the log of the actions that were taken.

        Returns:
            Those that were told, for the metrics of the operator.
        """
        told = tuple(action for action in done_of(actions, outcome) if action.note)
        for action in told:
            self.log.info(action.note, reason=str(action.reason))
            self.event("Warning" if action.warning else "Normal", action.reason, action.note)
        return told

    def warn_on_new_condition(self, status: Mapping[str, Any], *types: str) -> Sequence[str]:
        """Warn of conditions that begin to hold with a status; while they last, they tell.

        Returns:
            The types that began, for the metrics of the operator.
        """
        begun = []
        for type_ in types:
            condition = find_begun(self.primary, {"status": status}, type_)
            if condition is not None:
                self.event("Warning", condition["reason"], condition["message"])
                begun.append(type_)
        return begun

    def tell_turned(self, status: Mapping[str, Any], type: str, reasons: Container[str]) -> None:
        """Warn when a condition gets one of some reasons with a status; while it lasts, it tells.

        Args:
            status: Status that is about to be written.
            type: Type of the condition, such as `Ready`.
            reasons: Those that people have to do something about.
        """
        condition = find_turned(self.primary, {"status": status}, type, reasons)
        if condition is not None:
            self.event("Warning", condition["reason"], condition["message"])


def _is_same_but_status(held: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Return whether two versions of an object differ only in what a status write changes."""
    first, second = strip_noise(dict(held)), strip_noise(dict(answer))
    for manifest in (first, second):
        manifest.pop("status", None)
        manifest["metadata"] = {
            name: value for name, value in manifest["metadata"].items() if name != "resourceVersion"
        }
    return first == second
