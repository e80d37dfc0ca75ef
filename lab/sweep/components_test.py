from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lab.sweep.components import ClusterComponents
from lab.sweep.recorder import NamespaceRecord
from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi

CHILD = Key("default", "web-0")


@pytest.fixture
async def client(fake_api: FakeApi) -> AsyncIterator[Client]:
    async with Client(ConnectionConfig(fake_api.url)) as client:
        yield client


def create_owned_pod(api: FakeApi) -> tuple[Manifest, Manifest]:
    """Create an owner and its pod; return both."""
    owner = api.create(build_object(CONFIG_MAP, "web", "default"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "web",
        "uid": owner["metadata"]["uid"],
    }
    pod: Manifest = build_object(
        POD,
        CHILD.name,
        CHILD.namespace,
        metadata={"ownerReferences": [reference]},
        spec={"containers": [{"name": "app", "image": "app"}]},
    )
    return owner, api.create(pod)


def build_initial_objects(client: Client, *known: Manifest) -> ClusterComponents:
    """Build components whose record contains some objects."""
    record = NamespaceRecord()
    for manifest in known:
        record.note("ADDED", POD if manifest["kind"] == "Pod" else CONFIG_MAP, manifest)
    return ClusterComponents(client, record, (POD,), (), owners=(CONFIG_MAP,))


async def test_orphan_is_collected(fake_api: FakeApi, client: Client) -> None:
    _, pod = create_owned_pod(fake_api)
    fake_api.delete(CONFIG_MAP, Key("default", "web"))

    await build_initial_objects(client, pod).act()

    assert fake_api.find(POD, CHILD) is None


async def test_object_whose_owner_the_book_does_not_know_yet_stays(
    fake_api: FakeApi, client: Client
) -> None:
    _, pod = create_owned_pod(fake_api)

    await build_initial_objects(client, pod).act()

    assert fake_api.find(POD, CHILD) is not None


async def test_object_that_was_released_before_its_owner_went_stays(
    fake_api: FakeApi, client: Client
) -> None:
    _, pod = create_owned_pod(fake_api)
    fake_api.patch(POD, CHILD, {"metadata": {"ownerReferences": None}})
    fake_api.delete(CONFIG_MAP, Key("default", "web"))

    await build_initial_objects(client, pod).act()

    assert fake_api.find(POD, CHILD) is not None
