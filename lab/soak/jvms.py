"""Pods with JVMs that come and continue the kind cluster, under an exporter: what stays behind."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Final

from lab.bench.jvm_fleet import Fleet, open_fleet
from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, SERVICE, Key, Manifest, key_of, uid_of
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.naming import PORT
from tools.cluster.progress import open_progress

_PODS: Final = 5
_PERIOD: Final = 12.0
"""Seconds between two pods that go; on a small machine a JVM needs some of them to start."""
_RULES: Final = 10
_EXPORTERS: Final = 25
"""After how many pods the rules change, and the exporter is deleted and made again."""
_SETTLE: Final = 120.0


async def run_jvms(seconds: float) -> list[str]:
    """Let pods come and go for some time, and return what is wrong at the end."""
    async with open_fleet(open_progress("soak")) as fleet:
        await fleet.ask(service={})
        names = [f"churn-{number}" for number in range(_PODS)]
        await fleet.add(*names)
        turns = await _churn(fleet, names, seconds)
        problems = await _check_served(fleet)
        print(f"{turns} pods were replaced in {seconds / 60:.0f} minutes")
        await _remove_exporter(fleet)
        return [*problems, *await _list_left(fleet)]


async def _churn(fleet: Fleet, names: list[str], seconds: float) -> int:
    deadline = time.monotonic() + seconds
    for turn in itertools.count(1):
        if time.monotonic() > deadline:
            return turn - 1
        await fleet.delete(names.pop(0))
        names.append(f"churn-{_PODS + turn}")
        await fleet.add(names[-1])
        if turn % _RULES == 0:
            await _change_rules(fleet, turn)
        if turn % _EXPORTERS == 0:
            await _remove_exporter(fleet)
            await fleet.ask(service={})
        await asyncio.sleep(_PERIOD)
    raise AssertionError  # Counting never ends.


async def _change_rules(fleet: Fleet, turn: int) -> None:
    text = f"# {turn}\nrules:\n- pattern: .*\n"
    patch = {"data": {"config.yaml": text}}
    await fleet.client.patch(CONFIG_MAP, Key(fleet.namespace, "jmx-config"), patch)


async def _remove_exporter(fleet: Fleet) -> None:
    key = Key(fleet.namespace, "fleet")
    held = await fleet.client.get(PROMETHEUS_JMX_EXPORTER, key)
    await fleet.client.delete(PROMETHEUS_JMX_EXPORTER, key, uid=uid_of(held))
    async with asyncio.timeout(_SETTLE * 2):
        while True:
            try:
                await fleet.client.get(PROMETHEUS_JMX_EXPORTER, key)
            except NotFound:
                return
            await asyncio.sleep(0.5)


async def _check_served(fleet: Fleet) -> list[str]:
    """Wait until all pods are served, and report pods that are not served or were harmed."""
    deadline = time.monotonic() + _SETTLE
    while True:
        pods = await fleet.list_pods()
        published = await _list_published(fleet.client, fleet.namespace)
        served = sorted(key_of(pod).name for pod in pods if _is_annotated(pod))
        if len(served) == len(pods) and published == served:
            break
        if time.monotonic() > deadline:
            return [f"of {len(pods)} pods, {served} are served and {published} published"]
        await asyncio.sleep(1.0)
    statuses = [status for pod in pods for status in pod["status"]["containerStatuses"]]
    return [
        f"container {status['containerID']} was restarted"
        for status in statuses
        if status["restartCount"]
    ]


async def _list_left(fleet: Fleet) -> list[str]:
    """Return what an exporter that is gone has left."""
    deadline = time.monotonic() + _SETTLE
    left: Sequence[str] = ()
    while time.monotonic() < deadline:
        services = await fleet.client.list(SERVICE, fleet.namespace)
        left = [
            *await _list_published(fleet.client, fleet.namespace),
            *(f"Service {key_of(each).name}" for each in services.items if _is_ours(each)),
            *(key_of(pod).name for pod in await fleet.list_pods() if _is_annotated(pod)),
        ]
        if not left:
            break
        await asyncio.sleep(1.0)
    return [f"left behind: {each}" for each in left]


async def _list_published(client: Client, namespace: str) -> list[str]:
    slices = await client.list(ENDPOINT_SLICE, namespace)
    return sorted(
        endpoint["targetRef"]["name"]
        for each in slices.items
        if _is_ours(each)
        for endpoint in each.get("endpoints") or []
    )


def _is_ours(manifest: Manifest) -> bool:
    owners = manifest["metadata"].get("ownerReferences") or []
    return any(owner["kind"] == PROMETHEUS_JMX_EXPORTER.kind for owner in owners)


def _is_annotated(pod: Manifest) -> bool:
    return PORT in (pod["metadata"].get("annotations") or {})
