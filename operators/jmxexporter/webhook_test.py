"""The webhook that prepares new pods, from the cache of a running operator."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from libs.common.crd import build_crd
from libs.common.kinds import MUTATING_WEBHOOK_CONFIGURATION, SECRET, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.ports import find_free_port
from libs.common.webhooks import Review
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.observe import find_holder
from operators.jmxexporter.samples import LABELS, build_exporter
from operators.jmxexporter.webhook import PATH, PodReviewer

HOOK = Key("default", "hook")


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.register(build_crd(PrometheusJmxExporter))
        yield api


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    async with OperatorHarness(OPERATOR, api.config) as harness:
        yield harness


def build_review(**labels: str) -> Review:
    pod = {
        "metadata": {"generateName": "shop-", "labels": labels or LABELS},
        "spec": {"containers": [{"name": "app", "image": "shop"}]},
    }
    return Review("1", "CREATE", "default", "", pod, {})


def is_prepared(harness: OperatorHarness, review: Review) -> bool:
    return bool(PodReviewer(harness.manager).review(review).patch)


async def test_pod_that_an_exporter_selects_is_prepared(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_exporter(startup="NewPods"))
    await harness.converged()

    assert is_prepared(harness, build_review())
    assert not is_prepared(harness, build_review(app="other"))
    assert harness.metric("jmxexporter_startup_pods_total", outcome="prepared") == 1


def test_oldest_exporter_has_a_pod_whatever_it_wants_of_it() -> None:
    times = {"younger": "2026-01-02T00:00:00Z", "older": "2026-01-01T00:00:00Z"}
    exporters = [build_exporter(name) for name in times]
    for exporter in exporters:
        metadata = exporter["metadata"]
        metadata |= {"creationTimestamp": times[metadata["name"]], "uid": metadata["name"]}

    assert find_holder(exporters, build_review().object) == "older"
    assert find_holder(exporters, build_review(app="other").object) == ""


@pytest.mark.parametrize("broken", ["labelSelector", "config"])
async def test_exporter_that_cannot_be_read_prepares_nothing(
    api: FakeApi, harness: OperatorHarness, broken: str
) -> None:
    manifest = api.create(build_exporter(startup="NewPods"))
    await harness.converged()
    store = harness.manager.cache.store(PROMETHEUS_JMX_EXPORTER)
    held = store.get(Key("default", manifest["metadata"]["name"]))
    assert held is not None
    held["spec"][broken] = {"app": 7, "configMapName": 7}

    assert not is_prepared(harness, build_review())


async def test_standby_with_an_empty_cache_prepares_nothing(api: FakeApi) -> None:
    api.create(build_exporter(startup="NewPods"))
    harness = OperatorHarness(OPERATOR, api.config)

    assert not is_prepared(harness, build_review())
    await harness.client.close()


async def test_operator_serves_what_the_api_server_asks(api: FakeApi) -> None:
    metadata = {"name": "hook", "namespace": "default"}
    api.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    hook: Manifest = {
        "name": "startup.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": metadata},
    }
    api.create(build_object(MUTATING_WEBHOOK_CONFIGURATION, "hook", webhooks=[hook]))
    api.create(build_exporter(startup="NewPods"))
    settings: dict[str, Any] = {
        "webhooks": True,
        "webhook_service": "hook",
        "webhook_configuration": "hook",
        "webhook_bind_address": f"127.0.0.1:{(port := find_free_port())}",
        "pod_namespace": "default",
    }
    async with OperatorHarness(OPERATOR, api.config, **settings) as harness:
        await harness.eventually(
            lambda: bool(api.get(SECRET, HOOK).get("data")), "the certificate is there"
        )
        trusted = base64.b64decode(api.get(SECRET, HOOK)["data"]["ca.crt"]).decode()
        review = build_review()
        body = {"request": {"uid": "1", "namespace": "default", "object": review.object}}
        response: Manifest = {}

        async def is_answered() -> bool:
            try:
                response.update(await ask(port, trusted, body))
            except aiohttp.ClientConnectionError:
                return False
            return True

        await harness.eventually(is_answered, "the webhook answers")

    assert response["response"]["allowed"] is True
    patch = json.loads(base64.b64decode(response["response"]["patch"]))
    assert any(operation["path"] == "/spec/initContainers" for operation in patch)


async def ask(port: int, trusted: str, body: Manifest) -> Manifest:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=trusted))
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"https://127.0.0.1:{port}{PATH}"
        # The name that the API server asks for is in the certificate; the address is not.
        name = "hook.default.svc"
        async with session.post(url, json=body, server_hostname=name) as response:
            found: Manifest = await response.json()
            return found
