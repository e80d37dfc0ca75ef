"""Harness: an operator in this process, against a fake or a real API server.

```python
async with OperatorHarness(OPERATOR, api.config) as harness:
    await harness.client.create(PODSET, podset)
    await harness.converged()
```

`converged` waits until nothing is left to do: no key is queued or worked on, and the caches show
what the API server has. Tests that use it need neither sleeps nor guesses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.conditions import render_time
from libs.common.config import ConnectionConfig
from libs.common.errors import Conflict
from libs.common.kinds import LEASE, Key, Kind, Manifest, key_of, uid_of
from libs.common.runtime.informer import Informer
from libs.common.runtime.manager import Manager
from libs.common.runtime.operator import Operator

type Look = Callable[[Kind, str], Sequence[Manifest]]
"""Show the objects of a kind in a namespace, or in all when it is empty."""

_POLL: Final = 0.01
_TURN: Final = 0.001
_TIMEOUT: Final = 180.0
_PANICS: Final = "controller_runtime_reconcile_panics_total"

DEFAULTS: Final[Mapping[str, Any]] = {
    "leader_elect": False,
    "metrics_bind_address": "127.0.0.1:0",
    "health_probe_bind_address": "127.0.0.1:0",
    "backoff_base_seconds": 0.01,
    "backoff_max_seconds": 0.1,
    "drain_timeout_seconds": 5,
    "request_timeout_seconds": 5,
    "cache_sync_timeout_seconds": 20,
}
"""Settings of a harness: alone, on free ports, and quick to try again."""


class OperatorHarness:
    """One running replica of an operator.

    Args:
        operator: What is run.
        config: Connection of the operator; give it the rights of its service account to prove
            that they are enough.
        admin: Connection of the test itself. Defaults to the connection of the operator.
        clock: Time source of the runtime; None for real time.
        look: Shows what the API server has, as `FakeApi.objects` does; None to ask it over HTTP,
            which is most of the work of a test that waits often.
        may_panic: Whether reconciles of the test raise unhandled errors on purpose.
        settings: Settings of the operator, over `DEFAULTS`.
    """

    def __init__(
        self,
        operator: Operator,
        config: ConnectionConfig,
        *,
        admin: ConnectionConfig | None = None,
        clock: Clock | None = None,
        look: Look | None = None,
        may_panic: bool = False,
        **settings: Any,
    ) -> None:
        """Prepare; the operator starts with the context."""
        self.operator = operator
        self.config = config
        self.client = Client(admin or config, user_agent="harness")
        self.exits: list[int] = []
        self.restarting = False
        self._may_panic = may_panic
        self._behind = ""
        self._panics = 0.0
        self._clock = clock
        self._look = look
        self._settings = operator.settings(**{**DEFAULTS, **settings})
        self._stop = asyncio.Event()
        self._task: asyncio.Task[bool] | None = None
        self.manager = self._build()

    async def __aenter__(self) -> Self:
        """Start, and wait until the operator works (a standby until its caches are filled)."""
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the operator and close the connections.

        Raises:
            AssertionError: A reconcile ended with an unhandled error; a retry would hide it.
        """
        await self.stop()
        await self.client.close()
        if exc_type is None and not self._may_panic:
            count = self._panics + self._count_panics()
            assert not count, f"unhandled errors of reconciles: {count:g}; the log shows them"

    async def start(self, *, wait: bool = True) -> None:
        """Start the operator.

        Args:
            wait: Wait for its workers; give False for a replica that stands by.
        """
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self.manager.run(self._stop), name="operator")
        if wait:
            await self.eventually(self._works, "the operator works")
        else:
            await self.eventually(lambda: self.manager.cache.synced, "the caches are filled")

    async def stop(self) -> bool:
        """Stop as SIGTERM does; return whether the process ended in good order."""
        if self._task is None:
            return True
        self._stop.set()
        task, self._task = self._task, None
        return await task

    async def kill(self) -> None:
        """End as a crash does: no drain, no release; what is in flight may or may not arrive."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.manager.abandon()

    async def restart(self, *, crash: bool = False) -> None:
        """End the operator and start a new process of it, with nothing in memory."""
        self.restarting = True
        await (self.kill() if crash else self.stop())
        self._panics += self._count_panics()
        self.manager = self._build()
        await self.start()
        self.restarting = False

    async def ended(self, timeout: float = _TIMEOUT) -> bool:
        """Wait until the operator exits by itself; return whether it ended in good order."""
        assert self._task is not None
        task = self._task
        result = await asyncio.wait_for(asyncio.shield(task), timeout)
        self._task = None
        return result

    async def converged(self, timeout: float = _TIMEOUT) -> None:
        """Wait until nothing is left to do and the caches show what the API server has.

        Keys that are backed off do not count: wait for what they will do with `eventually`.
        """
        async with _deadline(timeout, self._why_unsettled):
            quiet = 0
            passes = -1

            def is_quiet() -> bool:
                return self._idle() and passes == self._passes()

            while True:
                # Checked again after each await: otherwise a caller would miss a reconcile that
                # started meanwhile, for example for a late response of another system.
                if not is_quiet() or not await self._caught_up() or not is_quiet():
                    quiet, passes = 0, self._passes()
                    await asyncio.sleep(_POLL)
                    continue
                if quiet == 2:
                    return
                quiet += 1
                await asyncio.sleep(_TURN)

    async def idle(self, timeout: float = _TIMEOUT) -> None:
        """Wait until no key is queued or worked on, whatever the caches have missed."""
        async with _deadline(timeout, self._why_unsettled):
            passes = -1
            while not self._idle() or passes != self._passes():
                passes = self._passes()
                await asyncio.sleep(_POLL)

    @property
    def failing(self) -> bool:
        """Whether some key is backed off after a failure."""
        return any(runner.queue.failing for runner in self.manager.runners)

    def is_due_within(self, seconds: float) -> bool:
        """Return whether the operator said that it looks at some key again in less than that."""
        return any(runner.queue.is_due_within(seconds) for runner in self.manager.runners)

    async def eventually(
        self,
        probe: Callable[[], object | Awaitable[object]],
        what: str = "the condition holds",
        timeout: float = _TIMEOUT,
    ) -> None:
        """Wait until a probe returns something true; an AssertionError counts as not yet.

        Raises:
            AssertionError: It did not in time; the text says what it returned or raised last.
        """
        last = ""
        async with _deadline(timeout, lambda: f"waiting until {what}; the probe last {last}"):
            while True:
                try:
                    result = probe()
                    value = await result if isinstance(result, Awaitable) else result
                    last = f"returned {value!r:.1000}"
                except AssertionError as err:
                    value, last = False, f"failed: {err!s:.1000}"
                if value:
                    return
                await asyncio.sleep(_POLL)

    def _works(self) -> bool:
        missing = self.manager.cache.check_synced() or "it is not the leader"
        if self._task is not None and self._task.done():
            raise RuntimeError(f"the operator ended at its start: {missing}")
        assert self.manager.working.is_set(), missing
        return True

    async def lose_lease(self, holder: str = "somebody-else") -> None:
        """Write another holder into the Lease, as a replica does that took it over."""
        while True:
            with contextlib.suppress(Conflict):
                # A conflict: the leader has renewed it since the look.
                return await self._take_lease(holder)

    async def _take_lease(self, holder: str) -> None:
        lease = await self.client.get(LEASE, self._lease_key())
        moment = render_time(self.manager.clock.now()).replace("Z", ".000000Z")
        lease["spec"] = {
            **(lease.get("spec") or {}),
            "holderIdentity": holder,
            "acquireTime": moment,
            "renewTime": moment,
            "leaseTransitions": int((lease.get("spec") or {}).get("leaseTransitions") or 0) + 1,
        }
        await self.client.replace(LEASE, lease)

    def metric(self, name: str, /, **labels: str) -> float:
        """Return the value of a metric of the operator, 0 when it has none."""
        return self.manager.metrics.value(name, **labels) or 0.0

    def _build(self) -> Manager:
        return self.operator.build_manager(
            self._settings, self.config, clock=self._clock, hard_exit=self.exits.append
        )

    def _count_panics(self) -> float:
        names = {runner.controller.name for runner in self.manager.runners}
        return sum(self.metric(_PANICS, controller=name) for name in names)

    def _lease_key(self) -> Key:
        settings = self._settings
        return Key(settings.pod_namespace or self.config.namespace, settings.lease_name)

    def _idle(self) -> bool:
        idle = all(runner.queue.idle for runner in self.manager.runners)
        return idle and not self.restarting

    def _passes(self) -> int:
        return sum(runner.reconciles for runner in self.manager.runners)

    async def _caught_up(self) -> bool:
        for informer in self.manager.cache:
            if informer.served and not await self._shows(informer):
                self._behind = informer.kind.resource
                return False
        self._behind = ""
        return self._idle()

    async def _shows(self, informer: Informer) -> bool:
        for scope in informer.scopes:
            items = await self._list(informer, scope)
            if len(items) != len(informer.store.uids(scope or None)):
                return False
            if any(not _is_current(informer, item) for item in items):
                return False
        return True

    async def _list(self, informer: Informer, scope: str) -> Sequence[Manifest]:
        labels, fields = informer.label_selector, informer.field_selector
        if self._look is not None and not labels and not fields:
            return self._look(informer.kind, scope)
        listing = await self.client.list(
            informer.kind, scope, label_selector=labels, field_selector=fields
        )
        return listing.items

    def _why_unsettled(self) -> str:
        queues = {
            runner.controller.name: (len(runner.queue), runner.queue.delayed)
            for runner in self.manager.runners
        }
        behind = f"; the cache of {self._behind} is not up to date" if self._behind else ""
        return f"waiting until the operator has converged; ready, delayed keys: {queues}{behind}"


def _is_current(informer: Informer, item: Manifest) -> bool:
    held = informer.store.get(key_of(item))
    if held is None or uid_of(held) != uid_of(item):
        return False
    version = item["metadata"].get("resourceVersion")
    return bool(held["metadata"].get("resourceVersion") == version)


class _deadline:  # noqa: N801 reads as a keyword
    """A time limit for a block, whose error names what the block waited for."""

    def __init__(self, seconds: float, why: Callable[[], str]) -> None:
        self._why = why
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(exc_type, exc, traceback)
        except TimeoutError:
            raise AssertionError(f"Gave up after {self._seconds} s {self._why()}") from None
