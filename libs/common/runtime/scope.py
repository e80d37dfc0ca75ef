"""Scope: one namespace of one kind, with its own synchronization, failures and liveness.

An informer of several namespaces lists and watches each of them separately, with the permissions of
a Role in each. So one namespace can be unreadable while the others are readable: its Role was
deleted with the namespace, or never existed. This module keeps the state of each scope, so that a
problem of one namespace does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import structlog

from libs.common.clock import Clock
from libs.common.errors import BadRequest, Forbidden, Invalid, ServerError, SlipwayError
from libs.common.kinds import Kind

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 5.0
"""Time for which a scope can fail before the others stop waiting for it. A Role that is created
together with the operator takes a moment to reach every API server."""


class Scope:
    """One namespace of one kind.

    Attributes:
        namespace: Name of the namespace; empty for all namespaces.
        synced: Whether the store has received a complete listing of it.
        problem: Why it cannot be read; empty if it can.
        blocked: Whether it has been unreadable for so long that nobody waits for it any more.
        relisted: Set when the source listed it again after a gap.
        watched: Set when the source began a watch of it.
    """

    def __init__(self, namespace: str, clock: Clock, patience: float = PATIENCE_SECONDS) -> None:
        """Start unsynced and readable."""
        self.namespace = namespace
        self.synced = False
        self.problem = ""
        self.blocked = False
        self.relisted = asyncio.Event()
        self.watched = asyncio.Event()
        self._clock = clock
        self._patience = patience
        self._failing_since: float | None = None
        self._alive_at = clock.monotonic()

    def __str__(self) -> str:
        """Return its name for logs."""
        return self.namespace or "*"

    @property
    def silence(self) -> float:
        """Seconds since the last event of its source."""
        return self._clock.monotonic() - self._alive_at

    def mark_alive(self) -> None:
        """Record that its source is alive."""
        self._alive_at = self._clock.monotonic()

    def fail(self, err: SlipwayError) -> None:
        """Record a refusal; after some seconds of refusals the scope is blocked."""
        if not self._is_refusal(err):
            return
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        self.problem = str(err)
        self.blocked = self.blocked or now - self._failing_since >= self._patience

    def block(self, err: SlipwayError) -> None:
        """Record that nobody waits for it any more, whatever the error is."""
        self.problem = str(err)
        self.blocked = True

    def recover(self) -> None:
        """Record that it can be read."""
        self._failing_since = None
        self.problem = ""
        self.blocked = False

    def _is_refusal(self, err: SlipwayError) -> bool:
        """Return whether an error concerns this scope, and not the API server as a whole.

        A scope that was read before is only blocked by missing permissions: with any other error
        its watch may still work, and a retry succeeds when the server has recovered.
        """
        if self.synced:
            return isinstance(err, Forbidden)
        return isinstance(err, Forbidden | BadRequest | Invalid | ServerError)


class ScopeSet:
    """The scopes of one informer.

    Args:
        kind: The watched kind.
        names: Namespaces; the empty name stands for all.
        clock: Time source.
        patience: Seconds after which nobody waits any more for a scope that cannot be read.

    Attributes:
        synced: Set once each scope was listed or is blocked, and at least one was listed.
    """

    def __init__(self, kind: Kind, names: Iterable[str], clock: Clock, patience: float) -> None:
        """Start unsynced."""
        self.synced = asyncio.Event()
        self._kind = kind
        self._clock = clock
        self._patience = patience
        self._scopes = {name: Scope(name, clock, patience) for name in names}
        self._changed = asyncio.Event()
        self._handlers: list[Callable[[str], None]] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Namespaces of the scopes."""
        return tuple(self._scopes)

    @property
    def all(self) -> tuple[Scope, ...]:
        """All scopes."""
        return tuple(self._scopes.values())

    def find(self, namespace: str) -> Scope | None:
        """Return the scope of a namespace, or None."""
        return self._scopes.get(namespace) or self._scopes.get("")

    def replace(self, names: Iterable[str]) -> list[str]:
        """Replace the scopes; return the names of the removed ones."""
        wanted = set(names)
        gone = [name for name in self._scopes if name not in wanted]
        new = sorted(wanted - self._scopes.keys())
        for name in gone:
            del self._scopes[name]
        for name in new:
            self._scopes[name] = Scope(name, self._clock, self._patience)
        if gone or new:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            self._check_synced()
        return gone

    def wait_changed(self) -> Coroutine[Any, Any, object]:
        """Wait until scopes were added or removed after this call, and not only after its await."""
        return self._changed.wait()

    def add_handler(self, handler: Callable[[str], None]) -> None:
        """Add a handler that is called with each namespace that becomes readable."""
        self._handlers.append(handler)

    def mark_synced(self, namespace: str) -> None:
        """Record that one scope was listed completely."""
        scope = self._scopes.get(namespace)
        if scope is None:
            return
        became_readable = scope.blocked or not scope.synced
        if scope.blocked:
            log.info("Namespace can be read again", **self._name(scope))
        scope.synced = True
        scope.recover()
        if became_readable and self.synced.is_set():
            for handler in self._handlers:
                handler(namespace)
        self._check_synced()

    def note_failure(self, namespace: str, err: SlipwayError) -> bool:
        """Record that a scope was refused, and return whether it is blocked."""
        return self._note_failure(namespace, err, Scope.fail)

    def block(self, namespace: str, err: SlipwayError) -> None:
        """Stop waiting for a scope that cannot be read, while others can."""
        self._note_failure(namespace, err, Scope.block)

    def _note_failure(
        self, namespace: str, err: SlipwayError, note: Callable[[Scope, SlipwayError], None]
    ) -> bool:
        scope = self._scopes.get(namespace)
        if scope is None:
            return True
        blocked = scope.blocked
        note(scope, err)
        if scope.blocked and not blocked:
            text = (
                "Namespace cannot be read, its objects are not reconciled; other namespaces are not"
                " affected"
            )
            log.error(text, **self._name(scope), error=str(err))
            self._check_synced()
        return scope.blocked

    def _name(self, scope: Scope) -> dict[str, str]:
        return {"resource": self._kind.resource, "namespace": str(scope)}

    def _check_synced(self) -> None:
        ready = all(scope.synced or scope.blocked for scope in self.all)
        # If nothing can be read there is no work: waiting and finally exiting is more visible to
        # people than a process that looks healthy.
        if ready and (not self._scopes or any(scope.synced for scope in self.all)):
            self.synced.set()
