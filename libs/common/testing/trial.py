"""Trial: an operator taken through a workload in this process, calm or harmed.

The conformance suite is made of trials, and so are tests that ask operators something of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

from libs.common.kinds import Key, Kind, Manifest, key_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import Run, count_names, normalize, writes_of_the_operator
from libs.common.testing.subject import NAMESPACE, Subject
from libs.common.testing.write_faults import WriteFault

type InjectFault = Callable[[FakeApi], WriteFault]
"""Prepare a harm."""


class Trial:
    """A run of an operator against a fake API, as its subject describes it."""

    subject: ClassVar[Subject]

    @classmethod
    def of(cls, subject: Subject) -> Self:
        """Build the trial of a subject, if there is no class for it."""
        trial: Self = type(cls.__name__, (cls,), {"subject": subject})()
        return trial

    @asynccontextmanager
    async def api(self) -> AsyncIterator[FakeApi]:
        """Run a fake API with the kinds and the world of the subject."""
        async with FakeApi() as api:
            for crd in self.subject.crds:
                api.register(crd)
            for manifest in self.subject.initial_objects():
                api.create(manifest)
            yield api

    def harness(self, api: FakeApi, **settings: Any) -> OperatorHarness:
        """Build the operator against a fake API."""
        return OperatorHarness(
            self.subject.operator,
            api.config,
            look=api.objects,
            **{**self.settings(), **settings},
        )

    def primary_key(self) -> Key:
        """Return the key of the first object."""
        return key_of(self.subject.objects()[0])

    async def workload(self, api: FakeApi, harness: OperatorHarness) -> None:
        """Create what a user applies, wait, change it, wait."""
        self.create_all(api)
        await self.settle(api, harness)
        self.change(api)
        await self.settle(api, harness)

    async def delete(
        self, api: FakeApi, harness: OperatorHarness, manifests: Sequence[Manifest]
    ) -> None:
        """Delete objects, the last first, and wait until nothing is left to do.

        Objects of kinds that the operator does not watch stay, because it cannot see them.
        """
        for manifest in reversed(manifests):
            for informer in harness.manager.cache:
                key = key_of(manifest)
                if informer.kind.matches(manifest) and api.find(informer.kind, key) is not None:
                    api.delete(informer.kind, key)
        await self.settle(api, harness)

    async def settle(
        self,
        api: FakeApi,
        harness: OperatorHarness,
        extra: Callable[[], Any] | None = None,
    ) -> None:
        """Let the operator and the rest of the cluster react to each other to the end."""
        if extra is not None:
            await extra()

        async def is_settled() -> bool:
            await harness.converged(timeout=60)
            version = api.store.version
            self.subject.drive(api)
            assert api.store.version == version, "`drive` or the operator wrote again"
            assert not harness.failing, "a reconcile keeps failing; the log says why"
            assert not harness.is_due_within(self.subject.horizon), "a key is due within `horizon`"
            return True

        await harness.eventually(is_settled, "nothing is left to do")

    async def run(self, fault: InjectFault | None = None) -> Run:
        """Run the workload, harmed in one way."""
        async with self.api() as api:
            inject = fault(api) if fault is not None else None
            harness = self.harness(api)
            if inject is not None:
                inject.harness = harness
            async with harness:
                await self.workload(api, harness)
                if inject is not None:
                    # How many writes of the status a run needs is a matter of timing, so that the
                    # last of another run may not come in this one.
                    assert inject.fired or inject.seen, "the fault was never reached"
                return self.outcome(api, 0)

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the state of the API and what was done to reach it."""
        state = self.take_state(api, (self.subject.primary, *self.subject.children))
        ours = writes_of_the_operator(api, mark)
        return Run(state, count_names(ours, "create"), count_names(ours, "delete"), ours)

    def take_state(self, api: FakeApi, kinds: Iterable[Kind]) -> dict[str, Manifest]:
        """Take down the objects of some kinds, without what differs from run to run."""
        return {
            f"{kind.kind} {key_of(manifest)}": normalize(manifest)
            for kind in kinds
            for manifest in api.objects(kind, scope_of(kind))
        }

    def settings(self) -> dict[str, Any]:
        """Return the settings of the operator."""
        return {
            "watch_namespaces": (NAMESPACE,),
            "pod_namespace": NAMESPACE,
            **self.subject.settings,
        }

    def create_all(self, api: FakeApi) -> None:
        """Create what users apply."""
        for manifest in self.subject.objects():
            api.create(manifest)

    def change(self, api: FakeApi) -> None:
        """Change the primary as users do later."""
        api.patch(self.subject.primary, self.primary_key(), self.subject.change)

    async def apply_again(self, harness: OperatorHarness, manifest: Manifest) -> None:
        """Apply again, in its current form, what users applied."""
        kind = self.subject.primary
        if not kind.matches(manifest):
            return
        spec = {**manifest.get("spec", {}), **self.subject.change.get("spec", {})}
        again = {**manifest, "spec": spec} if spec else manifest
        await harness.client.apply(kind, again, field_manager="kubectl")


def scope_of(kind: Kind) -> str:
    """Return where to look for objects of a kind; everywhere for one without namespaces."""
    return NAMESPACE if kind.namespaced else ""
