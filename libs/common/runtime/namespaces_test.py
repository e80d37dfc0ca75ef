"""One of several watched namespaces cannot be read: all others are reconciled as ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.kinds import CONFIG_MAP, Key
from libs.common.runtime.informer import SourceName
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.faults import Fault
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.widget import CONDITIONS, OPERATOR, WIDGET, build_widget

SOURCES: tuple[SourceName, ...] = ("reflector", "kopf")


@pytest.fixture
def tenants(fake_api: FakeApi) -> FakeApi:
    fake_api.register(WIDGET, CONDITIONS)
    for name in ("tenant-a", "tenant-b"):
        fake_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        fake_api.create(build_widget("w", name))
    return fake_api


def forbid(api: FakeApi, namespace: str) -> Fault:
    """Refuse everything in a namespace, as when its Role was deleted."""
    return api.fail("", None, status=403, times=None, where=lambda r: r.key.namespace == namespace)


def build_harness(api: FakeApi, source: SourceName, **settings: Any) -> OperatorHarness:
    return OperatorHarness(
        OPERATOR,
        api.config,
        source=source,
        watch_namespaces=("tenant-a", "tenant-b"),
        cache_sync_timeout_seconds=4,
        **settings,
    )


def count_children(api: FakeApi, namespace: str) -> int:
    return len(api.objects(CONFIG_MAP, namespace))


@pytest.mark.parametrize("source", SOURCES)
async def test_process_starts_beside_a_namespace_that_cannot_be_read_and_takes_it_up_later(
    tenants: FakeApi, source: SourceName
) -> None:
    fault = forbid(tenants, "tenant-b")
    async with build_harness(tenants, source) as harness:
        await harness.eventually(lambda: count_children(tenants, "tenant-a") == 2)
        assert harness.metric("operator_cache_scope_up", watched_namespace="tenant-a") == 1
        assert harness.metric("operator_cache_scope_up", watched_namespace="tenant-b") == 0
        assert harness.metric("operator_working") == 1
        assert count_children(tenants, "tenant-b") == 0

        fault.release()
        await harness.eventually(lambda: count_children(tenants, "tenant-b") == 2)
        assert harness.metric("operator_cache_scope_up", watched_namespace="tenant-b") == 1


@pytest.mark.parametrize("source", SOURCES)
async def test_standby_takes_over_beside_a_namespace_that_cannot_be_read(
    tenants: FakeApi, source: SourceName
) -> None:
    election = {
        "leader_elect": True,
        "lease_duration_seconds": 3,
        "renew_deadline_seconds": 2,
        "retry_period_seconds": 0.5,
        "pod_namespace": "default",
    }
    first = build_harness(tenants, source, **election)
    await first.start()
    second = build_harness(tenants, source, **election)
    await second.start(wait=False)
    assert second.metric("operator_working") == 0
    forbid(tenants, "tenant-b")
    await first.stop()
    tenants.create(build_widget("late", "tenant-a"))

    await second.eventually(lambda: count_children(tenants, "tenant-a") == 4)

    await second.stop()
    await first.client.close()
    await second.client.close()


async def test_nothing_is_planned_from_a_cache_that_lacks_a_kind(tenants: FakeApi) -> None:
    """A Widget whose ConfigMaps cannot be listed is left alone, though it can be read itself."""
    fault = tenants.fail(
        "", CONFIG_MAP, status=403, times=None, where=lambda r: r.key.namespace == "tenant-b"
    )
    async with build_harness(tenants, "reflector") as harness:
        await harness.eventually(lambda: count_children(tenants, "tenant-a") == 2)
        await harness.idle()
        status = tenants.get(WIDGET, Key("tenant-b", "w")).get("status")
        assert status is None, "neither written nor told"

        fault.release()
        await harness.eventually(lambda: count_children(tenants, "tenant-b") == 2)


async def test_process_that_can_read_no_namespace_gives_up(tenants: FakeApi) -> None:
    for name in ("tenant-a", "tenant-b"):
        forbid(tenants, name)
    harness = build_harness(tenants, "reflector")
    harness._task = asyncio.create_task(harness.manager.run(harness._stop))

    assert not await harness.ended(20)
    await harness.client.close()
