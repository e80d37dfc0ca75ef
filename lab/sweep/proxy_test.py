from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Literal

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lab.sweep.canaries import build_canary
from lab.sweep.external_system import ExternalSystem, Reply, Request
from lab.sweep.modes import Mode
from lab.sweep.proxy import FaultProxy
from lab.sweep.session import Session
from lab.sweep.triggers import Trigger
from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    ServerError,
    SlipwayError,
    UnknownOutcome,
)
from libs.common.kinds import POD, SECRET, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi

NAMESPACE = "default"
NAME = Key(NAMESPACE, "web-pod-0")
CREATE = Trigger("write", "create", "create", "pods", "web-pod-0", 1)
ADDED = Trigger("event", "create", "ADDED", "pods", "web-pod-0", 1)

type Open = Callable[[Mode, Trigger | None], tuple[Session, Client]]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def connect(api: FakeApi) -> AsyncIterator[Open]:
    """Yield the client of an operator, which reaches the API through the proxy of a trial."""
    clients: list[Client] = []
    async with FaultProxy(api.url, None, "admin") as proxy:

        def open_session(mode: Mode, trigger: Trigger | None) -> tuple[Session, Client]:
            session = Session(NAMESPACE, "token", mode, trigger, phase="create", armed=True)
            proxy.open(session)
            config = ConnectionConfig(proxy.url(session, 0))
            clients.append(Client(config, user_agent="slipway-test", request_timeout=1.0))
            return session, clients[-1]

        yield open_session
        for client in clients:
            await client.close()


def build_pod() -> Manifest:
    return build_object(
        POD, NAME.name, NAMESPACE, spec={"containers": [{"name": "main", "image": "busybox"}]}
    )


