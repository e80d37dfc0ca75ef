"""Cache: the informers of one operator, by kind, and what is computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, Protocol

from libs.common.kinds import Kind
from libs.common.runtime.informer import Handler, Informer
from libs.common.runtime.statuses import ForeignConditions
from libs.common.runtime.store import Change, Store

_SILENCE_LIMIT: Final = 900.0
"""Seconds of silence after which a watch counts as dead. Bookmarks come each minute and new streams
every five, so a quiet kind is never mistaken for a dead one."""


class Projection(Protocol):
    """Keep something that is computed from the cache up to date, where an index is not enough.

    A projection is told of each change before any key is enqueued for it, our own writes included,
    so a pass finds it as new as the cache. It is built empty with the cache and lives as long.
    """

    kinds: ClassVar[tuple[Kind, ...]]
    """Watched kinds whose changes it is told."""

    def changed(self, change: Change) -> None:
        """Take in what was and what is."""


class Cache:
    """Hold one informer for each kind that an operator watches."""

    def __init__(self) -> None:
        """Start without informers."""
        self.foreign = ForeignConditions()
        self._informers: dict[tuple[str, str], Informer] = {}
        self._projections: dict[type[Projection], Projection] = {}

    def add(self, informer: Informer) -> None:
        """Add an informer.

        Raises:
            ValueError: The kind is watched already.
        """
        slot = _slot(informer.kind)
        if slot in self._informers:
            raise ValueError(f"{informer.kind} is watched twice; watch it once and share it")
        self._informers[slot] = informer

    def informer(self, kind: Kind) -> Informer:
        """Return the informer of a kind.

        Raises:
            KeyError: The operator does not watch the kind; name it in `owns` or `watches`.
        """
        try:
            return self._informers[_slot(kind)]
        except KeyError:
            raise KeyError(f"{kind} is not watched; name it in owns() or watches()") from None

    def find(self, kind: Kind) -> Informer | None:
        """Return the informer of a kind, or None when the kind is not watched."""
        return self._informers.get(_slot(kind))

    def store(self, kind: Kind) -> Store:
        """Return the store of a kind that is watched."""
        return self.informer(kind).store

    def keep_projections(self, types: Iterable[type[Projection]]) -> None:
        """Build each projection once and have it told of the changes from now on."""
        for type_ in dict.fromkeys(types):
            projection = self._projections[type_] = type_()
            for kind in type_.kinds:
                self.informer(kind).add_handler(_tell(projection))

    def projection[P: Projection](self, type_: type[P]) -> P:
        """Return the projection of a type that a controller declares.

        Raises:
            KeyError: No controller declares it; name it in `projects`.
        """
        found = self._projections.get(type_)
        if not isinstance(found, type_):
            raise KeyError(f"{type_.__name__} is not kept; name it in projects()")
        return found

    def __iter__(self) -> Iterator[Informer]:
        """Iterate over the informers."""
        return iter(self._informers.values())

    @property
    def synced(self) -> bool:
        """Whether each store has held a complete listing."""
        return all(informer.synced for informer in self)

    def check_synced(self) -> str | None:
        """Tell what keeps the process from being ready; None for nothing."""
        waiting = [informer.kind.resource for informer in self if not informer.synced]
        return f"waiting for {', '.join(waiting)}" if waiting else None

    def check_watches(self) -> str | None:
        """Tell which watches seem to be dead; None for none."""
        silent = [
            f"{informer.kind.resource} for {informer.silence:.0f} s"
            for informer in self
            if informer.synced and informer.served and informer.silence > _SILENCE_LIMIT
        ]
        return f"nothing heard of {', '.join(silent)}" if silent else None


def _tell(projection: Projection) -> Handler:
    return lambda change, _: projection.changed(change)


def _slot(kind: Kind) -> tuple[str, str]:
    # Versions of one kind are views of the same objects.
    return (kind.group, kind.kind)
