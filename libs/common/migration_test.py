"""Storage-version migration: every object once, and the list of versions only after all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.crd import build_crd
from libs.common.errors import Forbidden, UnknownOutcome
from libs.common.kinds import CRD, Key, build_object
from libs.common.metric_specs import STORED_VERSIONS
from libs.common.metrics import Metrics
from libs.common.migration import StorageMigration, migrate_storage
from libs.common.runtime import Operator
from libs.common.runtime.manager import Manager
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi, Request
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.script import Script
from libs.common.testing.waiting import advance_until, turns
from libs.common.testing.widget import WIDGET as SERVED
from libs.common.testing.widget import Settings
from libs.common.testing.widget_versions import CONVERSION, WIDGET

COUNT = 5
NAME = Key("", WIDGET.resource)


@pytest.fixture
def api(fake_api: FakeApi) -> FakeApi:
    fake_api.create(build_crd(*CONVERSION.models))
    fake_api.patch_status(CRD, NAME, {"storedVersions": ["v1alpha1", "v1"]})
    for number in range(COUNT):
        fake_api.create(build_object(WIDGET, f"w-{number}", "default", spec={}))
    return fake_api


@pytest.fixture
def migration(api: FakeApi, fake_client: Client) -> StorageMigration:
    return StorageMigration(fake_client, FakeClock(), WIDGET)


async def migrate(migration: StorageMigration) -> tuple[bool, float]:
    """Migrate once; returns the result and the seconds that it waited."""
    clock = migration._clock
    assert isinstance(clock, FakeClock)
    task = asyncio.create_task(migration.migrate())
    seconds = await advance_until(clock, task.done)
    return await task, seconds


def stored(api: FakeApi) -> list[str]:
    versions: list[str] = api.get(CRD, NAME)["status"]["storedVersions"]
    return versions


def rewritten(api: FakeApi) -> list[str]:
    return [request.key.name for request in api.requests.select("patch", WIDGET)]


async def test_every_object_is_rewritten_before_the_versions_are_set(
    api: FakeApi, migration: StorageMigration
) -> None:
    done, seconds = await migrate(migration)

    assert done
    assert rewritten(api) == [f"w-{number}" for number in range(COUNT)]
    assert stored(api) == ["v1"]
    assert seconds == pytest.approx(30 + COUNT / 50), "it settles, and limits its rate"
    writes = [request.kind for request in api.requests.select("patch")]
    assert writes[-1] == CRD


async def test_kind_that_is_migrated_needs_no_request_but_one(
    api: FakeApi, migration: StorageMigration
) -> None:
    api.patch_status(CRD, NAME, {"storedVersions": ["v1"]})

    done, seconds = await migrate(migration)

    assert (done, seconds) == (True, 0)
    assert rewritten(api) == []
    assert api.requests.select("list", WIDGET) == []


@pytest.mark.parametrize("status", [404, 409])
async def test_object_that_somebody_else_wrote_or_deleted_is_done(
    api: FakeApi, migration: StorageMigration, status: int
) -> None:
    api.fail("patch", WIDGET, status=status, name="w-1")

    assert (await migrate(migration))[0]
    assert stored(api) == ["v1"]


async def test_object_that_cannot_be_rewritten_keeps_its_version(
    api: FakeApi, migration: StorageMigration
) -> None:
    fault = api.fail("patch", WIDGET, status=422, name="w-1", times=None)

    assert not (await migrate(migration))[0]
    assert stored(api) == ["v1alpha1", "v1"]
    fault.release()
    before = len(rewritten(api))

    assert (await migrate(migration))[0]
    assert rewritten(api)[before:] == ["w-1"], "only what remains is tried again"
    assert stored(api) == ["v1"]


async def test_migration_continues_where_the_connection_broke(
    api: FakeApi, fake_client: Client
) -> None:
    migration = StorageMigration(fake_client, FakeClock(), WIDGET)
    fault = api.fail("patch", WIDGET, dropped=True, name="w-3", times=None)
    with pytest.raises(UnknownOutcome):
        await migrate(migration)
    fault.release()
    before = len(rewritten(api))

    assert (await migrate(migration))[0]
    assert rewritten(api)[before:] == ["w-3", "w-4"]


async def test_migration_stops_after_many_failures(
    api: FakeApi, migration: StorageMigration
) -> None:
    for number in range(COUNT, 20):
        api.create(build_object(WIDGET, f"w-{number}", "default", spec={}))
    api.fail("patch", WIDGET, status=403, times=None)

    assert not (await migrate(migration))[0]
    assert len(rewritten(api)) == 10


async def test_missing_permission_is_reported(api: FakeApi, migration: StorageMigration) -> None:
    api.fail("list", WIDGET, status=403, times=None)

    with pytest.raises(Forbidden):
        await migrate(migration)
    assert stored(api) == ["v1alpha1", "v1"]


async def test_crd_that_changes_meanwhile_is_migrated_again(
    api: FakeApi, migration: StorageMigration
) -> None:
    def change(request: Request) -> bool:
        if request.key.name == "w-2":
            api.patch(CRD, NAME, {"spec": {"names": {"shortNames": ["wd"]}}})
        return False

    fault = api.fail("patch", WIDGET, where=change, times=None)

    assert not (await migrate(migration))[0]
    assert stored(api) == ["v1alpha1", "v1"]
    fault.release()

    assert (await migrate(migration))[0]
    assert len(rewritten(api)) == 2 * COUNT
    assert stored(api) == ["v1"]


async def test_metric_counts_the_versions(api: FakeApi, fake_client: Client) -> None:
    metrics = Metrics()
    migration = StorageMigration(fake_client, FakeClock(), WIDGET, metrics=metrics)
    gauge = metrics.gauge(STORED_VERSIONS).labels(WIDGET.resource)
    api.fail("patch", WIDGET, status=422, name="w-1")

    await migrate(migration)
    assert gauge._value.get() == 2
    await migrate(migration)
    assert gauge._value.get() == 1


async def test_only_the_leader_migrates_and_tries_again(api: FakeApi) -> None:
    api.register(SERVED)
    api.fail("patch", WIDGET, status=422, name="w-1")
    clock = FakeClock()

    def build_migration(manager: Manager) -> Coroutine[Any, Any, None] | None:
        return migrate_storage(manager, WIDGET)

    build = Script().build_controller
    operator = Operator("widget", (build,), settings=Settings, runnables=(build_migration,))
    async with OperatorHarness(operator, api.config, clock=clock) as harness:
        await turns()
        assert harness.manager.working.is_set()
        await advance_until(clock, lambda: stored(api) == ["v1"])
        assert rewritten(api)[-1] == "w-1"
