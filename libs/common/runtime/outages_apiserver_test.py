"""Outages of a real API server: expired watches, replaced kinds, aggregated APIs that are down."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.conditions import READY, find_condition
from libs.common.errors import AlreadyExists, ApiError, NotFound, Unreachable
from libs.common.kinds import (
    CONFIG_MAP,
    CRD,
    NAMESPACE,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.labels import MANAGED_BY
from libs.common.runtime import Controller, Operator
from libs.common.runtime.informer import Informer
from libs.common.runtime.listing import InformerListing
from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import wait_served
from libs.common.testing.widget import (
    CONDITIONS,
    OPERATOR,
    WIDGET,
    Settings,
    build_controller,
    build_widget,
)

pytestmark = pytest.mark.apiserver

# For a busy machine.
PATIENT: dict[str, Any] = {"cache_sync_timeout_seconds": 300, "request_timeout_seconds": 60}
API_SERVICE = Kind("apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False)
POD_METRICS = Kind("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")
CRD_OF_WIDGETS = build_crd(WIDGET, CONDITIONS, ("status",))


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Run a control plane whose API server the tests of this module may kill."""
    try:
        control_plane = ControlPlane()
    except AssetsMissing as err:
        pytest.skip(str(err))
    with control_plane:
        yield control_plane


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    """Serve Widgets; afterwards delete them and what they own."""
    async with Client(plane.config, user_agent="test") as connected:
        await serve_widgets(connected)
        yield connected
        for widget in (await connected.list(WIDGET)).items:
            await release(connected, key_of(widget))
        for child in (
            await connected.list(CONFIG_MAP, label_selector=f"{MANAGED_BY}=widget")
        ).items:
            await remove(connected, CONFIG_MAP, key_of(child))


async def serve_widgets(client: Client) -> None:
    while True:
        try:
            await client.create(CRD, CRD_OF_WIDGETS)
        except AlreadyExists:
            live = await client.get(CRD, Key("", WIDGET.resource))
            if "deletionTimestamp" in live["metadata"]:
                await asyncio.sleep(0.1)
                continue
        return await wait_served(client, WIDGET)


async def remove(client: Client, kind: Kind, key: Key) -> None:
    """Delete an object and wait until it is gone."""
    try:
        await client.delete(kind, key, uid=uid_of(await client.get(kind, key)))
        while await client.get(kind, key):
            await asyncio.sleep(0.1)
    except NotFound:
        return


async def release(client: Client, key: Key) -> None:
    """Delete a Widget that no operator looks after."""
    operations = [{"op": "add", "path": "/metadata/finalizers", "value": []}]
    await client.patch(WIDGET, key, operations)
    await remove(client, WIDGET, key)


async def find(client: Client, kind: Kind, key: Key) -> Manifest:
    """Return an object, or an empty one while it or its kind does not exist."""
    try:
        return await client.get(kind, key)
    except (ApiError, Unreachable):
        return {}


async def count_children(client: Client, name: str, namespace: str = "default") -> int:
    found = [await find(client, CONFIG_MAP, Key(namespace, f"{name}-{each}")) for each in range(2)]
    return len(list(filter(None, found)))


def compact(plane: ControlPlane) -> None:
    """Forget all versions but the newest, as the API server does every five minutes."""

    def call(path: str, body: Manifest) -> Any:
        data, url = json.dumps(body).encode(), f"{plane.etcd_url}/v3/kv/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as response:
            return json.load(response)

    revision = call("range", {"key": "AA=="})["header"]["revision"]
    call("compaction", {"revision": revision, "physical": True})


