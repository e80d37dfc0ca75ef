"""The policies of a chart let an operator work in a namespace that denies all, and open no more.

kube-router enforces them with real packets between network namespaces (`lab.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.kinds import NETWORK_POLICY, POD, Key, Manifest, build_object
from libs.common.testing.helm import HELM_VARIABLE, render_chart
from tests.interplay.lab import Lab
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError

_PATIENCE: Final = 240.0
"""Seconds that a policy may take to reach the packets."""
_SYSTEM: Final = "kube-system"
_PROMETHEUS: Final = {"app": "prometheus"}


@pytest.fixture(autouse=True)
def helm(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv(HELM_VARIABLE, str(ensure_tool("helm")))
    except ToolError as err:
        pytest.skip(f"helm is not available: {err}")


@dataclass(frozen=True)
class Cluster:
    """Pods in the API and on a node of the lab."""

    client: Client
    lab: Lab

    async def add(
        self,
        name: str,
        namespace: str,
        labels: Mapping[str, str],
        ports: Sequence[int],
        names: Mapping[str, int] | None = None,
    ) -> str:
        """Run a pod that listens on some ports, and return its address."""
        declared = [{"name": each, "containerPort": port} for each, port in (names or {}).items()]
        containers = [{"name": "main", "image": "none", "ports": declared}]
        spec = {"nodeName": "node-1", "containers": containers}
        metadata = {"labels": dict(labels)}
        pod = build_object(POD, name, namespace, metadata=metadata, spec=spec)
        await self.client.create(POD, pod)
        place = f"{namespace}/{name}"
        addresses = await asyncio.to_thread(self.lab.add_pod, place, "node-1", ports)
        ips = [{"ip": each} for each in addresses]
        host = self.lab.address_of("node-1")
        status = {"phase": "Running", "hostIP": host, "podIP": addresses[0], "podIPs": ips}
        key = Key(namespace, name)
        await self.client.patch(POD, key, {"status": status}, subresource="status")
        return addresses[0]

    async def reaches(self, source: str, address: str, port: int) -> bool:
        """Return whether a pod can connect now."""
        return bool(await asyncio.to_thread(self.lab.ask, source, address, port))

    async def becomes(self, reachable: bool, source: str, address: str, port: int) -> None:
        """Wait until a pod can connect, or cannot."""
        async with asyncio.timeout(_PATIENCE):
            while await self.reaches(source, address, port) is not reachable:
                pass

    async def deny_all(self, namespace: str) -> None:
        """Deny every connection of a namespace, in both directions."""
        spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        denied = build_object(NETWORK_POLICY, "deny-all", namespace, spec=spec)
        await self.client.create(NETWORK_POLICY, denied)


def render_policies(namespace: str, server: str) -> list[Manifest]:
    policy: dict[str, Any] = {
        "enabled": True,
        "metricsFrom": [{"podSelector": {"matchLabels": _PROMETHEUS}}],
        "apiServer": {"cidrs": [f"{server}/32"], "ports": [6443]},
    }
    return render_chart(
        "podset",
        {"image": {"registry": "registry.example.com"}, "networkPolicy": policy},
        namespace=namespace,
        show_only=["NetworkPolicy"],
    )


def read_labels(component: str) -> dict[str, str]:
    """Return the labels by which the policies of the chart select a pod."""
    prefix = "app.kubernetes.io"
    names = {"name": "podset", "instance": "podset", "component": component}
    return {f"{prefix}/{name}": value for name, value in names.items()}


@pytest.mark.apiserver
async def test_operator_in_a_namespace_that_denies_all(
    plugin: Lab, kube_client: Client, kube_namespace: str
) -> None:
    await plugin.register(kube_client)
    cluster, home = Cluster(kube_client, plugin), kube_namespace
    names = {"metrics": 8080, "probes": 8081}
    operator = await cluster.add("operator", home, read_labels("operator"), [8080, 8081], names)
    await cluster.add("check", home, read_labels("test"), [8080])
    await cluster.add("prometheus", home, _PROMETHEUS, [8080])
    stranger = await cluster.add("stranger", home, {}, [53, 6443, 8080])
    dns = await cluster.add(f"dns-{home}", _SYSTEM, {"k8s-app": "kube-dns"}, [53, 8080])
    server = await cluster.add(f"server-{home}", _SYSTEM, {}, [6443, 8080])
    source = f"{home}/operator"

    # Without the policies of the chart, the operator reaches nothing, and nobody reaches it.
    await cluster.becomes(True, source, dns, 53)
    await cluster.deny_all(home)
    await cluster.becomes(False, source, dns, 53)
    await cluster.becomes(False, f"{home}/prometheus", operator, 8080)

    for policy in render_policies(home, server):
        await kube_client.create(NETWORK_POLICY, policy)
    await cluster.becomes(True, source, dns, 53)
    await cluster.becomes(True, source, server, 6443)
    # Prometheus is in the namespace, so it needs a policy of its own to send anything.
    out = {"podSelector": {"matchLabels": _PROMETHEUS}, "policyTypes": ["Egress"], "egress": [{}]}
    await kube_client.create(NETWORK_POLICY, build_object(NETWORK_POLICY, "out", home, spec=out))
    await cluster.becomes(True, f"{home}/prometheus", operator, 8080)
    # `helm test` reaches the probes, and nothing else.
    await cluster.becomes(True, f"{home}/check", operator, 8081)
    assert not await cluster.reaches(f"{home}/check", operator, 8080)

    for address, port in ((dns, 8080), (server, 8080), (stranger, 53), (stranger, 6443)):
        assert not await cluster.reaches(source, address, port), (address, port)
    assert not await cluster.reaches(f"{_SYSTEM}/server-{home}", operator, 8080)
    assert await cluster.reaches(f"{_SYSTEM}/server-{home}", operator, 8081)
