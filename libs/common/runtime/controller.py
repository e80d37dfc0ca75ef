"""Controller: the declaration of watches and of the reconcile function.

A controller is only data until a manager runs it:

```python
Controller("podset", primary=PODSET, reconcile=reconcile).owns(POD, transform=shrink_pod)
```
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict, Unpack

from libs.common.kinds import Key, Kind, Manifest
from libs.common.plan import Outcome
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.cache import Cache, Projection
from libs.common.runtime.context import Context
from libs.common.runtime.informer import SourceName
from libs.common.runtime.store import IndexFunction, Transform

type Mapper = Callable[[Manifest, Cache], Iterable[Key]]
"""Returns the primaries that are affected by a change of a watched object."""
type Predicate = Callable[[Manifest | None, Manifest | None], bool]
"""Returns whether a change is relevant, from the object before and after it; either can be None.

Only events are filtered. A resync enqueues every primary, so a wrong predicate delays a reconcile
but does not lose it."""
type Reconcile = Callable[[Context], Awaitable[Result | None]]
"""Brings a primary closer to its spec, based on the observed state and never on events."""
type Finalize = Callable[[Context], Awaitable[Result | None]]
"""Cleans up for a primary that is being deleted; returns None when the clean-up is done."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile: when to reconcile again.

    Attributes:
        requeue_after: Seconds until the next reconcile without an event; None for none.
        error: Error that prevented a part of the plan; the key is retried with back-off.
    """

    requeue_after: float | None = None
    error: Exception | None = None

    @classmethod
    def from_outcome(cls, outcome: Outcome, *, requeue_after: float | None = None) -> Result:
        """Build the result of a reconcile whose steps may have failed."""
        return cls(requeue_after, outcome.first_error())


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch of a kind, and the mapping of its changes to primaries.

    Attributes:
        mapper: Maps a change to primaries; None enqueues the controlling owner.
        transform: Reduces an object to the fields that the operator reads.
        label_selector: Restricts the watch to matching objects; evaluated by the server.
        field_selector: The same for fields that the server supports.
        metadata_only: Whether the cache holds only metadata, for kinds with which users could fill
            it, such as ConfigMaps. Read the rest of an object with `ctx.live_get`.
        source: Event source; None accepts the choice of other watches of the kind.
        optional: Whether the operator works if the cluster does not serve the kind.
        indexes: Named index functions.
        predicate: Selects the changes that enqueue primaries; None for all.
        writes: Verbs in addition to reading that reconciles need; `derive_rules` grants them.
        why: Reason for the permissions, for readers of the chart.
        owned: Whether the primary is the controlling owner of the objects.
    """

    kind: Kind
    mapper: Mapper | None = None
    transform: Transform | None = None
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False
    source: SourceName | None = None
    optional: bool = False
    indexes: Mapping[str, IndexFunction] = field(default_factory=dict)
    predicate: Predicate | None = None
    writes: Sequence[str] = ()
    why: str = ""
    owned: bool = False


class WatchOptions(TypedDict, total=False):
    """Options of `owns`, `watches` and `reads`; see `Watch`."""

    transform: Transform
    label_selector: str
    field_selector: str
    metadata_only: bool
    source: SourceName
    optional: bool
    indexes: Mapping[str, IndexFunction]
    predicate: Predicate
    writes: Sequence[str]
    why: str


def always(_: Mapping[str, Any]) -> bool:
    """Return True: every object needs the finalizer."""
    return True


