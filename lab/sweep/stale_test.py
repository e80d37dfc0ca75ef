from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from lab.sweep import stale
from lab.sweep.modes import Mode
from lab.sweep.proxy import FaultProxy
from lab.sweep.session import Session
from lab.sweep.triggers import Trigger
from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.kinds import CONFIG_MAP, NAMESPACE, Key, build_object
from libs.common.runtime.informer import Informer
from libs.common.runtime.kopf_source import KopfSource
from libs.common.testing.fakeapi import FakeApi

TRIAL = "default"
NAME = Key(TRIAL, "written")
CREATE = Trigger("write", "create", "create", "configmaps", NAME.name, 1)


class Trial:
    """A trial in which the first process was killed after a write."""

    def __init__(self, api: FakeApi, proxy: FaultProxy) -> None:
        self.api = api
        self._proxy = proxy
        self.session = Session(TRIAL, "token", Mode.STALE, CREATE, phase="create", armed=True)
        proxy.open(self.session)

    def config(self, process: int) -> ConnectionConfig:
        return ConnectionConfig(self._proxy.url(self.session, process))

    def connect(self, process: int) -> Client:
        return Client(self.config(process), user_agent="slipway-test")


@pytest.fixture(autouse=True)
def catch_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale, "LATE_SECONDS", 0.0)


@pytest.fixture
async def trial() -> AsyncIterator[Trial]:
    async with FakeApi() as api, FaultProxy(api.url, None, "admin") as proxy:
        trial = Trial(api, proxy)
        api.create(build_object(CONFIG_MAP, "before", TRIAL))
        async with trial.connect(0) as client:
            await client.create(CONFIG_MAP, build_object(CONFIG_MAP, NAME.name, TRIAL))
        yield trial


async def list_names(client: Client, field_selector: str = "") -> list[str]:
    listing = await client.list(CONFIG_MAP, TRIAL, field_selector=field_selector)
    return [item["metadata"]["name"] for item in listing.items]


async def test_first_list_of_a_new_process_lacks_the_write(trial: Trial) -> None:
    async with trial.connect(0) as killed, trial.connect(1) as client:
        assert await list_names(killed) == ["before", "written"]
        assert await list_names(client) == ["before"]
        assert await list_names(client) == ["before", "written"]


async def test_list_that_selects_nothing_leaves_the_past_to_the_one_of_the_objects(
    trial: Trial,
) -> None:
    url = f"{trial.config(1).server}{CONFIG_MAP.path(TRIAL)}"
    query = {"fieldSelector": "metadata.name=none"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, params=query) as empty,
        trial.connect(1) as client,
    ):
        # Raises on a content type that is not the one of the API server.
        listing = await empty.json()

        assert listing["items"] == []
        assert await list_names(client) == ["before"]


async def test_pages_of_a_stale_list_are_of_one_version(trial: Trial) -> None:
    before = trial.api.create(build_object(CONFIG_MAP, "third", TRIAL))["metadata"]
    trial.session.past.begin(int(before["resourceVersion"]), 0)
    trial.api.create(build_object(CONFIG_MAP, "zzz", TRIAL))

    async with trial.connect(1) as client:
        pages = [page async for page in client.pages(CONFIG_MAP, TRIAL, page=1)]

    names = [item["metadata"]["name"] for page in pages for item in page.items]
    assert names == ["before", "third", "written"]


async def test_watch_catches_up_and_ends_the_past(trial: Trial) -> None:
    async with trial.connect(1) as client, asyncio.timeout(120):
        version = (await client.list(CONFIG_MAP, TRIAL)).resource_version
        events = client.watch(CONFIG_MAP, TRIAL, resource_version=version)
        event = await anext(events)
        await events.aclose()

        assert (event.type, event.object["metadata"]["name"]) == ("ADDED", "written")
        selected = await list_names(client, field_selector="metadata.name=written")
        assert selected == ["written"]


async def test_stale_list_is_subject_to_the_same_rules_as_others(trial: Trial) -> None:
    """It needs the rights of the operator and leaves out what other trials have."""
    trial.session.scoped = frozenset({"namespaces"})
    trial.api.create(build_object(NAMESPACE, "other-trial"))
    trial.session.past.begin(int(await read_version(trial)), 0)

    async with trial.connect(1) as client:
        listing = await client.list(NAMESPACE)

    assert "other-trial" not in [item["metadata"]["name"] for item in listing.items]
    assert ("", "namespaces", "list") in trial.session.used


async def read_version(trial: Trial) -> str:
    async with Client(trial.api.config) as client:
        return (await client.list(CONFIG_MAP, TRIAL)).resource_version


async def test_kopf_begins_in_the_past_and_catches_up(
    trial: Trial, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale, "LATE_SECONDS", 0.5)  # The listing comes before the watch.
    informer = Informer(CONFIG_MAP, namespaces=(TRIAL,))
    reported: list[str] = []
    informer.add_handler(lambda change, *_: reported.append(f"{change.key.name} {informer.synced}"))
    stop = asyncio.Event()
    async with trial.connect(1) as client:
        source = asyncio.create_task(KopfSource(client.config, client).run([informer], stop))
        async with asyncio.timeout(120):
            while informer.store.get(NAME) is None:
                await asyncio.sleep(0.01)
        stop.set()
        await source

    assert [line.getMessage() for line in caplog.records if line.levelname == "ERROR"] == []
    assert reported == ["before False", "written True"]
