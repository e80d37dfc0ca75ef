"""An operator in this process, random user actions and faults, and the invariants to check.

The API server is the fake one, over HTTP, so that hundreds of operations take seconds; the sweep
does the same with chosen operations on a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Mapping
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from typing import Any, Final, Literal

from lab.fuzz.subject import NAMESPACE, FuzzSubject
from libs.common.conditions import find_condition
from libs.common.errors import Conflict
from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.testing.conformance import Subject
from libs.common.testing.fakeapi import FakeApi, Request
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import is_of_the_operator, writes_of_the_operator

type Misfortune = Literal["none", "403", "409", "429", "500", "503", "lost", "dropped", "crash"]
MISFORTUNES: Final[tuple[Misfortune, ...]] = (
    *("none", "403", "409", "429", "500", "503", "lost", "dropped", "crash"),
)
"""What happens to the next write of the operator."""
_SECONDS: Final = 120.0
_POLL: Final = 0.005


class FuzzHarness:
    """A running operator and the record of its objects.

    Args:
        subject: Kind and operator.
    """

    def __init__(self, subject: FuzzSubject) -> None:
        """Prepare; `open` starts."""
        assert subject.live is not None
        self._subject = subject
        self._live: Subject = subject.live
        self._stack = AsyncExitStack()
        self._crash: asyncio.Task[None] | None = None
        self._fixed: Mapping[str, Any] = {}
        self._context: Context | None = None
        self.api = FakeApi()
        self.harness: OperatorHarness | None = None

    async def open(self) -> None:
        """Start the API server and the operator."""
        await self._stack.enter_async_context(self.api)
        for crd in self._live.crds:
            self.api.register(dict(crd))
        for manifest in self._live.initial_objects():
            self.api.create(manifest)
        self._fixed = self._stack.enter_context(self._subject.run_external(self.api))
        self._context = copy_context()
        settings: dict[str, Any] = {"watch_namespaces": (NAMESPACE,), "pod_namespace": NAMESPACE}
        settings |= dict(self._live.settings)
        harness = OperatorHarness(self._live.operator, self.api.config, **settings)
        self.harness = await self._stack.enter_async_context(harness)
        await self.settle()

    async def close(self) -> None:
        """End both."""
        self.api.faults.clear()
        await self._stack.aclose()

    # What users do.

    def find(self, name: str) -> Manifest | None:
        """Return an object of the kind."""
        return self.api.find(self._subject.kind, Key(NAMESPACE, name))

    async def write(self, name: str, spec: Manifest) -> None:
        """Create an object, or replace its spec."""
        spec = {**spec, **self._fixed}
        held = self.find(name)
        if held is None:
            manifest = self._subject.build(name)
            metadata = {"name": name, "namespace": NAMESPACE}
            self.api.create({**manifest, "metadata": metadata, "spec": copy.deepcopy(spec)})
            return
        assert self.harness is not None
        while held is not None and not is_deleting(held):
            with contextlib.suppress(Conflict):
                await self.harness.client.replace(self._subject.kind, {**held, "spec": spec})
                return
            held = self.find(name)

    def delete(self, name: str) -> None:
        """Delete an object."""
        if self.find(name) is not None:
            self.api.delete(self._subject.kind, Key(NAMESPACE, name))

    # Misfortune.

    def inject(self, misfortune: Misfortune) -> None:
        """Let something happen to the next write of the operator."""
        self.api.faults.clear()
        if misfortune == "none":
            return
        if misfortune == "crash":
            self.api.fail(times=1, where=self._strike, lost_response=True)
        elif misfortune in ("lost", "dropped"):
            lost = misfortune == "lost"
            where = is_of_the_operator
            self.api.fail(times=1, where=where, lost_response=lost, dropped=not lost)
        else:
            retry = 0.01 if misfortune == "429" else None
            status = int(misfortune)
            self.api.fail(status=status, times=1, where=is_of_the_operator, retry_after=retry)

    def _strike(self, request: Request) -> bool:
        if not is_of_the_operator(request) or self.harness is None or self.harness.restarting:
            return False
        self.harness.restarting = True
        # A request is served in the context of the server; other state was set in the context of
        # users.
        restart = self.harness.restart(crash=True)
        self._crash = asyncio.create_task(restart, context=self._context)
        return True

    async def restart(self) -> None:
        """Start the operator again."""
        assert self.harness is not None
        await self.harness.restart(crash=True)

    def lose_child(self, number: int) -> None:
        """Let a child vanish while no watch is open."""
        children = [
            (kind, key_of(child))
            for kind in self._live.children
            for child in self.api.objects(kind, NAMESPACE)
        ]
        if not children:
            return
        kind, key = children[number % len(children)]
        self.api.watches.pause(kind)
        self.api.vanish(kind, key)
        self.api.watches.expire(kind)
        self.api.watches.resume(kind)

    # What must hold.

    async def settle(self) -> None:
        """Run operator and cluster until they converge."""
        harness = self.harness
        assert harness is not None
        async with asyncio.timeout(_SECONDS):
            while True:
                if self._crash is not None:
                    await self._crash
                    self._crash = None
                await harness.converged()
                version = self.api.store.version
                self._live.drive(self.api)
                at_rest = self.api.store.version == version and not harness.failing
                if at_rest and not harness.is_due_within(self._live.horizon) and not self._crash:
                    return
                await asyncio.sleep(_POLL)

    async def find_problems(self) -> list[str]:
        """List violated invariants of a converged operator."""
        assert self.harness is not None
        mark = self.api.mark()
        await self.settle()
        found = [f"writes at rest: {each}" for each in writes_of_the_operator(self.api, mark)]
        found += ["the process ended"] * bool(self.harness.exits)
        for primary in self.api.objects(self._subject.kind, NAMESPACE):
            found += self._check_status(primary)
        return found + self._check_children()

    def _check_status(self, primary: Manifest) -> list[str]:
        name, status = primary["metadata"]["name"], primary.get("status") or {}
        ready = find_condition(primary, "Ready")
        if ready is None:
            return [f"{name} says nothing of itself"]
        found = []
        if not ready.get("reason") or (ready["status"] != "True" and not ready.get("message")):
            found.append(f"{name} does not say why it is not ready")
        generation = primary["metadata"]["generation"]
        # What was never valid has a status of nothing but conditions.
        if status.get("observedGeneration", generation) != generation:
            found.append(f"{name} reports an older spec: {ready}")
        return found

    def _check_children(self) -> list[str]:
        owners = {uid_of(each) for each in self.api.objects(self._subject.kind, NAMESPACE)}
        return [
            f"{kind.kind} {child['metadata']['name']} outlived its owner"
            for kind in self._live.children
            for child in self.api.objects(kind, NAMESPACE)
            if controller_uid(child) and controller_uid(child) not in owners
        ]
