"""Controller: the declaration of what is watched, and of who decides.

A controller is data until a manager runs it:

```python
Controller("podset", primary=PODSET, reconcile=reconcile).owns(POD, transform=shrink_pod)
```
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict, Unpack

from libs.common.kinds import Key, Kind, Manifest, is_deleting
from libs.common.plan import Outcome
from libs.common.runtime.cache import Cache, Projection
from libs.common.runtime.context import Context
from libs.common.runtime.informer import SourceName
from libs.common.runtime.store import IndexFunction, Transform

type Mapper = Callable[[Manifest, Cache], Iterable[Key]]
"""Name the primaries that a change of a watched object concerns."""
type Predicate = Callable[[Manifest | None, Manifest | None], bool]
"""Return whether a change concerns anybody, by the object before and after; None if there is none.

Only events are filtered. A resync enqueues every primary, so a predicate that is wrong delays a
reconcile and does not lose it."""
type Reconcile = Callable[[Context], Awaitable[Result | None]]
"""Bring one primary closer to its spec; look at what is, never at what happened."""
type Finalize = Callable[[Context], Awaitable[Result | None]]
"""Clean up for a primary that is being deleted; None means that the clean-up is done."""


@dataclass(frozen=True, slots=True)
class Result:
    """Say when to look again.

    Attributes:
        requeue_after: Seconds until another reconcile that no event asks for; None for none.
        error: What kept the pass from doing all it planned; the key is backed off.
    """

    requeue_after: float | None = None
    error: Exception | None = None

    @classmethod
    def from_outcome(cls, outcome: Outcome, *, requeue_after: float | None = None) -> Result:
        """Build the result of a reconcile whose steps may have failed."""
        return cls(requeue_after, outcome.first_error())


@dataclass(frozen=True, slots=True)
class Watch:
    """Say which kind is watched, how, and whose business it is.

    Attributes:
        kind: What is watched.
        mapper: Names the primaries of a change; None enqueues the controlling owner.
        transform: Keeps of an object only what the operator reads.
        label_selector: Watches only what the server finds by it.
        field_selector: Likewise, by fields that the server can select by.
        source: Which event source; None leaves it to the other watches of the kind.
        optional: The operator works where the kind is not served.
        indexes: Named functions by which objects are found in the cache.
        predicate: Tells which changes enqueue; None for all.
        writes: Verbs beside reading that reconciles need on the kind; `derive_rules` grants them.
        why: Reason for the permissions, for readers of the chart.
        owned: Whether the primary is the controlling owner of the objects.
    """

    kind: Kind
    mapper: Mapper | None = None
    transform: Transform | None = None
    label_selector: str = ""
    field_selector: str = ""
    source: SourceName | None = None
    optional: bool = False
    indexes: Mapping[str, IndexFunction] = field(default_factory=dict)
    predicate: Predicate | None = None
    writes: Sequence[str] = ()
    why: str = ""
    owned: bool = False


class WatchOptions(TypedDict, total=False):
    """Options of `owns`, `watches` and `reads`, as `Watch` explains them."""

    transform: Transform
    label_selector: str
    field_selector: str
    source: SourceName
    optional: bool
    indexes: Mapping[str, IndexFunction]
    predicate: Predicate
    writes: Sequence[str]
    why: str


def always(_: Mapping[str, Any]) -> bool:
    """Tell that every object needs the finalizer."""
    return True


def generation_changed(old: Manifest | None, new: Manifest | None) -> bool:
    """Return whether the spec of an object changed, or whether it appeared, is deleted or is gone.

    A predicate for kinds whose status or metadata is written often. Kinds without a generation,
    such as ConfigMaps and pods, need another one.
    """
    if old is None or new is None or is_deleting(old) != is_deleting(new):
        return True
    return bool(old["metadata"].get("generation") != new["metadata"].get("generation"))


@dataclass(slots=True)
class Controller:
    """Declare how one kind is reconciled.

    Attributes:
        name: Name in metrics, logs and the field manager of writes.
        primary: Kind that is reconciled; its informer is made by the manager.
        reconcile: Called with each primary that is not being deleted.
        finalize: Called with each primary that is being deleted and carries the finalizer.
        finalizer: Finalizer to add before the first reconcile; empty for none.
        needs_finalizer: Tells which primaries need it; it is taken off the others.
        source: Event source of the primary.
        optional: The operator works where the primary is not served; needs source `reflector`.
        label_selector: Reconciles only the primaries that the server finds by it. Another release
            of the operator can have the others.
        field_selector: Likewise, by fields that the server can select by.
        predicate: Tells which changes of a primary enqueue it; None for all.
        watched: Further kinds, added by `owns`, `watches` and `reads`.
        projections: What is computed from the cache, added by `projects`.
        close: Called when no reconcile is made any more, to close what passes kept open; given up
            on after 3 s.
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
    watched: list[Watch] = field(default_factory=list)
    projections: list[type[Projection]] = field(default_factory=list)
    close: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        """Refuse a finalizer that nobody would ever take off, and a clean-up never called.

        Raises:
            ValueError: Only one of `finalize` and `finalizer` is given.
        """
        if bool(self.finalizer) != (self.finalize is not None):
            raise ValueError(f"Controller {self.name}: set both finalize and finalizer, or neither")

    def owns(self, kind: Kind, **options: Unpack[WatchOptions]) -> Self:
        """Watch a kind of children: a change enqueues the primary that controls the object."""
        self.watched.append(Watch(kind, None, owned=True, **options))
        return self

    def watches(self, kind: Kind, mapper: Mapper, **options: Unpack[WatchOptions]) -> Self:
        """Watch any kind: a change enqueues the primaries that the mapper names."""
        self.watched.append(Watch(kind, mapper, **options))
        return self

    def reads(self, kind: Kind, **options: Unpack[WatchOptions]) -> Self:
        """Keep a kind in the cache for passes to look at; a change of it enqueues nothing."""
        return self.watches(kind, lambda _object, _cache: (), **options)

    def projects(self, projection: type[Projection]) -> Self:
        """Keep a projection of the cache; controllers that name the same one share it."""
        self.projections.append(projection)
        return self
