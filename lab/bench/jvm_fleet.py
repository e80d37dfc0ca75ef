"""JVMs in pods of a kind cluster: how long it takes until they are scraped for the first time."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from libs.common.client import Client
from libs.common.conditions import is_true
from libs.common.config import load_config
from libs.common.kinds import CONFIG_MAP, NAMESPACE, POD, Key, Manifest, build_object
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.naming import PORT
from tools.cluster.docker import ensure_docker
from tools.cluster.errors import ToolError
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
_STARTED_AT_ONCE: Final = 5
"""Pods whose JVMs start at a time: each wants a core for a second or two."""


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
    """Pods with JVMs in one namespace.

    Args:
        client: Connection with all rights.
        namespace: Namespace of the pods, which the operator watches.
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
                **spec,
            },
        )
        await self.client.apply(PROMETHEUS_JMX_EXPORTER, exporter, field_manager="bench")

    async def add(self, *names: str) -> None:
        """Make pods, which ask for so little that one node takes all of them."""
        for name in names:
            pod = build_pod(self.namespace, name)
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1m"
            await self.client.create(POD, pod)

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

    async def time_new_pod(self) -> float:
        """Time a pod that comes while the exporter is there, from its Ready to a good scrape.

        The operator annotates a pod after an injector has scraped it, so the time includes two
        round trips to the API server.
        """
        await self.ask()
        await self.add(_name_pod(0))
        ready = await self._wait_all(_is_ready, 1)
        served = await self._wait_all(_is_served, 1)
        return served[0] - ready[0]

    async def time_running_pods(self, count: int) -> list[float]:
        """Time pods that run already, from the exporter that selects them to good scrapes.

        All are Ready before, so that what is timed is not the start of their JVMs.
        """
        for numbers in itertools.batched(range(count), _STARTED_AT_ONCE, strict=False):
            await self.add(*map(_name_pod, numbers))
            await self._wait_all(_is_ready, numbers[-1] + 1)
        await asyncio.sleep(MIN_READY_SECONDS)
        began = time.monotonic()
        await self.ask()
        return [served - began for served in await self._wait_all(_is_served, count)]

    async def _wait_all(self, found: Callable[[Manifest], bool], count: int) -> list[float]:
        """Wait until something is so of all pods, and return when it was of each.

        Raises:
            ToolError: It was not in time, or a JVM was harmed meanwhile.
        """
        times: dict[str, float] = {}
        deadline = time.monotonic() + _TIMEOUT
        while True:
            pods = await self.list_pods()
            for pod in filter(found, pods):
                times.setdefault(pod["metadata"]["name"], time.monotonic())
            if harmed := [pod["metadata"]["name"] for pod in pods if _count_restarts(pod)]:
                raise ToolError(f"JVMs in {', '.join(harmed)} were harmed")
            if len(times) == count:
                return list(times.values())
            if time.monotonic() > deadline:
                left = [_describe(pod) for pod in pods if pod["metadata"]["name"] not in times]
                raise ToolError(f"Not in {_TIMEOUT:.0f} s: " + "; ".join(left))
            await asyncio.sleep(_POLL)


def _name_pod(number: int) -> str:
    return f"jvm-{number}-{secrets.token_hex(2)}"


def _is_ready(pod: Manifest) -> bool:
    return is_true(pod, "Ready")


def _is_served(pod: Manifest) -> bool:
    return PORT in (pod["metadata"].get("annotations") or {})


def _describe(pod: Manifest) -> str:
    """Say what the cluster says of a pod that is late."""
    untrue = [
        f"{each['type']}: {each.get('message') or each.get('reason')}"
        for each in pod["status"].get("conditions") or ()
        if each["status"] != "True" and each.get("reason")
    ]
    return f"{pod['metadata']['name']} ({', '.join(untrue) or pod['status'].get('phase')})"


def _count_restarts(pod: Manifest) -> int:
    statuses: Sequence[Manifest] = pod["status"].get("containerStatuses") or []
    return sum(each["restartCount"] for each in statuses)
