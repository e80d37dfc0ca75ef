"""Simulated nodes run pods, provide volumes and roll out Deployments, on both API servers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import NotFound
from libs.common.kinds import (
    DEPLOYMENT,
    NAMESPACE,
    NODE,
    POD,
    PV,
    PVC,
    STORAGE_CLASS,
    Key,
    Kind,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.reading import maps_at, text_at
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.nodes import Nodes
from libs.common.testing.nodes.timing import INSTANT

_numbers = itertools.count()


@dataclass
class Site:
    """A namespace of an API server with simulated nodes."""

    client: Client
    namespace: str

    async def create(self, kind: Kind, name: str, **parts: Any) -> Manifest:
        return await self.client.create(kind, build_object(kind, name, self.namespace, **parts))

    async def create_pod(self, name: str, image: str = "busybox:1", **spec: Any) -> Manifest:
        return await self.create(POD, name, spec={**_build_spec(image), **spec})

    async def until(
        self, kind: Kind, name: str, holds: Callable[[Manifest | None], object]
    ) -> Manifest:
        key = Key(self.namespace if kind.namespaced else "", name)
        async with asyncio.timeout(60):
            while True:
                try:
                    found: Manifest | None = await self.client.get(kind, key)
                except NotFound:
                    found = None
                if holds(found):
                    return found or {}
                await asyncio.sleep(0.02)


def _build_spec(image: str) -> Manifest:
    return {"containers": [{"name": "main", "image": image}]}


@pytest_asyncio.fixture(params=["fake", pytest.param("real", marks=pytest.mark.apiserver)])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """Give a namespace of either API server, with nodes."""
    if request.param == "real":
        async with Serve(request.getfixturevalue("kube_apiserver").config) as site:
            yield site
    else:
        async with FakeApi() as api, Serve(api.config) as site:
            yield site


class Serve:
    def __init__(self, config: ConnectionConfig) -> None:
        self._client, self._nodes = Client(config), Nodes(config, timing=INSTANT)

    async def __aenter__(self) -> Site:
        name = f"nodes-{next(_numbers)}"
        await self._client.create(NAMESPACE, build_object(NAMESPACE, name))
        await self._nodes.__aenter__()
        return Site(self._client, name)

    async def __aexit__(self, *_: object) -> None:
        await self._nodes.__aexit__()
        # Other tests on the same API server expect no default class and no nodes.
        for kind, name in ((STORAGE_CLASS, "standard"), (NODE, "simulated-1")):
            held = await self._client.get(kind, Key("", name))
            await self._client.delete(kind, Key("", name), uid=uid_of(held))
        await self._client.close()


def is_ready(obj: Manifest | None) -> bool:
    found = maps_at(obj or {}, "status", "conditions")
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


def has_phase(phase: str) -> Callable[[Manifest | None], bool]:
    return lambda obj: text_at(obj or {}, "status", "phase") == phase


async def test_pod_becomes_ready_and_ends_within_its_grace_period(site: Site) -> None:
    await site.create_pod("p")

    pod = await site.until(POD, "p", is_ready)
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"]

    await site.client.delete(POD, Key(site.namespace, "p"), uid=uid_of(pod))
    await site.until(POD, "p", lambda found: found is None)


async def test_readiness_gate_keeps_a_pod_from_being_ready(site: Site) -> None:
    await site.create_pod("p", readinessGates=[{"conditionType": "a.b/c"}])
    pod = await site.until(POD, "p", has_phase("Running"))
    assert not is_ready(pod)

    conditions = [*pod["status"]["conditions"], {"type": "a.b/c", "status": "True"}]
    key = Key(site.namespace, "p")
    await site.client.patch(POD, key, {"status": {"conditions": conditions}}, subresource="status")
    await site.until(POD, "p", is_ready)


async def test_image_of_a_registry_that_cannot_exist_is_not_pulled(site: Site) -> None:
    await site.create_pod("p", "registry.invalid/app:1")

    def waits(pod: Manifest | None) -> bool:
        found = maps_at(pod or {}, "status", "containerStatuses")
        return any(text_at(c, "state", "waiting", "reason") == "ImagePullBackOff" for c in found)

    assert not is_ready(await site.until(POD, "p", waits))


async def test_pod_that_fits_nowhere_says_so(site: Site) -> None:
    await site.create_pod("p", nodeSelector={"gpu": "yes"})

    def explains(pod: Manifest | None) -> bool:
        found = maps_at(pod or {}, "status", "conditions")
        return any("0/1 nodes" in text_at(each, "message") for each in found)

    await site.until(POD, "p", explains)


async def test_claim_waits_for_its_first_consumer_grows_and_takes_its_volume_along(
    site: Site,
) -> None:
    size = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": size, "storageClassName": "standard"}
    claim = await site.create(PVC, "c", spec=spec)
    volume = f"pvc-{uid_of(claim)}"
    mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    await site.create_pod("other")
    await site.until(POD, "other", is_ready)
    assert not (await site.until(PVC, "c", has_phase("Pending")))["spec"].get("volumeName")

    await site.create_pod("p", volumes=mounted)
    await site.until(PVC, "c", has_phase("Bound"))
    await site.until(POD, "p", is_ready)
    await site.until(PV, volume, has_phase("Bound"))

    more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    key = Key(site.namespace, "c")
    await site.client.patch(PVC, key, more)
    await site.until(PVC, "c", lambda c: text_at(c or {}, "status", "capacity", "storage") == "2Gi")

    await site.client.patch(PVC, key, {"metadata": {"finalizers": None}})
    await site.client.delete(PVC, key, uid=uid_of(claim))
    await site.until(
        PV, volume, lambda found: found is None or found["metadata"].get("deletionTimestamp")
    )


async def test_deployment_rolls_out_a_new_template(site: Site) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": _build_spec("web:1")}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await site.create(DEPLOYMENT, "web", spec=spec)

    def is_complete(image: str) -> Callable[[Manifest | None], bool]:
        def complete(obj: Manifest | None) -> bool:
            status = (obj or {}).get("status", {})
            current = status.get("observedGeneration") == (obj or {})["metadata"]["generation"]
            counts = (status.get(name) for name in ("replicas", "updatedReplicas", "readyReplicas"))
            return current and all(count == spec["replicas"] for count in counts)

        return complete

    await site.until(DEPLOYMENT, "web", is_complete("web:1"))
    template["spec"] = _build_spec("web:2")
    await site.client.patch(
        DEPLOYMENT, Key(site.namespace, "web"), {"spec": {"template": template}}
    )
    await site.until(DEPLOYMENT, "web", is_complete("web:2"))

    listing = await site.client.list(POD, site.namespace)
    images = [pod["spec"]["containers"][0]["image"] for pod in listing.items]
    assert images.count("web:2") == spec["replicas"]
