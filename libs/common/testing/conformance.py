"""Conformance: what every operator must withstand, inherited by a class of ten lines.

```python
class TestPodSetConformance(OperatorConformance):
    subject = Subject(OPERATOR, crds=(build_crd(PodSet),), rules=RULES, objects=build_objects,
                      change={"spec": {"replicas": 5}})
```

Each test runs the operator in this process against the fake API over HTTP, harms it in one way, and
asks for the same end: the state that an undisturbed run reaches, the same creations and deletions,
and silence afterwards.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Final

import pytest

from libs.common.kinds import Key, Kind, Manifest, key_of
from libs.common.rbac import event_rules, operator_namespace_rules
from libs.common.testing.differences import render_differences
from libs.common.testing.fakeapi import FakeApi, Request
from libs.common.testing.harms import CRASH_MODES, Crash, Fail, Harm, spread
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import (
    Run,
    count_names,
    is_of_the_operator,
    normalize,
    writes_of_the_operator,
)
from libs.common.testing.subject import Subject

__all__ = ["NAMESPACE", "OperatorConformance", "Run", "Subject"]

type Hurt = Callable[[FakeApi], Harm]
"""Prepare a harm."""

NAMESPACE: Final = "default"
_REFUSALS: Final = (403, 409, 429, 500, 503)
_AT_ONCE: Final = 4
"""Runs side by side; they mostly wait."""
_SETTLE_SECONDS: Final = 60.0
_POLL: Final = 0.005


class OperatorConformance:
    """Inherit from this, name it `Test...`, and set `subject`."""

    subject: ClassVar[Subject]

    async def test_zero_writes_when_settled(self) -> None:
        """A settled operator is silent: also after a restart, a re-apply, a touched annotation."""
        async with self.api() as api, self.harness(api) as harness:
            await self.workload(api, harness)

            mark = api.mark()
            await harness.restart()
            await self.settle(api, harness)
            assert writes_of_the_operator(api, mark) == [], "writes after a restart"

            for manifest in self.subject.objects():
                await self._apply_again(harness, manifest)
            api.patch(
                self.subject.primary,
                self.primary_key(),
                {"metadata": {"annotations": {"example.com/touched": "yes"}}},
            )
            mark = api.mark()
            await self.settle(api, harness)
            assert writes_of_the_operator(api, mark) == [], "writes after a re-apply"

    async def test_crash_at_each_write_changes_nothing(self) -> None:
        """A crash before, inside or after each write ends where an undisturbed run ends."""

        def harms(writes: int) -> Iterator[tuple[str, Hurt]]:
            for index, mode in spread(writes, CRASH_MODES):
                yield f"crash {mode} at write {index}", partial(Crash, index=index, mode=mode)

        await self._assert_harmless(harms)

    async def test_lost_answer_at_each_write_changes_nothing(self) -> None:
        """A write whose answer is lost is looked up, never repeated blindly."""

        def harms(writes: int) -> Iterator[tuple[str, Hurt]]:
            for index in range(writes):
                yield f"answer of write {index} lost", partial(Fail, index=index, lost_answer=True)

        await self._assert_harmless(harms)

    async def test_refused_writes_are_tried_again(self) -> None:
        """A refusal of each write ends where an undisturbed run ends."""

        def harms(writes: int) -> Iterator[tuple[str, Hurt]]:
            for index, status in spread(writes, _REFUSALS):
                retry = 0.01 if status == 429 else None
                harm = partial(Fail, index=index, status=status, retry_after=retry)
                yield f"{status} at write {index}", harm

        await self._assert_harmless(harms)

    async def test_conflict_storm_passes(self) -> None:
        """When each write meets three conflicts, the end is the same."""
        expected = await self.run()
        seen: Counter[str] = Counter()

        def storm(request: Request) -> bool:
            if not is_of_the_operator(request):
                return False
            seen[str(request.kind) + str(request.key)] += 1
            return seen[str(request.kind) + str(request.key)] <= 3

        async with self.api() as api:
            api.fail(status=409, times=None, where=storm)
            async with self.harness(api) as harness:
                await self.workload(api, harness)
                got = self.outcome(api, 0)
        self._assert_same(got, expected, "conflict storm", counts=False)

    async def test_child_deleted_in_a_gap_comes_back(self) -> None:
        """A child that vanishes while no watch is open is found missing and made again."""
        for form in ("stream", "http"):
            async with self.api() as api, self.harness(api) as harness:
                await self.workload(api, harness)
                before = self.outcome(api, 0).state
                for kind in set(self.subject.children) - set(self.subject.foreign):
                    for child in api.objects(kind, _scope_of(kind)):
                        api.watches.drop_next(kind)
                        api.vanish(kind, key_of(child))
                        api.watches.expire(kind, form)
                        break
                await self.settle(api, harness, extra=harness.manager.resweep)
                assert self.outcome(api, 0).state.keys() == before.keys(), f"410 by {form}"

    async def test_stale_cache_makes_nothing_twice(self) -> None:
        """While the watch of the children is behind, nothing is made or deleted twice."""
        expected = await self.run()
        async with self.api() as api, self.harness(api) as harness:
            for kind in self.subject.children:
                api.watches.pause(kind)
            await self._create_all(api)
            await harness.idle()
            for kind in self.subject.children:
                api.watches.resume(kind)
            await self.settle(api, harness)
            await self._change(api, harness)
            got = self.outcome(api, 0)
        self._assert_same(got, expected, "stale cache")

    async def test_duplicate_events_change_nothing(self) -> None:
        """Each event may come twice."""
        expected = await self.run()
        async with self.api() as api, self.harness(api) as harness:
            for kind in (self.subject.primary, *self.subject.children):
                api.watches.duplicate_next(kind, 100)
            await self.workload(api, harness)
            got = self.outcome(api, 0)
        self._assert_same(got, expected, "duplicate events")

    async def test_leader_handover_is_clean(self) -> None:
        """A standby with warm caches takes over, the old leader ends, nothing is done twice."""
        expected = await self.run()
        lease = {
            "leader_elect": True,
            "lease_duration_seconds": 3,
            "renew_deadline_seconds": 2,
            "retry_period_seconds": 0.2,
        }
        async with self.api() as api, self.harness(api, **lease) as first:
            standby = OperatorHarness(
                self.subject.operator, api.config, **{**dict(self._settings()), **lease}
            )
            await standby.start(wait=False)
            assert not standby.manager.working.is_set()
            await self._create_all(api)
            await self.settle(api, first)
            await first.stop()
            await standby.eventually(standby.manager.working.is_set, "the standby works")
            await self._change(api, standby)
            got = self.outcome(api, 0)
            await standby.stop()
            await standby.client.close()
        self._assert_same(got, expected, "leader handover")

    async def test_lost_lease_ends_the_process(self) -> None:
        """A leader whose Lease was taken stops by itself and writes nothing any more."""
        lease = {"leader_elect": True, "lease_duration_seconds": 3, "renew_deadline_seconds": 2}
        async with (
            self.api() as api,
            self.harness(api, **lease, retry_period_seconds=0.1) as harness,
        ):
            await harness.lose_lease()
            orderly = await harness.ended()
            assert not orderly
            mark = api.mark()
            await self._create_all(api)
            assert writes_of_the_operator(api, mark) == []

    async def test_rights_are_enough(self) -> None:
        """The workload runs with the rights of the chart and nothing more."""
        if not self.subject.rules:
            pytest.skip("the subject declares no rules: it is not an operator that ships")
        async with self.api() as api:
            api.allow(
                (
                    *self.subject.rules,
                    *event_rules(),
                    *operator_namespace_rules(self.subject.operator.id),
                )
            )
            async with self.harness(api) as harness:
                await self.workload(api, harness)
            denied = [str(each) for each in api.requests if each.status == 403]
        assert denied == []

    async def test_cache_is_never_changed_by_a_pass(self) -> None:
        """What the cache holds is what the API server has: no pass writes into it."""
        async with self.api() as api, self.harness(api) as harness:
            await self.workload(api, harness)
            for informer in harness.manager.cache:
                for key in informer.store:
                    held = informer.store.get(key)
                    transformed = informer.store.transform(api.get(informer.kind, key))
                    assert held == transformed, f"{informer.kind} {key} was changed in the cache"

    async def test_metrics_tell_of_the_work(self) -> None:
        """The metrics that dashboards and alerts read are there."""
        async with self.api() as api, self.harness(api) as harness:
            await self.workload(api, harness)
            name = harness.manager.runners[0].controller.name
            # A pass that looks again at something outside by and by ends as requeue_after.
            total = sum(
                harness.metric("controller_runtime_reconcile_total", controller=name, result=result)
                for result in ("success", "requeue_after")
            )
            assert total > 0
            assert harness.metric("workqueue_adds_total", name=name, controller=name) > 0

    # What tests are made of.

    @asynccontextmanager
    async def api(self) -> AsyncIterator[FakeApi]:
        """Run a fake API with the kinds and the world of the subject."""
        async with FakeApi() as api:
            for crd in self.subject.crds:
                api.register(crd)
            for manifest in self.subject.world():
                api.create(manifest)
            yield api

    def harness(self, api: FakeApi, **settings: Any) -> OperatorHarness:
        """Build the operator against a fake API."""
        return OperatorHarness(
            self.subject.operator,
            api.config,
            look=api.objects,
            **{**dict(self._settings()), **settings},
        )

    def primary_key(self) -> Key:
        """Return the key of the first object."""
        return key_of(self.subject.objects()[0])

    async def workload(self, api: FakeApi, harness: OperatorHarness) -> None:
        """Create what a user applies, wait, change it, wait."""
        await self._create_all(api)
        await self.settle(api, harness)
        await self._change(api, harness)

    async def settle(
        self,
        api: FakeApi,
        harness: OperatorHarness,
        extra: Callable[[], Any] | None = None,
    ) -> None:
        """Let the operator and the rest of the cluster react to each other to the end."""
        if extra is not None:
            await extra()
        async with asyncio.timeout(_SETTLE_SECONDS):
            while True:
                await harness.settled()
                version = api.store.version
                self.subject.drive(api)
                open_ends = harness.failing or harness.is_due_within(self.subject.horizon)
                if api.store.version == version and not open_ends:
                    return
                await asyncio.sleep(_POLL)

    async def run(self, harm: Hurt | None = None) -> Run:
        """Run the workload, harmed in one way."""
        async with self.api() as api:
            hurt = harm(api) if harm is not None else None
            harness = self.harness(api)
            if hurt is not None:
                hurt.harness = harness
            async with harness:
                await self.workload(api, harness)
                if hurt is not None:
                    # How many writes of the status a run needs is a matter of timing, so that the
                    # last of another run may not come in this one.
                    assert hurt.fired or hurt.seen, "the fault was never reached"
                return self.outcome(api, 0)

    async def _assert_harmless(self, harms: Callable[[int], Iterator[tuple[str, Hurt]]]) -> None:
        """Hold runs that are harmed, some side by side, against a calm one.

        Args:
            harms: Gives the harms for a number of writes, each with words for it.
        """
        expected = await self.run()
        assert expected.writes, "a workload without writes proves nothing"
        pending = harms(len(expected.writes))

        async def work() -> None:
            for how, harm in pending:
                self._assert_same(await self.run(harm), expected, how)

        number = 1 if self.subject.alone else _AT_ONCE
        workers = [asyncio.create_task(work()) for _ in range(number)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the state of the API and what was done to reach it."""
        kinds = (self.subject.primary, *self.subject.children)
        state = {
            f"{kind.kind} {key_of(manifest)}": normalize(manifest)
            for kind in kinds
            for manifest in api.objects(kind, _scope_of(kind))
        }
        ours = writes_of_the_operator(api, mark)
        return Run(state, count_names(ours, "create"), count_names(ours, "delete"), ours)

    def _settings(self) -> Mapping[str, Any]:
        return {
            "watch_namespaces": (NAMESPACE,),
            "pod_namespace": NAMESPACE,
            **self.subject.settings,
        }

    async def _create_all(self, api: FakeApi) -> None:
        for manifest in self.subject.objects():
            api.create(manifest)

    async def _change(self, api: FakeApi, harness: OperatorHarness) -> None:
        api.patch(self.subject.primary, self.primary_key(), self.subject.change)
        await self.settle(api, harness)

    async def _apply_again(self, harness: OperatorHarness, manifest: Manifest) -> None:
        kind = self.subject.primary
        if not kind.matches(manifest):
            return
        again = {**manifest, "spec": {**manifest.get("spec", {}), **self.subject.change["spec"]}}
        await harness.client.apply(kind, again, field_manager="kubectl")

    def _assert_same(self, got: Run, expected: Run, how: str, *, counts: bool = True) -> None:
        for what, one, other, asked in (
            ("end", got.state, expected.state, True),
            ("creations", got.creates, expected.creates, counts),
            ("deletions", got.deletes, expected.deletes, counts),
        ):
            if asked and one != other:
                pytest.fail(f"other {what} after {how}:\n{render_differences(other, one)}")


def _scope_of(kind: Kind) -> str:
    """Return where to look for objects of a kind; everywhere for one without namespaces."""
    return NAMESPACE if kind.namespaced else ""
