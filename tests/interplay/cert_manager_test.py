"""cert-manager issues and renews the certificate of a webhook, and no pod misses the webhook.

The controllers of cert-manager and its CA injector run as in a cluster. The program in
`tools/cluster/cert_manager` starts them, because the command of cert-manager is in no Go module.
kube-apiserver calls the webhook by the name of its Service. Two replicas of jmxexporter run in this
process, with the permissions of the chart.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from libs.common.client import Client
from libs.common.clock import SystemClock
from libs.common.conditions import render_time
from libs.common.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    SECRET,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.helm import HELM_VARIABLE
from libs.common.testing.processes import stop_process
from libs.common.testing.serving import serve
from libs.common.webhooks import serve as serving
from libs.common.webhooks.bundles import is_trusted, parse_bundle
from operators.jmxexporter.api import RESOURCES
from tests.interplay.webhook_release import SERVICE, WebhookRelease, read_readiness
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress
from tools.cluster.versions import CERT_MANAGER_MODULE

_PATIENCE: Final = 240.0
_LOOK_SECONDS: Final = 0.5
_HOLDER: Final = f"{SERVICE}-tls"
_CERTIFICATE: Final = Kind("cert-manager.io", "v1", "Certificate", "certificates")
_ISSUER: Final = Kind("cert-manager.io", "v1", "Issuer", "issuers")
_CERT_MANAGER: Final = "cert-manager"


@pytest.fixture(scope="module")
def program() -> Path:
    """Build the controllers of cert-manager, which takes some minutes for the first time."""
    try:
        return ensure_tool("cert-manager", open_progress(_CERT_MANAGER))
    except ToolError as err:
        pytest.skip(f"cert-manager is not available: {err}")


@pytest.fixture(scope="module")
def plane(program: Path) -> Iterator[ControlPlane]:
    """Run an API server that finds Services by their endpoints, since no kube-proxy runs here."""
    try:
        plane = ControlPlane(apiserver_args=("--enable-aggregator-routing=true",))
    except AssetsMissing as err:
        pytest.skip(str(err))
    with plane:
        yield plane


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    """Connect with all permissions, and install the CRDs of both projects."""
    folder = ensure_go(open_progress(_CERT_MANAGER)).module_directory(CERT_MANAGER_MODULE)
    paths = sorted((folder / "deploy" / "crds").glob("*.yaml"))
    async with Client(plane.config, user_agent="test") as client:
        await serve(client, *RESOURCES, *(yaml.safe_load(path.read_text()) for path in paths))
        yield client


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find helm, and let replicas look at the Secret more often."""
    try:
        monkeypatch.setenv(HELM_VARIABLE, str(ensure_tool("helm")))
    except ToolError as err:
        pytest.skip(f"helm is not available: {err}")
    monkeypatch.setattr(serving, "_LOOK_SECONDS", _LOOK_SECONDS)


@contextmanager
def run_cert_manager(program: Path, kubeconfig: Path) -> Iterator[None]:
    """Run the controllers and the CA injector; their log stands next to the kubeconfig."""
    environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    with (kubeconfig.parent / "cert-manager.log").open("ab") as log:
        process = subprocess.Popen([program], env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            stop_process(process, 30)


async def eventually(probe: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not await probe():
            await asyncio.sleep(0.05)


async def renew(client: Client, key: Key) -> None:
    """Request a renewal as `cmctl renew` does: by the condition Issuing."""
    certificate = await client.get(_CERTIFICATE, key)
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "lastTransitionTime": render_time(SystemClock().now()),
    }
    status = certificate["status"]
    others = [each for each in status["conditions"] if each["type"] != "Issuing"]
    body = {**certificate, "status": {**status, "conditions": [*others, condition]}}
    await client.raw("PUT", _CERTIFICATE.path(key.namespace, key.name, "status"), body)


async def read_certificate(client: Client, namespace: str) -> bytes:
    secret = await client.get(SECRET, Key(namespace, _HOLDER))
    return base64.b64decode(secret["data"]["tls.crt"])


async def read_configuration(client: Client, namespace: str) -> Manifest:
    return await client.get(MUTATING_WEBHOOK_CONFIGURATION, Key("", f"jmxexporter-{namespace}"))


async def read_bundle(client: Client, namespace: str) -> bytes:
    (webhook,) = (await read_configuration(client, namespace))["webhooks"]
    return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))


async def see(harness: OperatorHarness) -> bytes:
    """Return the certificate that a replica shows."""
    settings: Any = harness.manager.settings
    host, _, port = settings.webhook_bind_address.rpartition(":")
    return (await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))).encode()


@asynccontextmanager
async def creating_pods(release: WebhookRelease) -> AsyncIterator[list[bool]]:
    """Create pods all the time; the list tells of each whether the webhook prepared it."""
    outcomes: list[bool] = []

    async def create() -> None:
        while True:
            outcomes.append(await release.is_pod_prepared())
            await asyncio.sleep(0.02)

    task = asyncio.create_task(create())
    try:
        yield outcomes
        assert not task.done() or task.exception() is None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def is_serving(client: Client, replica: OperatorHarness, before: bytes = b"") -> bool:
    """Return whether a replica shows the certificate of the Secret, which is a new one."""
    namespace = str(replica.manager.settings.pod_namespace)
    wanted = await read_certificate(client, namespace)
    bundle = await read_bundle(client, namespace)
    try:
        shown = await see(replica)
    except ConnectionRefusedError:
        return False
    return wanted != before and shown == wanted and is_trusted(wanted, bundle)


