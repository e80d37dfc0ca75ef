"""Cache: the informers of an operator by kind, and the projections that are computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import ClassVar, Final, Protocol

import structlog
from prometheus_client import Gauge

from libs.common.health import CheckNote
from libs.common.kinds import Kind, describe, key_of
from libs.common.runtime.informer import Handler, Informer, Origin
from libs.common.runtime.statuses import ForeignConditions
from libs.common.runtime.store import Change, Store

log = structlog.get_logger(__name__)

_SILENCE_LIMIT: Final = 900.0
"""Seconds of silence after which a watch counts as dead. Bookmarks come each minute and new streams
every five to ten, so a quiet kind is never mistaken for a dead one."""


class Projection(Protocol):
    """A data structure that is kept in sync with the cache, if an index is not enough.

    A projection receives each change, including our own writes, before any key is enqueued for it,
    so a reconcile finds it as up to date as the cache. It is created empty together with the cache.
    """

    kinds: ClassVar[tuple[Kind, ...]]
    """Watched kinds whose changes the projection receives."""

    def changed(self, change: Change) -> None:
        """Process a change: the object before and after it."""


class Cache:
    """The informers of an operator, one for each watched kind."""

    def __init__(self) -> None:
        """Start without informers."""
        self.foreign = ForeignConditions()
        self._informers: dict[tuple[str, str], Informer] = {}
        self._projections: dict[type[Projection], Projection] = {}
        self._broken: set[type[Projection]] = set()

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
        """Return the informer of a kind, or None if the kind is not watched."""
        return self._informers.get(_slot(kind))

    def store(self, kind: Kind) -> Store:
        """Return the objects of a kind: `get`, `list`, `owned_by(uid)`, `indexed(name, value)`."""
        return self.informer(kind).store

    def keep_projections(self, types: Iterable[type[Projection]]) -> None:
        """Create each projection once, and pass changes to it from now on."""
        for type_ in dict.fromkeys(types):
            self._projections[type_] = type_()
            for kind in type_.kinds:
                self.informer(kind).add_handler(
                    self._build_handler(type_), partial(self._broken.add, type_)
                )

    def projection[P: Projection](self, type_: type[P]) -> P:
        """Return the projection of a type that a controller declares.

        Raises:
            KeyError: No controller declares it; name it in `projects`.
        """
        if type_ in self._broken:
            self._rebuild(type_)
        found = self._projections.get(type_)
        if not isinstance(found, type_):
            raise KeyError(f"{type_.__name__} is not cached; name it in projects()")
        return found

    def _build_handler(self, type_: type[Projection]) -> Handler:
        def notify(change: Change, _: Origin | None) -> None:
            # A broken projection is rebuilt from the stores before it is read.
            if type_ not in self._broken:
                self._projections[type_].changed(change)

        return notify

    def _rebuild(self, type_: type[Projection]) -> None:
        """Rebuild a projection that raised an error for a change.

        Its state after the failed change is undefined. An object for which it raises an error again
        is skipped, and the next change of that object triggers another rebuild.
        """
        self._broken.discard(type_)
        projection = self._projections[type_] = type_()
        for kind in type_.kinds:
            for manifest in self.store(kind).list():
                try:
                    projection.changed(Change(kind, None, manifest))
                except Exception:
                    log.exception(
                        "Projection failed, object left out of the projection",
                        projection=type_.__name__,
                        object=describe(kind, key_of(manifest)),
                    )

    def find_blocked(self, kinds: Iterable[Kind], namespace: str | None) -> str:
        """Return why some kinds cannot be read in a namespace; empty if they can.

        Args:
            kinds: Watched kinds.
            namespace: None for any namespace.
        """
        for kind in kinds:
            informer = self.informer(kind)
            if not kind.namespaced:
                continue
            scope = informer.scope_of(namespace) if namespace is not None else None
            scopes = informer.all_scopes if namespace is None else [scope] if scope else []
            for each in scopes:
                if each.blocked or not each.synced:
                    return f"{kind.resource} in {each}: {each.problem or 'not listed yet'}"
        return ""

    @property
    def blocked_namespaces(self) -> dict[str, list[str]]:
        """Resources that cannot be read, by namespace."""
        blocked: dict[str, list[str]] = {}
        for informer in self:
            for scope in informer.all_scopes:
                if scope.blocked:
                    blocked.setdefault(str(scope), []).append(informer.kind.resource)
        return blocked

    def export_scopes(self, gauge: Gauge) -> None:
        """Publish for each namespace whether everything in it can be read."""
        gauge.clear()
        for name in {str(scope) for informer in self for scope in informer.all_scopes}:
            gauge.labels(name).set_function(partial(self._measure_scope, name))

    def _measure_scope(self, name: str) -> float:
        return float(
            not any(
                scope.blocked
                for informer in self
                if (scope := informer.scope_of("" if name == "*" else name)) is not None
            )
        )

    def __iter__(self) -> Iterator[Informer]:
        """Iterate over the informers."""
        return iter(self._informers.values())

    @property
    def synced(self) -> bool:
        """Whether each store has received a complete listing."""
        return all(informer.synced for informer in self)

    def check_synced(self) -> str | CheckNote | None:
        """Return what the process waits for before it is ready, and what it works without."""
        waiting = [informer.kind.resource for informer in self if not informer.synced]
        if waiting:
            return f"waiting for {', '.join(waiting)}"
        blocked = self.blocked_namespaces
        if not blocked:
            return None
        return CheckNote(
            "cannot read "
            + "; ".join(f"{', '.join(kinds)} in {name}" for name, kinds in sorted(blocked.items()))
        )

    def check_watches(self) -> str | None:
        """Return which watches seem to be dead, or None."""
        silent = [
            f"{informer.kind.resource} for {informer.silence:.0f} s"
            for informer in self
            if informer.synced and informer.served and informer.silence > _SILENCE_LIMIT
        ]
        return f"nothing received from the watch of {', '.join(silent)}" if silent else None


def _slot(kind: Kind) -> tuple[str, str]:
    # Without the version: all versions of a kind are views of the same objects.
    return (kind.group, kind.kind)
