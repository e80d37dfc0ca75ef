"""Tests of who may read /metrics: over HTTPS, with reviews by a real API server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.health import HealthServer
from libs.common.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    SERVICE_ACCOUNT,
    build_object,
)
from libs.common.metrics import Metrics
from libs.common.metrics_access import MetricsAccess
from libs.common.runtime.assembly import build_health_server
from libs.common.settings import CommonSettings
from libs.common.testing.apiserver import ControlPlane
from libs.common.tls import build_server_context
from libs.common.webhooks.certificates import Certificate, issue

pytestmark = pytest.mark.apiserver


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def make_reader(client: Client, namespace: str, name: str, *, allowed: bool) -> str:
    """Make a service account; return a token of it."""
    await client.create(SERVICE_ACCOUNT, build_object(SERVICE_ACCOUNT, name, namespace))
    if allowed:
        role = f"{namespace}-{name}"
        rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        await client.create(CLUSTER_ROLE, build_object(CLUSTER_ROLE, role, rules=[rule]))
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        reference = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": role}
        binding = build_object(CLUSTER_ROLE_BINDING, role, subjects=[subject], roleRef=reference)
        await client.create(CLUSTER_ROLE_BINDING, binding)
    response = await client.raw(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    return str(response["status"]["token"])


async def scrape(
    server: HealthServer, token: str = "", trusted: ssl.SSLContext | None = None
) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(
            f"https://127.0.0.1:{server.metrics_port}/metrics",
            ssl=trusted or _trust_everybody(),
            server_hostname="localhost",
        ) as response,
    ):
        return response.status, await response.text()


def _trust_everybody() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.fixture
async def server(kube_apiserver: ControlPlane) -> AsyncIterator[HealthServer]:
    settings = CommonSettings(
        metrics_secure=True,
        metrics_bind_address="127.0.0.1:0",
        health_probe_bind_address="127.0.0.1:0",
    )
    async with build_health_server(
        settings,
        Metrics(process=False),
        lambda: Client(kube_apiserver.config, user_agent="test"),
    ) as server:
        yield server


async def test_only_a_permitted_service_account_reads_metrics(
    server: HealthServer, kube_client: Client, kube_namespace: str
) -> None:
    reader = await make_reader(kube_client, kube_namespace, "prometheus", allowed=True)
    stranger = await make_reader(kube_client, kube_namespace, "stranger", allowed=False)

    status, text = await scrape(server, reader)
    assert status == 200
    assert text.endswith("# EOF\n") or "# HELP" in text
    assert await scrape(server, stranger) == (
        403,
        "the user of the token may not get the non-resource URL /metrics\n",
    )
    assert await scrape(server, "forged") == (401, "send a valid bearer token\n")
    assert await scrape(server) == (401, "send a valid bearer token\n")


async def test_probes_stay_open_to_the_kubelet(server: HealthServer) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.probe_port}/readyz") as response,
    ):
        assert await response.text() == "ok"


async def test_right_that_is_taken_away_ends_after_a_minute(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    clock = Hands()
    token = await make_reader(kube_client, kube_namespace, "prometheus", allowed=True)
    async with Client(kube_apiserver.config, user_agent="test") as client:
        access = MetricsAccess(client, clock=clock)
        assert await access.decide(f"Bearer {token}") == 200
        account = f"/api/v1/namespaces/{kube_namespace}/serviceaccounts/prometheus"
        await kube_client.raw("DELETE", account)

        clock.seconds = 59
        assert await access.decide(f"Bearer {token}") == 200
        # The API server itself remembers a token for some seconds.
        status = 200
        async with asyncio.timeout(60):
            while status == 200:
                clock.seconds += 61
                status = await access.decide(f"Bearer {token}")
        assert status == 401


async def test_unreachable_api_server_allows_nobody(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    """An operator without the permission for reviews gets 403 of the API server."""
    reader = await make_reader(kube_client, kube_namespace, "prometheus", allowed=True)
    unprivileged = kube_apiserver.config_for(reader)
    async with Client(unprivileged, user_agent="test") as client:
        assert await MetricsAccess(client).decide(f"Bearer {reader}") == 500


async def test_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    first = _write(tmp_path)
    context = build_server_context(str(tmp_path))
    async with HealthServer(
        Metrics(process=False), "127.0.0.1:0", "127.0.0.1:0", tls=context
    ) as server:
        assert (await scrape(server, trusted=_trust(first)))[0] == 200

        (tmp_path / "tls.key").write_text("half a file")
        assert (await scrape(server, trusted=_trust(first)))[0] == 200
        second = _write(tmp_path)
        assert (await scrape(server, trusted=_trust(second)))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await scrape(server, trusted=_trust(first))


def _write(directory: Path) -> Certificate:
    made = issue(["localhost"], datetime.now(UTC))
    (directory / "tls.crt").write_bytes(made.certificate)
    (directory / "tls.key").write_bytes(made.key)
    return made


def _trust(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate.trusted.decode())
