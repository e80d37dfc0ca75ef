"""Cache: the informers of one operator, by kind."""

from __future__ import annotations

from collections.abc import Iterator

from libs.common.kinds import Kind
from libs.common.runtime.informer import Informer
from libs.common.runtime.store import Store


class Cache:
    """Hold one informer for each kind that an operator watches."""

    def __init__(self) -> None:
        """Start without informers."""
        self._informers: dict[tuple[str, str], Informer] = {}

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

    def __iter__(self) -> Iterator[Informer]:
        """Iterate over the informers."""
        return iter(self._informers.values())

    @property
    def synced(self) -> bool:
        """Whether each store has held a complete listing."""
        return all(informer.synced for informer in self)


def _slot(kind: Kind) -> tuple[str, str]:
    # Versions of one kind are views of the same objects.
    return (kind.group, kind.kind)
