"""Operations in any order, with misfortune: create, change, roll back, delete, recreate.

The API server is the fake one, over HTTP, so that hundreds of operations take seconds; the sweep
does the same with chosen operations on a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from typing import Any, Final, Literal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lab.fuzz.fields import put
from lab.fuzz.subject import NAMESPACE, Case, FuzzSubject, load_subjects
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


SUBJECTS = [subject for subject in load_subjects() if subject.live is not None]
_NAMES = st.sampled_from(["data", "web"])
_MISFORTUNES = st.sampled_from(MISFORTUNES)
_NUMBERS = st.integers(0, 1000)
_COUNTS = ("replicas", "count")
_MANY = 5
_SETTINGS = settings(
    max_examples=int(os.environ.get("SLIPWAY_FUZZ_EXAMPLES", "1")),
    stateful_step_count=8,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    # Shrinking what ends in a deadline takes minutes; the steps are printed as they are.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


class Operations(RuleBasedStateMachine):
    """Do to an operator what users and bad luck do."""

    subject: FuzzSubject
    cases: list[Case]

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._harness = FuzzHarness(self.subject)
        self._specs: dict[str, list[Manifest]] = {}

    @initialize()
    def start(self) -> None:
        self._loop.run(self._harness.open())

    def teardown(self) -> None:
        self._loop.run(self._harness.close())
        self._loop.close()

    @rule(name=_NAMES, number=_NUMBERS, misfortune=_MISFORTUNES)
    def create_or_change_one_field(self, name: str, number: int, misfortune: Misfortune) -> None:
        self._write(name, self._mutate(self._spec(name), number), misfortune)

    @rule(name=_NAMES, first=_NUMBERS, second=_NUMBERS, misfortune=_MISFORTUNES)
    def change_two_fields(self, name: str, first: int, second: int, misfortune: Misfortune) -> None:
        spec = self._mutate(self._mutate(self._spec(name), first), second)
        self._write(name, spec, misfortune)

    @rule(name=_NAMES, misfortune=_MISFORTUNES)
    def apply_what_is_valid(self, name: str, misfortune: Misfortune) -> None:
        self._write(name, dict(self.subject.spec), misfortune)

    @precondition(lambda self: any(len(held) > 1 for held in self._specs.values()))
    @rule(misfortune=_MISFORTUNES)
    def roll_back(self, misfortune: Misfortune) -> None:
        name = next(name for name, held in self._specs.items() if len(held) > 1)
        self._specs[name].pop()
        self._write(name, self._specs[name].pop(), misfortune)

    @rule(name=_NAMES, misfortune=_MISFORTUNES)
    def delete(self, name: str, misfortune: Misfortune) -> None:
        self._harness.inject(misfortune)
        self._harness.delete(name)
        self._specs.pop(name, None)
        self._loop.run(self._harness.settle())

    @rule(name=_NAMES, misfortune=_MISFORTUNES)
    def delete_and_create_at_once(self, name: str, misfortune: Misfortune) -> None:
        self._harness.delete(name)
        self._write(name, dict(self.subject.spec), misfortune)

    @rule(number=_NUMBERS)
    def lose_a_child(self, number: int) -> None:
        self._harness.lose_child(number)
        self._loop.run(self._harness.settle())

    @rule()
    def restart(self) -> None:
        self._harness.inject("none")
        self._loop.run(self._harness.restart())

    @invariant()
    def operator_rests_and_says_what_is(self) -> None:
        if self._harness.harness is not None:
            assert self._loop.run(self._harness.find_problems()) == []

    def _spec(self, name: str) -> Manifest:
        held = self._harness.find(name)
        return dict(self.subject.spec) if held is None else dict(held["spec"])

    def _mutate(self, spec: Manifest, number: int) -> Manifest:
        case = self.cases[number % len(self.cases)]
        manifest = {"spec": copy.deepcopy(spec)}
        try:
            changed = put(manifest, self.subject.schema, case.field, case.value)
        except (AttributeError, KeyError, IndexError, TypeError):
            return spec  # The present content has no place for this value.
        if self.subject.find_offenses(changed):
            return spec
        found: Manifest = changed["spec"]
        return found if is_small(changed) else spec

    def _write(self, name: str, spec: Manifest, misfortune: Misfortune) -> None:
        self._harness.inject(misfortune)
        self._loop.run(self._harness.write(name, spec))
        self._specs.setdefault(name, []).append(spec)
        self._loop.run(self._harness.settle())


def is_small(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object asks for no more than a test should make."""
    return all(number <= _MANY for number in _list_counts(manifest["spec"]))


def _list_counts(value: Any) -> Iterator[int]:
    """Yield how many of something a spec asks for, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from _list_counts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in _COUNTS and isinstance(each, int):
                yield each
            else:
                yield from _list_counts(each)


def is_lasting(case: Case) -> bool:
    """Return whether a case is valid and small."""
    return isinstance(case.manifest.get("spec"), dict) and is_small(case.manifest)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
def test_operations_in_any_order_end_well(subject: FuzzSubject) -> None:
    run(subject, _SETTINGS)


def run(subject: FuzzSubject, chosen: settings) -> None:
    """Run the machine on one kind."""
    cases = [
        case
        for case in subject.cases()
        if is_lasting(case)
        and not case.field.name.startswith((*subject.passthrough, *subject.ruled))
        and not subject.find_offenses(case.manifest)
    ]
    machine = type("Machine", (Operations,), {"subject": subject, "cases": cases})

    run_state_machine_as_test(machine, settings=chosen)


def test_offense_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative case: an operator that is said to offend fails the machine."""

    async def find_problems(self: FuzzHarness) -> list[str]:
        return ["something"]

    monkeypatch.setattr(FuzzHarness, "find_problems", find_problems)
    with pytest.raises(AssertionError, match="something"):
        run(SUBJECTS[0], settings(_SETTINGS, max_examples=1, stateful_step_count=1))