async def has_more(outcomes: Sequence[bool], number: int) -> bool:
    return len(outcomes) >= number


async def test_pods_reach_the_webhook_through_every_renewal(
    plane: ControlPlane,
    client: Client,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the self-signed Issuer of the chart, each renewal replaces the authority as well."""
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig")
    values = {"webhooks": {"certManager": {"enabled": True}}}
    release = WebhookRelease(plane, client, str(kubeconfig), "metrics", values)
    await release.install(monkeypatch)
    allowed = {
        verb
        for verb in ("get", "list", "create", "update", "patch", "delete")
        if await release.review_access(verb, _HOLDER)
    }
    assert allowed == {"get"}
    async with release.run("a", "b") as replicas:
        await release.select_pods()

        async def is_awaited() -> bool:
            return f"Secret metrics/{_HOLDER} does not exist" in await read_readiness(replicas[0])

        await eventually(is_awaited)
        with run_cert_manager(program, kubeconfig):
            await eventually(release.is_pod_prepared)
            await asyncio.gather(*(eventually(partial(is_serving, client, r)) for r in replicas))

            async with creating_pods(release) as outcomes:
                for _ in range(3):
                    before = await read_certificate(client, "metrics")
                    await renew(client, Key("metrics", SERVICE))
                    for replica in replicas:
                        await eventually(partial(is_serving, client, replica, before))
                    await eventually(partial(has_more, outcomes, len(outcomes) + 10))
            assert all(outcomes)

        secret = await client.get(SECRET, Key("metrics", _HOLDER))
        writers = {each["manager"] for each in secret["metadata"]["managedFields"]}
        assert {name.partition("-")[0] for name in writers} == {"cert"}, writers


async def test_authority_of_the_company_stays_and_the_injector_may_publish_it(
    plane: ControlPlane,
    client: Client,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The annotation makes the CA injector write the bundle; the operator then leaves it alone."""
    home = "injected"
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig")
    cert_manager = {"enabled": True, "issuerRef": {"name": "company"}}
    values = {
        "webhooks": {"certManager": cert_manager},
        "commonAnnotations": {"cert-manager.io/inject-ca-from": f"{home}/{SERVICE}"},
    }
    release = WebhookRelease(plane, client, str(kubeconfig), home, values)
    await release.install(monkeypatch)
    await create_authority(client, home)
    with run_cert_manager(program, kubeconfig):
        async with release.run("a", "b") as replicas:
            await release.select_pods()
            await eventually(release.is_pod_prepared)
            for replica in replicas:
                await eventually(partial(is_serving, client, replica))
            authority = parse_bundle(await read_bundle(client, home))
            configuration = await read_configuration(client, home)

            async with creating_pods(release) as outcomes:
                before = await read_certificate(client, home)
                await renew(client, Key(home, SERVICE))
                for replica in replicas:
                    await eventually(partial(is_serving, client, replica, before))

            assert len(outcomes) > 10
            assert all(outcomes)
            assert [str(each.subject.rfc4514_string()) for each in authority] == ["CN=company"]
            # Neither the renewal nor one of the two writers has changed it.
            assert await read_configuration(client, home) == configuration
            fields = configuration["metadata"]["managedFields"]
            writers = [each["manager"] for each in fields if "f:caBundle" in json.dumps(each)]
            assert [name.partition("-")[0] for name in writers] == ["cert"], writers


async def create_authority(client: Client, namespace: str) -> None:
    """Create the Issuer `company`, with an authority that cert-manager issues as well."""
    own = build_object(_ISSUER, "own", namespace, spec={"selfSigned": {}})
    await client.create(_ISSUER, own)
    spec = {
        "isCA": True,
        "commonName": "company",
        "secretName": "company",
        "issuerRef": {"name": "own", "kind": "Issuer"},
    }
    await client.create(_CERTIFICATE, build_object(_CERTIFICATE, "company", namespace, spec=spec))
    company = build_object(_ISSUER, "company", namespace, spec={"ca": {"secretName": "company"}})
    await client.create(_ISSUER, company)


async def test_no_pod_misses_the_webhook_when_cert_manager_takes_over(
    plane: ControlPlane,
    client: Client,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replicas of the previous release serve the operator's own certificate meanwhile."""
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig")
    release = WebhookRelease(plane, client, str(kubeconfig), "changing", {})
    await release.install(monkeypatch)
    async with release.run("before") as (before,):
        await release.select_pods()
        await eventually(release.is_pod_prepared)
        own = await see(before)
        with run_cert_manager(program, kubeconfig):
            async with creating_pods(release) as outcomes:
                values = {"webhooks": {"certManager": {"enabled": True}}}
                await release.upgrade(monkeypatch, values)
                async with release.run("after") as (after,):
                    await eventually(partial(is_serving, client, after))
                    assert await see(before) == own
                    count = len(outcomes)
                    await eventually(partial(is_longer, outcomes, count + 50))
                    assert all(outcomes)


async def is_longer(items: list[bool], length: int) -> bool:
    return len(items) > length
