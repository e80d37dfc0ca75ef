"""JVMs in pods of a kind cluster: how long it takes from Ready to the first scrape."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.config import load_config
from libs.common.kinds import CONFIG_MAP, NAMESPACE, POD, Key, Manifest, build_object
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.naming import PORT
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import up
from tools.cluster.progress import Progress
from tools.dev.images import load_operator
from tools.dev.install import Release, install, uninstall
from tools.dev.options import Target
from tools.images.build import ensure_base
from tools.jvm.cluster import build_pod
from tools.jvm.image import SAMPLE, ensure_sample_image

MIN_READY_SECONDS: Final = 6
"""How long a pod is left alone; a JVM is not touched in its first five seconds anyway."""
_ID: Final = "jmxexporter"
_POLL: Final = 0.1
_TIMEOUT: Final = 600.0


@asynccontextmanager
async def open_fleet(progress: Progress) -> AsyncIterator[Fleet]:
    """Install the operator into a namespace of its own on the kind cluster, and clean up."""
    cluster = up()
    docker = ensure_docker(progress, cluster.cache)
    ensure_sample_image(docker, ensure_base(docker, progress), progress, cluster.cache)
    cluster.load([SAMPLE], progress)
    image = load_operator(_ID, cluster, progress)
    release = Release(_ID, f"jvms-{secrets.token_hex(2)}")
    target = Target(cluster.kubectl(), cluster)
    install(release, target, image, progress)
    config = await load_config(str(cluster.kubeconfig))
    async with Client(config, user_agent="bench") as client:
        try:
            yield Fleet(client, release.namespace)
        finally:
            await Fleet(client, release.namespace).clear()
            uninstall(release, target, progress)
            namespace = await client.get(NAMESPACE, Key("", release.namespace))
            await client.delete(
                NAMESPACE, Key("", release.namespace), uid=namespace["metadata"]["uid"]
            )


class Fleet:
    """Keep pods with JVMs in one namespace.

    Args:
        client: Connection with all rights.
        namespace: Where they are; the operator works there.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        """Take what is given."""
        self.client = client
        self.namespace = namespace

    async def ask(self, **spec: object) -> None:
        """Make the exporter and its configuration."""
        config: Manifest = build_object(
            CONFIG_MAP,
            "jmx-config",
            self.namespace,
            data={"config.yaml": "rules:\n- pattern: .*\n"},
        )
        await self.client.apply(CONFIG_MAP, config, field_manager="bench")
        exporter: Manifest = build_object(
            PROMETHEUS_JMX_EXPORTER,
            "fleet",
            self.namespace,
            spec={
                "labelSelector": {"app": "dummyapp"},
                "config": {"configMapName": "jmx-config"},
                "port": 9400,
                "minReadySeconds": MIN_READY_SECONDS,
                "maxConcurrent": 50,
                **spec,
            },
        )
        await self.client.apply(PROMETHEUS_JMX_EXPORTER, exporter, field_manager="bench")

    async def add(self, *names: str) -> None:
        """Make pods."""
        for name in names:
            await self.client.create(POD, build_pod(self.namespace, name))

    async def list_pods(self) -> list[Manifest]:
        """List the pods of the application."""
        found = await self.client.list(POD, self.namespace, label_selector="app=dummyapp")
        return found.items

    async def delete(self, name: str) -> None:
        """Delete a pod; returns before it is gone."""
        key = Key(self.namespace, name)
        held = await self.client.get(POD, key)
        await self.client.delete(POD, key, uid=held["metadata"]["uid"])

    async def clear(self) -> None:
        """Delete all pods and the exporter, and wait until they are gone."""
        for pod in await self.list_pods():
            await self.delete(pod["metadata"]["name"])
        exporters = await self.client.list(PROMETHEUS_JMX_EXPORTER, self.namespace)
        for each in exporters.items:
            metadata = each["metadata"]
            key = Key(self.namespace, metadata["name"])
            await self.client.delete(PROMETHEUS_JMX_EXPORTER, key, uid=metadata["uid"])
        async with asyncio.timeout(_TIMEOUT):
            while (
                await self.list_pods()
                or (await self.client.list(PROMETHEUS_JMX_EXPORTER, self.namespace)).items
            ):
                await asyncio.sleep(_POLL)

    async def time_first_scrapes(self, count: int) -> list[float]:
        """Make pods at once, and time each from Ready to its first good scrape.

        The operator annotates a pod after an injector has scraped it, so the times have its two
        turns over the API server in them, too.

        Raises:
            TimeoutError: Some were not served in time.
        """
        await self.ask()
        names = [f"jvm-{secrets.token_hex(2)}-{number}" for number in range(count)]
        await self.add(*names)
        ready: dict[str, float] = {}
        served: dict[str, float] = {}
        async with asyncio.timeout(_TIMEOUT):
            while len(served) < count:
                for pod in await self.list_pods():
                    _note(pod, ready, served)
                await asyncio.sleep(_POLL)
        restarts = [_count_restarts(pod) for pod in await self.list_pods()]
        assert not any(restarts), "a JVM was harmed"
        return [served[name] - ready[name] for name in names]


def _note(pod: Manifest, ready: dict[str, float], served: dict[str, float]) -> None:
    name, now = pod["metadata"]["name"], time.monotonic()
    condition = find_condition(pod, "Ready")
    if condition is not None and condition["status"] == "True":
        ready.setdefault(name, now)
    if PORT in (pod["metadata"].get("annotations") or {}):
        served.setdefault(name, now)


def _count_restarts(pod: Manifest) -> int:
    statuses: Sequence[Manifest] = pod["status"].get("containerStatuses") or []
    return sum(each["restartCount"] for each in statuses)
