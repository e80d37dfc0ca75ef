"""Tests of deletion, garbage collection, namespaces and storage protection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from libs.common.kinds import CONFIG_MAP, NAMESPACE, POD, PVC, Key, Kind, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.rest import RestClient

MAPS = CONFIG_MAP.path("default")
PODS = POD.path("default")


def build_map(name: str, owner: Manifest | None = None, **metadata: object) -> Manifest:
    whole: Manifest = {"name": name, "namespace": "default", **metadata}
    if owner is not None:
        whole["ownerReferences"] = [reference_to(owner)]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": whole}


def reference_to(owner: Manifest, *, block: bool = True) -> Manifest:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }


def build_pod(name: str = "p", **spec: object) -> Manifest:
    containers = [{"name": "main", "image": "i:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers, **spec},
    }


def names(api: FakeApi, kind: Kind = CONFIG_MAP) -> list[str]:
    return [obj["metadata"]["name"] for obj in api.objects(kind)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0)


async def test_delete_with_a_wrong_uid_conflicts_and_keeps_the_object(
    rest: RestClient, api: FakeApi
) -> None:
    api.create(build_map("a"))

    refused = await rest.delete(f"{MAPS}/a", {"preconditions": {"uid": "other"}})

    assert (refused.status, refused.reason) == (409, "Conflict")
    assert names(api) == ["a"]


async def test_finalizers_hold_an_object_until_the_last_is_gone(
    rest: RestClient, api: FakeApi
) -> None:
    api.create(build_map("a", finalizers=["x.io/a", "x.io/b"]))

    marked = await rest.delete(f"{MAPS}/a")
    again = await rest.delete(f"{MAPS}/a")
    await rest.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/b"]}})
    held = names(api)
    await rest.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})

    assert marked.metadata["deletionTimestamp"]
    assert again.metadata["resourceVersion"] == marked.metadata["resourceVersion"]
    assert held == ["a"]
    assert names(api) == []


async def test_owned_objects_go_with_their_owner(rest: RestClient, api: FakeApi) -> None:
    owner = api.create(build_map("owner"))
    child = api.create(build_map("child", owner))
    api.create(build_map("grandchild", child))
    api.create(build_map("other"))

    await rest.delete(f"{MAPS}/owner")

    await until(lambda: names(api) == ["other"])


async def test_object_with_a_second_living_owner_stays(rest: RestClient, api: FakeApi) -> None:
    one, two = api.create(build_map("one")), api.create(build_map("two"))
    child = build_map("child", one)
    child["metadata"]["ownerReferences"].append({**reference_to(two), "controller": False})
    api.create(child)

    await rest.delete(f"{MAPS}/one")

    await until(
        lambda: [
            o["name"]
            for o in api.get(CONFIG_MAP, ("default", "child"))["metadata"]["ownerReferences"]
        ]
        == ["two"]
    )


async def test_object_of_an_owner_that_never_was_is_collected(api: FakeApi) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "g", "uid": "u"}}
    api.create(build_map("child", ghost))

    await until(lambda: names(api) == [])


async def test_orphaned_objects_lose_their_reference(rest: RestClient, api: FakeApi) -> None:
    owner = api.create(build_map("owner"))
    api.create(build_map("child", owner))

    await rest.delete(f"{MAPS}/owner", propagationPolicy="Orphan")

    await until(lambda: names(api) == ["child"])
    assert "ownerReferences" not in api.get(CONFIG_MAP, ("default", "child"))["metadata"]


async def test_foreground_deletion_waits_for_blocking_children(
    rest: RestClient, api: FakeApi
) -> None:
    owner = api.create(build_map("owner"))
    api.create(build_map("child", owner, finalizers=["x.io/hold"]))

    await rest.delete(f"{MAPS}/owner", propagationPolicy="Foreground")
    child = ("default", "child")
    await until(lambda: "deletionTimestamp" in api.get(CONFIG_MAP, child)["metadata"])
    waiting = names(api)
    api.patch(CONFIG_MAP, child, {"metadata": {"finalizers": None}})

    assert waiting == ["child", "owner"]
    await until(lambda: names(api) == [])


async def test_paused_collector_leaves_children_until_it_is_run(
    rest: RestClient, api: FakeApi
) -> None:
    api.collector.pause()
    owner = api.create(build_map("owner"))
    api.create(build_map("child", owner))
    await rest.delete(f"{MAPS}/owner")
    left = names(api)

    api.collector.run()

    assert left == ["child"]
    assert names(api) == []


async def test_pod_without_a_node_is_deleted_at_once(rest: RestClient, api: FakeApi) -> None:
    api.create(build_pod())

    await rest.delete(f"{PODS}/p")

    assert names(api, POD) == []


async def test_pod_on_a_node_terminates_until_the_kubelet_is_done(
    rest: RestClient, api: FakeApi
) -> None:
    api.create(build_pod())
    api.bind(("default", "p"))

    marked = await rest.delete(f"{PODS}/p")
    held = names(api, POD)
    api.finish_termination(POD, ("default", "p"))

    assert marked.metadata["deletionGracePeriodSeconds"] == 30
    assert held == ["p"]
    assert names(api, POD) == []


@pytest.mark.parametrize(("termination", "left"), [("always", ["p"]), ("never", [])])
async def test_termination_can_be_switched(termination: str, left: list[str]) -> None:
    async with FakeApi(termination=termination) as api:  # type: ignore[arg-type]  # from the table
        api.create(build_pod(nodeName="n" if termination == "never" else None))
        api.delete(POD, ("default", "p"))

        assert names(api, POD) == left


async def test_deleted_namespace_is_emptied_and_refuses_new_objects(
    rest: RestClient, api: FakeApi
) -> None:
    await rest.create(NAMESPACE.path(), {"metadata": {"name": "n"}})
    held = build_map("held", finalizers=["x.io/hold"])
    await rest.create(
        CONFIG_MAP.path("n"), {**held, "metadata": {**held["metadata"], "namespace": "n"}}
    )

    await rest.delete(NAMESPACE.path("", "n"))
    key = Key("n", "held")
    await until(lambda: "deletionTimestamp" in api.get(CONFIG_MAP, key)["metadata"])
    refused = await rest.create(CONFIG_MAP.path("n"), {"metadata": {"name": "late"}})
    api.patch(CONFIG_MAP, key, {"metadata": {"finalizers": None}})

    assert (refused.status, refused.causes) == (
        403,
        [("metadata.namespace", "NamespaceTerminating")],
    )
    await until(lambda: api.find(NAMESPACE, ("", "n")) is None)


async def test_namespace_with_a_finalizer_of_its_own_is_emptied_and_waits(
    rest: RestClient, api: FakeApi
) -> None:
    metadata = {"name": "n", "finalizers": ["example.com/wait"]}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}}
    )

    await rest.delete(f"{NAMESPACE.path()}/n")
    await until(lambda: names(api, CONFIG_MAP) == [])
    await until(lambda: api.get(NAMESPACE, ("", "n"))["spec"] == {})
    waiting = api.get(NAMESPACE, ("", "n"))
    api.collector.run()
    assert api.get(NAMESPACE, ("", "n")) == waiting, "nothing is written while it waits"
    api.patch(NAMESPACE, ("", "n"), {"metadata": {"finalizers": None}})

    await until(lambda: api.find(NAMESPACE, ("", "n")) is None)


async def test_claim_is_protected_while_a_pod_uses_it(rest: RestClient, api: FakeApi) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": spec,
    }
    api.create(claim)
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    api.create(build_pod(volumes=[volume]))

    await rest.delete(f"{PVC.path('default')}/c")
    api.collector.run()
    held = names(api, PVC)
    api.delete(POD, ("default", "p"))

    assert held == ["c"]
    await until(lambda: names(api, PVC) == [])


async def test_delete_collection_takes_the_selected(rest: RestClient, api: FakeApi) -> None:
    for name in ("a", "b"):
        api.create(build_map(name, labels={"n": name}))

    await rest.delete(MAPS, labelSelector="n=a")

    assert names(api) == ["b"]


async def test_vanish_ignores_finalizers(api: FakeApi) -> None:
    api.create(build_map("a", finalizers=["x.io/hold"]))

    api.vanish(CONFIG_MAP, ("default", "a"))

    assert names(api) == []
