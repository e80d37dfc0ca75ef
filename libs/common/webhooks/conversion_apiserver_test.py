"""Conversion and migration on a real API server: from one version to two, and back to one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.clock import SystemClock
from libs.common.crd import build_crd
from libs.common.errors import ApiError, Invalid
from libs.common.kinds import CRD, SECRET, Key, Kind, Manifest, build_object, key_of
from libs.common.labels import CONVERSION_DATA
from libs.common.migration import StorageMigration
from libs.common.settings.addresses import BindAddress
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.ports import find_free_port
from libs.common.testing.widget_versions import (
    CONVERSION,
    WIDGET,
    WIDGET_V1ALPHA1,
    Widget,
    WidgetV1alpha1,
)
from libs.common.webhooks.keeper import CertificateKeeper
from libs.common.webhooks.server import AdmissionServer
from libs.common.webhooks.trust import TrustingObject

pytestmark = pytest.mark.apiserver

_WAIT_SECONDS = 120.0
_CRD_KEY = Key("", WIDGET.resource)


def build_first_crd() -> Manifest:
    """Build the CRD before v1 existed."""
    crd = build_crd(WidgetV1alpha1, Widget)
    first = crd["spec"]["versions"][0]
    crd["spec"]["versions"] = [{**first, "storage": True}]
    return crd


def build_second_crd(port: int) -> Manifest:
    """Build the CRD with both versions, as the chart renders it: without a CA bundle."""
    crd = build_crd(*CONVERSION.models)
    url = f"https://127.0.0.1:{port}{CONVERSION.path}"
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": url}}
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return crd


async def eventually[T](call: Callable[[], Awaitable[T]]) -> T:
    """Call until the API server, which learns of a CRD some moments later, returns no error."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            with contextlib.suppress(ApiError):
                return await call()
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def serve(client: Client, namespace: str, port: int) -> AsyncIterator[CertificateKeeper]:
    """Serve the conversion as a replica does: with a certificate that it creates and publishes."""
    keeper = CertificateKeeper(
        client,
        SystemClock(),
        Key(namespace, "hook"),
        [TrustingObject(CRD, WIDGET.resource)],
        ["127.0.0.1"],
    )
    certificate = await keeper.ensure()
    address = BindAddress("127.0.0.1", port)
    async with AdmissionServer({}, address, certificate, conversions=[CONVERSION]):
        yield keeper


async def create(client: Client, kind: Kind, namespace: str, name: str, **spec: object) -> None:
    await eventually(lambda: client.create(kind, build_object(kind, name, namespace, spec=spec)))


async def read_stored(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """Read from etcd in which version each Widget of a namespace is stored."""

    def encode(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    prefix = f"/registry/{WIDGET.group}/{WIDGET.plural}/{namespace}/"
    body = {"key": encode(prefix), "range_end": encode(prefix[:-1] + "0")}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{plane.etcd_url}/v3/kv/range", json=body) as response:
            entries = (await response.json()).get("kvs", [])
    objects = [json.loads(base64.b64decode(each["value"])) for each in entries]
    return {each["metadata"]["name"]: each["apiVersion"].rpartition("/")[2] for each in objects}


async def test_kind_moves_from_one_version_to_the_next(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    client, namespace, port = kube_client, kube_namespace, find_free_port()
    old, new = Key(namespace, "old"), Key(namespace, "new")
    await client.create(SECRET, build_object(SECRET, "hook", namespace))
    await client.apply(CRD, build_first_crd(), field_manager="chart")
    await create(client, WIDGET_V1ALPHA1, namespace, "old", replicas=5, note="keep")

    await client.apply(CRD, build_second_crd(port), field_manager="chart")
    async with serve(client, namespace, port) as keeper:
        # An object of the old version is read in the new one.
        found = await eventually(lambda: client.get(WIDGET, old))
        assert found["spec"] == {"count": 5, "size": "1Gi", "color": "Blue"}

        # An object of the new version is read and changed in the old one, without loss.
        await create(client, WIDGET, namespace, "new", count=1, color="Red", size="1536Mi")
        older = await client.get(WIDGET_V1ALPHA1, new)
        assert older["spec"] == {"replicas": 1, "sizeGiB": 1}
        older["spec"]["replicas"] = 7
        await client.replace(WIDGET_V1ALPHA1, older)
        newer = await client.get(WIDGET, new)
        assert newer["spec"] == {"count": 7, "color": "Red", "size": "1536Mi"}
        assert CONVERSION_DATA not in newer["metadata"].get("annotations", {})

        # Server-side apply in the old version owns fields of the old version only.
        applied = build_object(WIDGET_V1ALPHA1, "new", namespace, spec={"replicas": 8})
        await client.apply(WIDGET_V1ALPHA1, applied, field_manager="user")
        assert (await client.get(WIDGET, new))["spec"] == {**newer["spec"], "count": 8}

        for kind in (WIDGET, WIDGET_V1ALPHA1):
            listed = await client.list(kind, namespace)
            assert [key_of(each) for each in listed.items] == [new, old]
            assert {each["apiVersion"] for each in listed.items} == {kind.api_version}

        # An upgrade of the chart does not drop the CA bundle.
        trusted = (await keeper.ensure()).trusted
        crd = await client.apply(CRD, build_second_crd(port), field_manager="chart")
        bundle = crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
        assert base64.b64decode(bundle) == trusted

        # The version of stored objects cannot be removed before they are migrated.
        assert await read_stored(kube_apiserver, namespace) == {"old": "v1alpha1", "new": "v1"}
        single = {**build_second_crd(port), "spec": {**build_second_crd(port)["spec"]}}
        single["spec"]["versions"] = build_crd(Widget)["spec"]["versions"]
        with pytest.raises(Invalid, match=r"storedVersions"):
            await client.apply(CRD, single, field_manager="chart")
        versions = {key: await read_version(client, key) for key in (old, new)}
        migration = StorageMigration(
            client, SystemClock(), WIDGET, per_second=1000.0, settle_seconds=0.0
        )
        assert await migration.migrate()
        assert await read_stored(kube_apiserver, namespace) == {"old": "v1", "new": "v1"}
        assert await read_version(client, old) != versions[old]
        assert await read_version(client, new) == versions[new], "it is in the right version"
        assert (await client.get(CRD, _CRD_KEY))["status"]["storedVersions"] == ["v1"]

        # A field that only the old version has survives the migration.
        assert (await client.get(WIDGET_V1ALPHA1, old))["spec"]["note"] == "keep"

        # The CA bundle belongs to the operator, so the chart cannot delete the conversion.
        del single["spec"]["conversion"]
        with pytest.raises(Invalid, match="strategy"):
            await client.apply(CRD, single, field_manager="chart")
        await client.patch(CRD, _CRD_KEY, {"spec": {"conversion": None}})
        await client.apply(CRD, single, field_manager="chart")

    # Without the old version, nobody calls the webhook.
    found = await eventually(lambda: client.get(WIDGET, old))
    assert found["spec"] == {"count": 5, "size": "1Gi", "color": "Blue"}


async def read_version(client: Client, key: Key) -> str:
    version: str = (await client.get(WIDGET, key))["metadata"]["resourceVersion"]
    return version
