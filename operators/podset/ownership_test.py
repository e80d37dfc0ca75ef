"""Whose pods are whose: adoption, release, and pods of others, over HTTP."""

from __future__ import annotations

from libs.common.kinds import POD, Key, Manifest, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.podset.controller import PODSET, map_pod
from operators.podset.samples import (
    SELECTOR,
    TEMPLATE,
    WEB,
    build_pod,
    build_podset,
    condition,
    names,
)


async def test_orphans_of_a_deleted_set_are_adopted_by_the_next(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=3))
    await operator.converged()
    before = {uid_of(pod) for pod in api.objects(POD)}
    api.delete(PODSET, WEB, propagation="Orphan")
    await operator.eventually(lambda: not any(controller_uid(pod) for pod in api.objects(POD)))
    created = api.create(build_podset(replicas=3))
    await operator.converged()

    assert {uid_of(pod) for pod in api.objects(POD)} == before
    assert {controller_uid(pod) for pod in api.objects(POD)} == {uid_of(created)}


async def test_orphan_that_matches_the_selector_is_adopted(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2, template=TEMPLATE, selector=SELECTOR))
    await operator.converged()
    api.create(build_pod("bare", app="web"))
    await operator.converged()

    # There is one too many now: the youngest without a node is deleted, regardless of its creator.
    owned = [pod for pod in api.objects(POD) if controller_uid(pod)]
    assert len(owned) == len(names(api)) == 2


async def test_relabeled_pod_is_released_and_replaced(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=2, template=TEMPLATE, selector=SELECTOR))
    await operator.converged()
    api.patch(POD, ("default", "web-pod-0"), {"metadata": {"labels": {"app": "debug"}}})
    await operator.converged()

    assert names(api) == ["web-pod-0", "web-pod-1", "web-pod-2"]
    assert not controller_uid(api.get(POD, ("default", "web-pod-0")))
    assert api.get(PODSET, WEB)["status"]["podNames"] == ["web-pod-1", "web-pod-2"]


async def test_set_that_is_being_deleted_adopts_nothing(
    api: FakeApi, operator: OperatorHarness
) -> None:
    # kubernetes#42639: the cache does not know of the deletion yet when the orphan turns up.
    created = build_podset(replicas=1, template=TEMPLATE, selector=SELECTOR)
    created["metadata"]["finalizers"] = ["example.com/hold"]
    api.create(created)
    await operator.converged()
    api.watches.pause(PODSET)
    api.delete(PODSET, WEB)
    api.create(build_pod("bare", app="web"))
    await operator.eventually(
        lambda: any(each.verb == "get" and each.kind == PODSET for each in api.requests),
        "the set is read from the server",
    )

    assert not controller_uid(api.get(POD, ("default", "bare")))
    api.watches.resume(PODSET)


async def test_foreign_pod_is_never_changed(api: FakeApi, operator: OperatorHarness) -> None:
    owner: Manifest = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs"}
    owner |= {"uid": "rs-uid", "controller": True}
    api.collector.pause()
    foreign = api.create(build_pod("web-pod-1", owner, app="web"))
    api.create(build_podset(replicas=3, template=TEMPLATE, selector=SELECTOR))
    await operator.converged()

    assert names(api) == ["web-pod-0", "web-pod-1", "web-pod-2", "web-pod-3"]
    assert api.get(POD, key_of(foreign)) == foreign
    assert condition(api, "Conflict") == ("True", "NameTaken")

    api.vanish(POD, key_of(foreign))
    await operator.converged()
    assert condition(api, "Conflict") == ("False", "AsExpected")
    assert names(api) == ["web-pod-0", "web-pod-2", "web-pod-3"]


async def test_name_that_the_cache_does_not_know_to_be_taken_is_passed_over(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.watches.pause(POD)
    api.create(build_pod("web-pod-0"))
    api.create(build_podset(replicas=2))
    await operator.eventually(lambda: len(names(api)) == 3)
    api.watches.resume(POD)
    await operator.converged()

    assert api.get(PODSET, WEB)["status"]["podNames"] == ["web-pod-1", "web-pod-2"]


async def test_strict_set_rests_beside_a_name_that_is_taken(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.watches.pause(POD)
    api.create(build_pod("web-pod-0"))
    api.create(build_podset(replicas=2, podReplacementPolicy="TerminationComplete"))
    await operator.eventually(lambda: len(names(api)) == 2)
    api.watches.resume(POD)
    await operator.converged()

    assert names(api) == ["web-pod-0", "web-pod-1"]
    assert condition(api, "Conflict") == ("True", "NameTaken")
    assert not operator.failing


async def test_pod_concerns_the_set_of_its_name_and_those_that_may_adopt_it(
    api: FakeApi, operator: OperatorHarness
) -> None:
    api.create(build_podset(replicas=0))
    api.create(build_podset("other", replicas=0, template=TEMPLATE, selector=SELECTOR))
    await operator.converged()
    cache = operator.manager.cache

    owner = {"kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
    assert map_pod(build_pod("web-pod-0", owner), cache) == [WEB]
    assert map_pod(build_pod("x", app="web"), cache) == [Key("default", "other")]
    assert map_pod(build_pod("x", owner, app="web"), cache) == []
    assert map_pod(build_pod("gone-pod-0"), cache) == []