def count_lists(plane: ControlPlane, authorization: str) -> float:
    """Return the number of lists of Widgets and ConfigMaps since the API server started."""
    context = ssl._create_unverified_context()  # noqa: S323 a loopback server of our own
    headers = {"Authorization": authorization}
    request = urllib.request.Request(f"{plane.url}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=60, context=context) as response:
        text = response.read().decode()
    lines = re.findall(r"^apiserver_request_total\{([^}]*)\} (\S+)$", text, re.MULTILINE)
    return sum(
        float(value)
        for labels, value in lines
        if 'verb="LIST"' in labels and re.search(r'resource="(widgets|configmaps)"', labels)
    )


def run_widgets(plane: ControlPlane, source: str, **settings: Any) -> OperatorHarness:
    return OperatorHarness(
        OPERATOR, plane.config, source=source, backoff_max_seconds=1.0, **PATIENT, **settings
    )


@pytest.mark.parametrize("source", ["reflector", "kopf"])
async def test_watches_that_all_expire_at_once_cost_few_lists_and_miss_nothing(
    plane: ControlPlane, client: Client, source: str
) -> None:
    names = tuple(f"storm-{source}-{number}" for number in range(20))
    for name in names:
        await client.create(NAMESPACE, build_object(NAMESPACE, name))
        await client.create(WIDGET, build_widget("w", name))
    async with run_widgets(plane, source, watch_namespaces=names) as harness:
        await harness.converged()
        # A later version than any of the watches has seen; the API server that starts next knows
        # no earlier one.
        await client.create(NAMESPACE, build_object(NAMESPACE, f"later-{source}"))
        plane.kill("kube-apiserver")
        compact(plane)
        await asyncio.to_thread(plane.start_apiserver)
        await wait_served(client, WIDGET)
        for name in names:
            child = await client.get(CONFIG_MAP, Key(name, "w-0"))
            await client.delete(CONFIG_MAP, key_of(child), uid=uid_of(child))
            await client.create(WIDGET, build_widget("new", name))

        async def repaired() -> bool:
            counts = [
                await count_children(client, each, name) for name in names for each in ("w", "new")
            ]
            return counts == [2] * len(counts)

        await harness.eventually(repaired, "children are back")
        authorization = await plane.config.authorization()
        lists = await asyncio.to_thread(count_lists, plane, authorization)

    # One version, one page, and a version that kopf asks for: for each of two kinds.
    assert lists <= 6 * len(names) * 2


async def test_pages_that_expire_during_a_listing_hide_no_deletion(
    plane: ControlPlane, client: Client
) -> None:
    names = [f"page-{number:03}" for number in range(60)]
    for name in names:
        await client.create(CONFIG_MAP, build_object(CONFIG_MAP, name, "default"))
    informer = Informer(CONFIG_MAP, namespaces=("default",))
    listing = InformerListing(informer, "default")
    restarts, version = 0, 0
    async for page in client.pages(CONFIG_MAP, "default", page=20):
        if page.first:
            restarts += 1
            listing.restart()
        version = int(page.resource_version)
        listing.take(page.items, version)
        if restarts == 1 and names:
            for name in names[::2]:
                await remove(client, CONFIG_MAP, Key("default", name))
            names = []
            await client.create(CONFIG_MAP, build_object(CONFIG_MAP, "page-new", "default"))
            plane.kill("kube-apiserver")
            compact(plane)
            await asyncio.to_thread(plane.start_apiserver)
    listing.finish(version)

    live = {uid_of(each) for each in (await client.list(CONFIG_MAP, "default")).items}
    assert set(informer.store.uids()) == live
    assert restarts == 2, "the test has not made the pages expire"


@pytest.mark.parametrize("source", ["reflector", "kopf"])
async def test_crd_that_is_deleted_and_created_again_is_followed(
    plane: ControlPlane, client: Client, source: str
) -> None:
    key = Key("default", "w")
    async with run_widgets(plane, source) as harness:
        for turn in range(2):
            made = await client.create(WIDGET, build_widget())

            async def is_ready(uid: str) -> bool:
                live = await find(client, WIDGET, key)
                ready = find_condition(live, READY) or {}
                return live.get("metadata", {}).get("uid") == uid and ready.get("status") == "True"

            await harness.eventually(partial(is_ready, uid_of(made)), f"Widget {turn} is ready")
            await remove(client, CRD, Key("", WIDGET.resource))
            for number in range(2):
                await remove(client, CONFIG_MAP, Key("default", f"w-{number}"))
            assert not await find(client, WIDGET, key)
            await serve_widgets(client)
        await harness.eventually(lambda: not len(harness.manager.cache.store(WIDGET)))
        await harness.converged()
        assert harness.manager.working.is_set()


@pytest.mark.parametrize("source", ["reflector", "kopf"])
@pytest.mark.parametrize("watched", [False, True], ids=["of others", "watched"])
async def test_aggregated_api_that_is_down_stops_nobody_else(
    plane: ControlPlane, client: Client, source: str, watched: bool
) -> None:
    name = f"{POD_METRICS.version}.{POD_METRICS.group}"
    spec = {
        "group": POD_METRICS.group,
        "version": POD_METRICS.version,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "missing"},
    }

    def build(settings: Settings) -> Controller:
        controller = build_controller(settings)
        if watched:
            controller = controller.watches(POD_METRICS, lambda *_: [], optional=True)
        return controller

    operator = Operator("widget", (build,), settings=Settings, summary="Tests outages.")
    harness = OperatorHarness(operator, plane.config, source=source, **PATIENT)
    await client.create(API_SERVICE, build_object(API_SERVICE, name, spec=spec))
    try:
        async with harness:
            await client.create(WIDGET, build_widget())
            await harness.eventually(lambda: count_two(client), "children exist")
            await remove(client, WIDGET, Key("default", "w"))
    finally:
        await remove(client, API_SERVICE, Key("", name))


async def count_two(client: Client) -> bool:
    return await count_children(client, "w") == 2