@dataclass(slots=True)
class Controller:
    """The declaration of how a kind is reconciled.

    Attributes:
        name: Name in metrics, logs and the field manager of writes.
        primary: Kind that is reconciled; the manager creates its informer.
        reconcile: Called for each primary that is not being deleted.
        finalize: Called for each primary that is being deleted and has the finalizer.
        finalizer: Finalizer to add before the first reconcile; empty for none.
        needs_finalizer: Returns whether a primary needs the finalizer; it is removed from the
            others.
        source: Event source of the primary.
        optional: Whether the operator works if the cluster does not serve the primary; requires
            source `reflector`.
        label_selector: Restricts the controller to matching primaries. Another release of the
            operator can reconcile the others.
        field_selector: The same for fields that the server supports.
        predicate: Selects the changes of a primary that enqueue it; None for all.
        blocks_deletion: Whether a foreground deletion of a primary waits for its children.
        reports_ready: Whether primaries have the condition Ready. If not, objects without
            conditions are not counted as objects that are not ready.
        stalls_after: Seconds without a change of the spec or of the reason of Ready after which a
            primary that is not ready gets the condition Stalled.
        resting: Reasons of Ready for which a primary is not ready because its spec says so; they
            have no deadline.
        status_subresource: Whether the CRD of the primary has the status subresource. Without it,
            the status is written with the object, and without `observedGeneration`: the API server
            counts each write of such an object as a new generation.
        max_concurrent_reconciles: Number of primaries that are reconciled at a time; None for the
            setting of the process.
        backoff: Delays of failing primaries; None for the settings of the process.
        watched: Further kinds, added by `owns`, `watches` and `reads`.
        projections: Projections of the cache, added by `projects`.
        close: Called after the last reconcile to close resources of the reconciler; has a time
            limit of 3 s.
    """

    name: str
    primary: Kind
    reconcile: Reconcile
    finalize: Finalize | None = None
    finalizer: str = ""
    needs_finalizer: Callable[[Mapping[str, Any]], bool] = always
    source: SourceName = "kopf"
    optional: bool = False
    label_selector: str = ""
    field_selector: str = ""
    predicate: Predicate | None = None
    blocks_deletion: bool = True
    reports_ready: bool = True
    stalls_after: float = 600.0
    resting: frozenset[str] = frozenset()
    status_subresource: bool = True
    max_concurrent_reconciles: int | None = None
    backoff: BackoffPolicy | None = None
    watched: list[Watch] = field(default_factory=list)
    projections: list[type[Projection]] = field(default_factory=list)
    close: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        """Refuse a finalizer without a clean-up or the reverse, and plain functions.

        Raises:
            ValueError: Only one of `finalize` and `finalizer` is given, or one of the functions is
                not a coroutine function.
        """
        if bool(self.finalizer) != (self.finalize is not None):
            raise ValueError(f"Controller {self.name}: set both finalize and finalizer, or neither")

        for name, function in (("reconcile", self.reconcile), ("finalize", self.finalize)):
            plain = inspect.isroutine(function) and not inspect.iscoroutinefunction(function)
            if plain and getattr(function, "__name__", "") != "<lambda>":
                raise ValueError(
                    f"Controller {self.name}: {name} must be declared with `async def`. Call code "
                    "that blocks by `await asyncio.to_thread(...)`. Mark a decorator's function "
                    "that returns a coroutine by `inspect.markcoroutinefunction`"
                )

    def owns(self, kind: Kind, **options: Unpack[WatchOptions]) -> Self:
        """Watch a kind of children: a change enqueues the primary that controls the object."""
        self.watched.append(Watch(kind, None, owned=True, **options))
        return self

    def watches(self, kind: Kind, mapper: Mapper, **options: Unpack[WatchOptions]) -> Self:
        """Watch any kind: a change enqueues the primaries that the mapper returns."""
        self.watched.append(Watch(kind, mapper, **options))
        return self

    def reads(self, kind: Kind, **options: Unpack[WatchOptions]) -> Self:
        """Keep a kind in the cache for reconciles to read; its changes enqueue nothing."""
        return self.watches(kind, lambda _object, _cache: (), **options)

    def projects(self, projection: type[Projection]) -> Self:
        """Keep a projection of the cache; controllers that declare the same type share it."""
        self.projections.append(projection)
        return self