class Broker:
    """Stand in for an outside system that keeps topics."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    async def answer(self, request: Request) -> Reply:
        if request.method == "PUT":
            self.topics.append(request.path)
        return Reply(200, b"{}")

    def show(self) -> dict[str, Manifest]:
        return {topic: {} for topic in self.topics}


@pytest.mark.parametrize(
    ("mode", "status", "topics"),
    [(Mode.NONE, 200, ["/topics/a"]), (Mode.E503, 503, []), (Mode.E409, 409, [])],
)
async def test_outside_system_is_behind_the_proxy_too(
    api: FakeApi, mode: Mode, status: int, topics: list[str]
) -> None:
    moment = Trigger("write", "create", "update", "pulsar", "/topics/a", 1)
    async with FaultProxy(api.url, None, "admin") as proxy, aiohttp.ClientSession() as client:
        fault = None if mode is Mode.NONE else moment
        session = Session(NAMESPACE, "token", mode, fault, phase="create", armed=True)
        broker = Broker()
        session.systems["pulsar"] = (ExternalSystem("pulsar", lambda *_: broker), broker)
        proxy.open(session)
        url = proxy.outside_url(session, "pulsar")
        async with client.get(f"{url}/topics") as read, client.put(f"{url}/topics/a") as write:
            assert (read.status, write.status) == (200, status)

    assert broker.topics == topics
    assert session.moments == [moment]


async def test_part_of_the_api_server_can_be_an_outside_system(api: FakeApi, connect: Open) -> None:
    broker = Broker()
    session, client = connect(Mode.NONE, None)
    outside = ExternalSystem(
        "vms", lambda *_: broker, prefixes=("/apis/subresources.example.com/",)
    )
    session.systems["vms"] = (outside, broker)
    path = "/apis/subresources.example.com/v1/namespaces/default/machines/a/restart"

    await client.raw("PUT", path)

    assert broker.topics == [path]
    assert ("subresources.example.com", "machines/restart", "update") in session.used


async def test_outside_system_is_not_asked_without_the_right_to_it(
    api: FakeApi, connect: Open
) -> None:
    broker = Broker()
    session, client = connect(Mode.NONE, None)
    outside = ExternalSystem(
        "vms", lambda *_: broker, prefixes=("/apis/subresources.example.com/",)
    )
    session.systems["vms"] = (outside, broker)
    api.allow([])

    with pytest.raises(Forbidden):
        await client.raw(
            "PUT", "/apis/subresources.example.com/v1/namespaces/default/machines/a/restart"
        )

    assert broker.topics == []
    assert session.refused


async def test_secret_in_a_written_object_is_reported_except_in_a_secret(
    api: FakeApi, connect: Open
) -> None:
    session, client = connect(Mode.NONE, None)
    session.canaries = (build_canary(NAMESPACE),)
    metadata = {"name": "a", "namespace": NAMESPACE}
    data = {"token": build_canary(NAMESPACE)}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}
    await client.create(SECRET, secret)
    assert session.leaks == []

    pod = build_pod()
    pod["metadata"]["annotations"] = {"note": build_canary(NAMESPACE)}
    await client.create(POD, pod)

    assert session.leaks == ["create pods web-pod-0 shows canary/token in the form plain"]


async def test_write_without_fault_is_carried_out_and_booked(api: FakeApi, connect: Open) -> None:
    session, client = connect(Mode.NONE, None)

    created = await client.create(POD, build_pod())

    assert api.find(POD, NAME) is not None
    (record,) = session.records
    assert (record.status, record.after) == (201, created["metadata"]["resourceVersion"])
    assert session.moments == [CREATE]


async def test_lost_response_leaves_the_object_there(api: FakeApi, connect: Open) -> None:
    session, client = connect(Mode.A1, CREATE)

    with pytest.raises(UnknownOutcome):
        await client.create(POD, build_pod())

    assert api.find(POD, NAME) is not None
    assert session.fired


@pytest.mark.parametrize(("mode", "carried_out"), [(Mode.K0, False), (Mode.K1, True)])
async def test_killed_process_gets_no_answer(
    api: FakeApi, connect: Open, mode: Mode, carried_out: bool
) -> None:
    session, client = connect(mode, CREATE)
    killed: list[int] = []
    session.kill = killed.append

    with pytest.raises(SlipwayError):
        await client.create(POD, build_pod())

    assert killed == [0]
    assert (api.find(POD, NAME) is not None) is carried_out


async def test_process_is_killed_after_the_answer(connect: Open) -> None:
    session, client = connect(Mode.K2, CREATE)
    killed: list[int] = []
    session.kill = killed.append

    await client.create(POD, build_pod())

    assert killed == [0]


async def test_create_meets_an_object_of_somebody_else(api: FakeApi, connect: Open) -> None:
    session, client = connect(Mode.E409, CREATE)

    with pytest.raises(AlreadyExists):
        await client.create(POD, build_pod())

    labels = (api.find(POD, NAME) or {})["metadata"]["labels"]
    assert labels == {"sweep.slipway.dev/foreign": "true"}
    assert session.foreign


async def test_other_write_is_answered_conflict_and_not_sent(api: FakeApi, connect: Open) -> None:
    moment = Trigger("write", "create", "delete", "pods", NAME.name, 1)
    _, client = connect(Mode.E409, moment)
    created = api.create(build_pod())

    with pytest.raises(Conflict):
        await client.delete(POD, NAME, uid=created["metadata"]["uid"])

    assert api.find(POD, NAME) is not None


async def test_second_write_of_that_name_is_let_through(api: FakeApi, connect: Open) -> None:
    _, client = connect(Mode.E500, CREATE)

    with pytest.raises(ServerError):
        await client.create(POD, build_pod())
    assert api.find(POD, NAME) is None

    await client.create(POD, build_pod())
    assert api.find(POD, NAME) is not None


async def test_outage_refuses_reads_too(connect: Open) -> None:
    session, client = connect(Mode.OUTAGE, CREATE)

    with pytest.raises(ServerError):
        await client.create(POD, build_pod())
    with pytest.raises(ServerError):
        await client.list(POD, NAMESPACE)

    assert session.quiet_for == 0.0


async def test_held_write_goes_through_when_it_is_released(api: FakeApi, connect: Open) -> None:
    session, client = connect(Mode.H, CREATE)
    task = asyncio.create_task(client.create(POD, build_pod()))
    while not session.held:
        await asyncio.sleep(0)
    assert api.find(POD, NAME) is None

    session.released.set()
    await task

    assert api.find(POD, NAME) is not None


async def test_late_write_goes_through_after_its_delay(api: FakeApi, connect: Open) -> None:
    session, client = connect(Mode.LATE, CREATE)
    session.delay = 60.0
    task = asyncio.create_task(client.create(POD, build_pod()))
    while not session.fired:
        await asyncio.sleep(0)
    assert api.find(POD, NAME) is None
    session.released.set()  # As at the end of a trial.
    created = await task
    assert api.find(POD, NAME) is not None

    session.delay, session.fired = 0.01, False
    session.released.clear()
    session.trigger = replace(CREATE, action="delete")
    await client.delete(POD, NAME, uid=created["metadata"]["uid"])
    assert session.fired


@pytest.mark.parametrize("side", ["write", "event"])
async def test_slow_api_server_is_late_each_time(
    api: FakeApi, connect: Open, side: Literal["write", "event"]
) -> None:
    session, client = connect(Mode.NONE, None)
    session.lags[side] = 0.1
    version = (await client.list(POD, NAMESPACE)).resource_version
    started = time.monotonic()

    await client.create(POD, build_pod())
    found = await follow(client, version, 1)

    assert time.monotonic() - started >= 0.1
    assert found == [f"ADDED {NAME.name}"]


async def follow(client: Client, version: str, count: int) -> list[str]:
    found = []
    async with asyncio.timeout(120):
        async for event in client.watch(POD, NAMESPACE, resource_version=version):
            if event.type != "BOOKMARK":
                found.append(f"{event.type} {event.object['metadata']['name']}")
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize(
    ("mode", "events"),
    [
        (Mode.NONE, ["ADDED web-pod-0", "ADDED last"]),
        (Mode.DROP, ["ADDED last"]),
        (Mode.DUPLICATE, ["ADDED web-pod-0", "ADDED web-pod-0", "ADDED last"]),
    ],
)
async def test_event_is_lost_or_doubled(
    api: FakeApi, connect: Open, mode: Mode, events: list[str]
) -> None:
    _, client = connect(mode, None if mode is Mode.NONE else ADDED)
    version = (await client.list(POD, NAMESPACE)).resource_version
    api.create(build_pod())
    api.create({**build_pod(), "metadata": {"name": "last", "namespace": NAMESPACE}})

    assert await follow(client, version, len(events)) == events


async def test_watch_is_refused_after_a_gap_in_which_a_child_went(
    api: FakeApi, connect: Open
) -> None:
    session, client = connect(Mode.GONE, ADDED)
    session.group = "example.com"
    version = (await client.list(POD, NAMESPACE)).resource_version
    pod = build_pod()
    owner = {"apiVersion": "example.com/v1", "kind": "Web", "name": "web", "uid": "1"}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    api.collector.pause()
    api.create(pod)

    with pytest.raises(SlipwayError):
        await follow(client, version, 1)
    with pytest.raises(Expired):
        await follow(client, version, 1)

    assert api.find(POD, NAME) is None


async def test_no_header_is_added_that_the_operator_does_not_send() -> None:
    """The official Python client sends objects without a type, which means JSON."""
    seen: list[set[str]] = []

    async def take(request: web.Request) -> web.Response:
        seen.append({name.lower() for name in request.headers})
        return web.json_response({}, status=201)

    app = web.Application()
    app.router.add_post("/api/v1/namespaces/default/pods", take)
    async with TestServer(app) as server, aiohttp.ClientSession() as client:
        async with FaultProxy(str(server.make_url("")).rstrip("/"), None, "admin") as proxy:
            session = Session(NAMESPACE, "token")
            proxy.open(session)
            url = f"{proxy.url(session, 0)}/api/v1/namespaces/default/pods"
            skipped = ("Content-Type", "User-Agent", "Accept")
            async with client.post(url, data=b"{}", skip_auto_headers=skipped) as response:
                assert response.status == 201

    assert not seen[0] & {"content-type", "user-agent"}


async def test_request_with_unknown_trial_is_refused(connect: Open) -> None:
    session, client = connect(Mode.NONE, None)
    strange = ConnectionConfig(client.config.server.replace(session.namespace, "other"))

    async with Client(strange) as other:
        with pytest.raises(ServerError):
            await other.list(POD, NAMESPACE)
