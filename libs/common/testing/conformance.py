"""Conformance: what every operator must withstand, inherited by a class of ten lines.

```python
class TestPodSetConformance(OperatorConformance):
    subject = Subject(OPERATOR, crds=(build_crd(PodSet),), objects=build_objects,
                      change={"spec": {"replicas": 5}})
```

Each test runs the operator in this process against the fake API over HTTP, harms it in one way, and
asks for the same end: the state that an undisturbed run reaches, the same creations and deletions,
and silence afterwards.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from libs.common.conditions import conditions_of, is_true
from libs.common.kinds import Kind, Manifest, key_of
from libs.common.rbac import event_rules, operator_namespace_rules
from libs.common.runtime.manager import Manager
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.differences import render_differences
from libs.common.testing.fakeapi import FakeApi, Request
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.kstatus import compute_status
from libs.common.testing.outcome import Run, is_of_the_operator, writes_of_the_operator
from libs.common.testing.subject import NAMESPACE, Subject, load_example
from libs.common.testing.trial import InjectFault, Trial, scope_of
from libs.common.testing.write_faults import CRASH_MODES, Fail, WriteCrash, spread

__all__ = ["NAMESPACE", "OperatorConformance", "Run", "Subject", "load_example"]

_REFUSALS: Final = (403, 409, 429, 500, 503)
_AT_ONCE: Final = 4
"""Runs side by side; they mostly wait."""
_LEASE: Final = {
    "leader_elect": True,
    "lease_duration_seconds": 600,
    "renew_deadline_seconds": 400,
}
"""A Lease is released or taken here: no test waits until it expires, and no slow one loses it."""
_MOMENT: Final = 2.0
"""Seconds after which the current time, in whole seconds, is certainly another one."""


class OperatorConformance(Trial):
    """Inherit from this, name it `Test...`, and set `subject`."""

    async def test_no_writes_when_converged(self) -> None:
        """In sync, an operator is silent: even after a restart, re-apply or touched annotation."""
        clock = AdvancedClock()
        async with self.api() as api, self.harness(api, clock=clock) as harness:
            for act in (self.create_all, self.change):
                act(api)
                await self.settle(api, harness)
                self._assert_observed(api)
                mark = api.mark()
                clock.seconds += _MOMENT
                await harness.restart()
                await self.settle(api, harness)
                _assert_silent(api, mark, "a restart")

            for manifest in self.subject.objects():
                await self.apply_again(harness, manifest)
            api.patch(
                self.subject.primary,
                self.primary_key(),
                {"metadata": {"annotations": {"example.com/touched": "yes"}}},
            )
            mark = api.mark()
            await self.settle(api, harness)
            _assert_silent(api, mark, "a re-apply")

    async def test_deletion_leaves_what_was_there_before(self) -> None:
        """What users delete goes, after a clean-up that ends, and what was made for it goes too."""
        kinds = [kind for kind in self.subject.children if kind not in self.subject.outliving]
        async with self.api() as api, self.harness(api) as harness:
            before = self.take_state(api, kinds)
            await self.workload(api, harness)
            await self.delete(api, harness, self.subject.objects())
            if api.objects(self.subject.primary, NAMESPACE):
                # What others have may hold it, as those who use a network do.
                await self.delete(api, harness, self.subject.initial_objects())
            left = [_explain(each) for each in api.objects(self.subject.primary, NAMESPACE)]
            assert not left, f"held by a finalizer: {left}; finalize() ends by None, not a Result"
            after = self.take_state(api, kinds)
        before = {name: held for name, held in before.items() if name in after}
        if after != before:
            pytest.fail(f"left after the deletion:\n{render_differences(before, after)}")

    async def test_change_of_others_is_heard(self) -> None:
        """The operator notices if objects of others are deleted: a restart finds nothing new."""
        if not self.subject.initial_objects():
            pytest.skip("the subject has nothing that was there before")
        async with self.api() as api, self.harness(api) as harness:
            await self.workload(api, harness)
            await self.delete(api, harness, self.subject.initial_objects())
            mark = api.mark()
            await harness.restart()
            await harness.converged()
            _assert_silent(api, mark, "a restart after others were gone: is their kind watched?")

    async def test_crash_at_each_write_changes_nothing(self) -> None:
        """A crash before, inside or after each write ends where an undisturbed run ends."""

        def faults(writes: int) -> Iterator[tuple[str, InjectFault]]:
            for index, mode in spread(writes, CRASH_MODES):
                yield f"crash {mode} at write {index}", partial(WriteCrash, index=index, mode=mode)

        await self._assert_harmless(faults)

    async def test_lost_response_at_each_write_changes_nothing(self) -> None:
        """A write whose answer is lost is looked up, never repeated blindly."""

        def faults(writes: int) -> Iterator[tuple[str, InjectFault]]:
            for index in range(writes):
                yield f"answer of write {index} lost", partial(
                    Fail, index=index, lost_response=True
                )

        await self._assert_harmless(faults)

    async def test_refused_writes_are_tried_again(self) -> None:
        """A refusal of each write ends where an undisturbed run ends."""

        def faults(writes: int) -> Iterator[tuple[str, InjectFault]]:
            for index, status in spread(writes, _REFUSALS):
                retry = 0.01 if status == 429 else None
                fault = partial(Fail, index=index, status=status, retry_after=retry)
                yield f"{status} at write {index}", fault

        await self._assert_harmless(faults)

    async def test_many_conflicts_end(self) -> None:
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
                    for child in api.objects(kind, scope_of(kind)):
                        api.watches.drop_next(kind)
                        api.vanish(kind, key_of(child))
                        api.watches.expire(kind, form)
                        break
                await self.settle(api, harness, extra=lambda: _sweep(harness.manager))
                assert self.outcome(api, 0).state.keys() == before.keys(), f"410 by {form}"

    async def test_stale_cache_makes_nothing_twice(self) -> None:
        """While the watch of the children is behind, nothing is made or deleted twice."""
        expected = await self.run()
        async with self.api() as api, self.harness(api) as harness:
            for kind in self.subject.children:
                api.watches.pause(kind)
            self.create_all(api)
            await harness.idle()
            for kind in self.subject.children:
                api.watches.resume(kind)
            await self.settle(api, harness)
            self.change(api)
            await self.settle(api, harness)
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
        lease = {**_LEASE, "retry_period_seconds": 0.2}
        async with self.api() as api, self.harness(api, **lease) as first:
            standby = OperatorHarness(
                self.subject.operator, api.config, **{**self.settings(), **lease}
            )
            await standby.start(wait=False)
            assert not standby.manager.working.is_set()
            self.create_all(api)
            await self.settle(api, first)
            await first.stop()
            await standby.eventually(standby.manager.working.is_set, "the standby works")
            self.change(api)
            await self.settle(api, standby)
            got = self.outcome(api, 0)
            await standby.stop()
            await standby.client.close()
        self._assert_same(got, expected, "leader handover")

    async def test_lost_lease_ends_the_process(self) -> None:
        """A leader whose Lease was taken stops by itself and writes nothing any more."""
        lease = {**_LEASE, "retry_period_seconds": 0.1}
        async with self.api() as api, self.harness(api, **lease) as harness:
            await harness.lose_lease()
            elector = harness.manager.elector
            await harness.eventually(lambda: not elector.is_leader(), "it knows of its loss")
            # The process still runs now, and its watches deliver the new objects.
            mark = api.mark()
            self.create_all(api)
            orderly = await harness.ended()
            assert not orderly
            _assert_silent(api, mark, "its Lease was lost")

    async def test_permissions_are_sufficient(self) -> None:
        """The workload and its end run with the rights of the chart and nothing more."""
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
                await self.delete(api, harness, self.subject.objects())
            denied = [str(each) for each in api.requests if each.status == 403]
        assert not denied, f"the permissions of the operator do not grant: {denied}"

    async def test_kstatus_waits_until_ready(self) -> None:
        """Tools that wait by kstatus end when Ready or Stalled is True for the newest spec.

        This holds for every kind that the operator reconciles. Kinds without observedGeneration,
        such as records that only the operator writes, have nothing to wait for: always Current.
        """
        seen: list[tuple[bool, str, Manifest]] = []

        def look(manifest: Manifest) -> None:
            for kind, waits in waiting.items():
                if kind.matches(manifest) and not manifest["metadata"].get("deletionTimestamp"):
                    seen.append((waits, compute_status(manifest), copy.deepcopy(manifest)))

        async with self.api() as api:
            harness = self.harness(api)
            waiting = self._list_waiting(harness)
            for kind in waiting:
                for manifest in api.objects(kind, scope_of(kind)):
                    look(manifest)
            api.store.listeners.append(lambda change: look(change.record.obj))
            async with harness:
                await self.workload(api, harness)
                await self.delete(api, harness, self.subject.objects())
        for waits, status, manifest in seen:
            expected = "Failed" if is_true(manifest, "Stalled") else "InProgress"
            if is_true(manifest) or not waits:
                expected = "Current"
            assert status == expected, _explain(manifest)
        assert any(conditions_of(manifest) for _, _, manifest in seen), "no condition was written"

    def _list_waiting(self, harness: OperatorHarness) -> dict[Kind, bool]:
        """Map the custom kinds that the operator reconciles to whether to wait for them."""
        schemas = {
            (crd["spec"]["group"], crd["spec"]["names"]["kind"]): version["schema"]
            for crd in self.subject.crds
            for version in crd["spec"]["versions"]
        }
        waiting = {}
        for kind in {runner.controller.primary for runner in harness.manager.runners}:
            if (schema := schemas.get((kind.group, kind.kind))) is not None:
                status = schema["openAPIV3Schema"].get("properties", {}).get("status", {})
                waiting[kind] = "observedGeneration" in status.get("properties", {})
        return waiting

    async def test_cache_is_never_changed_by_a_pass(self) -> None:
        """The cache contains what the API server has: no reconcile changes it."""
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
            controllers = [runner.controller for runner in harness.manager.runners]
            name = next(one.name for one in controllers if one.primary == self.subject.primary)
            # A reconcile that polls something outside of the cluster ends as requeue_after.
            total = sum(
                harness.metric("controller_runtime_reconcile_total", controller=name, result=result)
                for result in ("success", "requeue_after")
            )
            assert total > 0
            assert harness.metric("workqueue_adds_total", name=name, controller=name) > 0

    async def _assert_harmless(
        self, faults: Callable[[int], Iterator[tuple[str, InjectFault]]]
    ) -> None:
        """Hold runs that are harmed, some side by side, against a calm one.

        Args:
            faults: Gives the harms for a number of writes, each with words for it.
        """
        expected = await self.run()
        assert expected.writes, "a workload without writes proves nothing"
        pending = faults(len(expected.writes))

        async def work() -> None:
            for how, fault in pending:
                self._assert_same(await self.run(fault), expected, how)

        number = 1 if self.subject.alone else _AT_ONCE
        workers = [asyncio.create_task(work()) for _ in range(number)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def _assert_same(self, got: Run, expected: Run, how: str, *, counts: bool = True) -> None:
        for what, one, other, asked in (
            ("end", got.state, expected.state, True),
            ("creations", got.creates, expected.creates, counts),
            ("deletions", got.deletes, expected.deletes, counts),
        ):
            if asked and one != other:
                pytest.fail(f"other {what} after {how}:\n{render_differences(other, one)}")

    def _assert_observed(self, api: FakeApi) -> None:
        """Assert that what a status says of generations is of the newest spec."""
        for manifest in api.objects(self.subject.primary, NAMESPACE):
            status, generation = manifest.get("status") or {}, manifest["metadata"]["generation"]
            for place in (status, *(status.get("conditions") or ())):
                seen = place.get("observedGeneration", generation)
                where = place.get("type", "status")
                assert seen == generation, f"{key_of(manifest)}: {where} is of an older spec"


def _explain(manifest: Manifest) -> str:
    """Name an object, with what its conditions say."""
    reported = [f"{each['reason']}: {each.get('message', '')}" for each in conditions_of(manifest)]
    return f"{key_of(manifest)} ({'; '.join(reported)})"


def _assert_silent(api: FakeApi, mark: int, when: str) -> None:
    writes = [str(each) for each in writes_of_the_operator(api, mark)]
    assert not writes, f"writes after {when}: {writes}"


async def _sweep(manager: Manager) -> None:
    for informer in manager.cache:
        if informer.served:
            await manager.sweeper.sweep(informer)
