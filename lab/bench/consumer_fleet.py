"""What many PulsarConsumers cost the operator that keeps them, from nothing and at rest.

The operator is a separate process with a real kube-apiserver without kubelets; the broker is the
recorded one of the tests, which answers immediately and costs the operator what a real one does.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.bench.counters import count_writes, subtract
from lab.bench.processes import OperatorProcess, read_usage
from libs.common.client import Client
from libs.common.conditions import is_true
from libs.common.kinds import DEPLOYMENT, Manifest, key_of
from libs.common.testing.apiserver import ASSETS_VARIABLE, ControlPlane
from libs.common.testing.serving import serve
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.samples import build_manifest, build_rollout
from tools.cluster.binaries import ensure_assets

_AT_ONCE: Final = 32
_PATIENCE: Final = 300.0
_BACKLOG: Final = 150
_FLOOD: Final = 10_000
"""A backlog for which all consumers are asked for that may be."""
_MOST: Final = 5
_FLOODED: Final = 100
"""How many PulsarConsumers get that backlog in one moment, spread over all."""
_SETTLE_SECONDS: Final = 40.0
"""Longer than a poll: what the first looks bring about is over then."""

SCENARIOS: Final[Mapping[str, Mapping[str, Any]]] = {
    "status only, polls every 30 s": {},
    "autoscaling, polls every 15 s": {"replicas": None, "autoscaling": {"maxReplicas": _MOST}},
}
"""Fields of each PulsarConsumer in addition to the original fields of the kind."""


@dataclass(frozen=True, slots=True)
class FleetCost:
    """The cost of one scenario.

    Attributes:
        scenario: What the PulsarConsumers were.
        seconds: From the first create until all are Ready.
        cpu_seconds: CPU time of the operator until then.
        rest_cpu: Seconds of CPU time in a minute at rest.
        rest_writes: Writes to the API server in a minute at rest, by verb and resource.
        rest_looks: Requests to the broker in a minute at rest.
        memory_mib: Resident memory at rest.
        waits: Seconds from a backlog at the broker to more replicas of the Deployment, of each
            PulsarConsumer that was given one; none without autoscaling.
    """

    scenario: str
    seconds: float
    cpu_seconds: float
    rest_cpu: float
    rest_writes: Mapping[str, float]
    rest_looks: float
    memory_mib: float
    waits: Sequence[float] = ()


def measure_fleets(count: int, rest_seconds: float) -> list[FleetCost]:
    """Measure each scenario with an API server and an operator of its own."""
    os.environ.setdefault(ASSETS_VARIABLE, str(ensure_assets()))
    found = []
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as name, ControlPlane() as plane:
            found.append(asyncio.run(_measure(plane, Path(name), scenario, count, rest_seconds)))
    return found


async def _measure(
    plane: ControlPlane, folder: Path, scenario: str, count: int, rest_seconds: float
) -> FleetCost:
    settings = {"WATCH_NAMESPACES": "default", "ALLOW_LOOPBACK_BROKERS": "true"}
    broker = RecordedBroker()
    names = [f"consumer-{number}" for number in range(count)]
    broker.topics = {
        name: RecordedTopic(subscriptions={"my-subscription": _BACKLOG}) for name in names
    }
    kubeconfig = plane.write_kubeconfig(folder / "kubeconfig")
    async with Client(plane.config, user_agent="bench") as client:
        await serve(client, PulsarConsumer)
        operator = OperatorProcess("pulsarconsumer", kubeconfig, settings, folder / "operator.log")
        with broker, operator as process:
            began = time.monotonic()
            await _create(client, broker, names, SCENARIOS[scenario])
            await _await_ready(client, count)
            seconds, used = time.monotonic() - began, read_usage(process.pid)
            await asyncio.sleep(_SETTLE_SECONDS)
            await _run_deployments(client)
            before, writes = read_usage(process.pid), await count_writes(plane.config)
            looks = len(broker.requests)
            await asyncio.sleep(rest_seconds)
            after, later = read_usage(process.pid), await count_writes(plane.config)
            looks, minute = len(broker.requests) - looks, 60 / rest_seconds
            scaled = "autoscaling" in SCENARIOS[scenario]
            step = max(1, count // _FLOODED)
            waits = await _flood(client, broker, names[::step]) if scaled else []
            return FleetCost(
                scenario,
                seconds,
                used.cpu_seconds,
                (after.cpu_seconds - before.cpu_seconds) * minute,
                {name: number * minute for name, number in subtract(later, writes).items()},
                looks * minute,
                after.memory_mib,
                waits,
            )


async def _create(
    client: Client, broker: RecordedBroker, names: list[str], spec: Mapping[str, Any]
) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def create(name: str) -> None:
        manifest = build_manifest(name, topic=name, adminAddress=broker.address, **spec)
        async with turns:
            await client.create(PULSAR_CONSUMER, manifest)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(create(name))


async def _await_ready(client: Client, count: int) -> None:
    """Wait until all are Ready, and play the controller of Deployments meanwhile."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            await _run_deployments(client)
            held = (await client.list(PULSAR_CONSUMER, "default")).items
            if len([each for each in held if is_true(each, "Ready")]) == count:
                return
            await asyncio.sleep(1.0)


async def _run_deployments(client: Client) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def run(deployment: Manifest) -> None:
        status = build_rollout(deployment)
        if (deployment.get("status") or {}).get("readyReplicas", 0) == status["readyReplicas"]:
            return
        async with turns:
            key = key_of(deployment)
            await client.patch(DEPLOYMENT, key, {"status": status}, subresource="status")

    async with asyncio.TaskGroup() as group:
        for deployment in (await client.list(DEPLOYMENT, "default")).items:
            group.create_task(run(deployment))


async def _flood(client: Client, broker: RecordedBroker, names: Sequence[str]) -> list[float]:
    """Have many messages wait for some, and time how long each takes to more replicas."""
    for name in names:
        broker.topics[name].subscriptions["my-subscription"] = _FLOOD
    began = time.monotonic()
    waits: dict[str, float] = {}
    async with asyncio.timeout(_PATIENCE):
        while len(waits) < len(names):
            for held in (await client.list(DEPLOYMENT, "default")).items:
                name = held["metadata"]["name"]
                if name in names and held["spec"]["replicas"] == _MOST:
                    waits.setdefault(name, time.monotonic() - began)
            await asyncio.sleep(0.2)
    return list(waits.values())
