"""Releases of jmxexporter whose webhook a real API server calls, through its Service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    Key,
    Manifest,
    build_object,
)
from libs.common.labels import SERVICE_NAME
from libs.common.testing.access import is_allowed
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.helm import CHARTS, run_helm, with_registry
from libs.common.testing.ports import find_free_port
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.startup import VOLUME

SERVICE: Final = "jmxexporter-webhook"
_CHART: Final = "jmxexporter"
_TOKEN_SECONDS: Final = 7200


def find_address() -> str:
    """Return an address of this machine that an EndpointSlice may contain.

    Raises:
        OSError: There is only the loopback address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent; the kernel only chooses the address of the sender.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@dataclass
class WebhookRelease:
    """A release of the chart, and its replicas in this process.

    Args:
        plane: API server.
        client: Connection with all permissions.
        kubeconfig: The same for helm.
        home: Namespace of the release.
        values: Values of the release.
    """

    plane: ControlPlane
    client: Client
    kubeconfig: str
    home: str
    values: Manifest
    watched: str = ""
    config: ConnectionConfig = field(init=False)
    pods: int = 0

    async def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Install the chart, and set the variables of its Deployment as a kubelet does."""
        self.watched = f"{self.home}-shop"
        labels = {"banzaicloud.com/jmx-startup": "enabled"}
        for name in (self.home, self.watched):
            namespace = build_object(NAMESPACE, name, metadata={"labels": labels})
            await self.client.create(NAMESPACE, namespace)
        await self.upgrade(monkeypatch, self.values)
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        path = SERVICE_ACCOUNT.path(self.home, _CHART, "token")
        response = await self.client.raw("POST", path, request)
        self.config = self.plane.config_for(response["status"]["token"])

    async def upgrade(self, monkeypatch: pytest.MonkeyPatch, values: Manifest) -> None:
        """Change the values; replicas that start afterwards have the new variables."""
        values = {
            "settings": {"webhooks": True},
            "watch": {"namespaces": [self.watched]},
            # Only one release in a cluster can own them.
            "crds": {"install": False},
            **values,
        }
        await asyncio.to_thread(
            run_helm,
            *("upgrade", _CHART, str(CHARTS / _CHART), "--install", "--namespace", self.home),
            *("--kubeconfig", self.kubeconfig, "--values", "-"),
            stdin=json.dumps(with_registry(values)),
        )
        deployment = await self.client.get(DEPLOYMENT, Key(self.home, _CHART))
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        for each in container["env"]:
            if "value" in each:
                monkeypatch.setenv(each["name"], each["value"])

    @contextlib.asynccontextmanager
    async def run(self, *names: str) -> AsyncIterator[list[OperatorHarness]]:
        """Run replicas with the permissions of the chart.

        The Service of the webhooks leads to those that are ready, as the endpoint controller does.
        """
        address = find_address()
        tasks: list[asyncio.Task[None]] = []
        async with contextlib.AsyncExitStack() as stack:
            harnesses = []
            for name in names:
                port = find_free_port()
                harness = OperatorHarness(
                    OPERATOR,
                    self.config,
                    admin=self.plane.config,
                    leader_elect=True,
                    pod_name=name,
                    pod_namespace=self.home,
                    webhook_bind_address=f"{address}:{port}",
                )
                await harness.start(wait=False)
                stack.push_async_exit(harness)
                tasks.append(asyncio.create_task(self._route(harness, name, address, port)))
                harnesses.append(harness)
            try:
                yield harnesses
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def select_pods(self) -> None:
        """Create an exporter that prepares new pods."""
        await self.client.create(CONFIG_MAP, build_object(CONFIG_MAP, "rules", self.watched))
        spec = {
            "labelSelector": {"app": "shop"},
            "config": {"configMapName": "rules"},
            "port": 9400,
            "startup": "NewPods",
        }
        exporter = build_object(PROMETHEUS_JMX_EXPORTER, "shop", self.watched, spec=spec)
        await self.client.create(PROMETHEUS_JMX_EXPORTER, exporter)

    async def is_pod_prepared(self) -> bool:
        """Create a pod; return whether the API server reached and trusted the webhook."""
        self.pods += 1
        pod = build_object(
            POD,
            f"shop-{self.pods}",
            self.watched,
            metadata={"labels": {"app": "shop"}},
            spec={"containers": [{"name": "main", "image": "shop"}]},
        )
        created = await self.client.create(POD, pod)
        return VOLUME in {each["name"] for each in created["spec"].get("volumes", ())}

    async def review_access(self, verb: str, secret: str) -> bool:
        """Return whether the service account may do something to a Secret."""
        attributes = {"verb": verb, "resource": "secrets", "name": secret, "namespace": self.home}
        return await is_allowed(self.client, Key(self.home, _CHART), attributes)

    async def _route(self, harness: OperatorHarness, name: str, address: str, port: int) -> None:
        while await read_readiness(harness):
            await asyncio.sleep(0.02)
        endpoints = build_object(
            ENDPOINT_SLICE,
            f"{SERVICE}-{name}",
            self.home,
            metadata={"labels": {SERVICE_NAME: SERVICE}},
            addressType="IPv4",
            ports=[{"name": "webhook", "port": port, "protocol": "TCP"}],
            endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
        )
        await self.client.create(ENDPOINT_SLICE, endpoints)


async def read_readiness(harness: OperatorHarness) -> str:
    """Return why a replica is not ready, as the kubelet sees it; empty if it is ready."""
    url = f"http://127.0.0.1:{harness.manager.health.probe_port}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return "" if response.status == 200 else await response.text()
