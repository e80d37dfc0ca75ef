"""The example on a real API server: the server enforces its rules, and the operator works there."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.client import Client
from libs.common.crd import build_crd, lint_crd
from libs.common.errors import Invalid, NotFound
from libs.common.kinds import CRD, SECRET, Key, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.examples.clustersecrets.api import CLUSTER_SECRET, ClusterSecret
from libs.examples.clustersecrets.controller import OPERATOR

pytestmark = pytest.mark.apiserver

DATA = {"password": "c2VjcmV0"}


@pytest.fixture
async def client(kube_client: Client) -> Client:
    """Serve ClusterSecrets."""
    await kube_client.apply(CRD, build_crd(ClusterSecret), field_manager="test")
    async with asyncio.timeout(120):
        while True:
            try:
                await kube_client.list(CLUSTER_SECRET)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return kube_client


def test_crd_follows_the_conventions() -> None:
    assert lint_crd(ClusterSecret) == []


async def test_spec_that_contradicts_itself_is_refused(client: Client) -> None:
    source = {"namespace": "default", "name": "source"}
    for spec in ({"data": DATA, "valueFrom": source}, {}):
        with pytest.raises(Invalid, match="set either data or valueFrom"):
            await client.create(CLUSTER_SECRET, build_object(CLUSTER_SECRET, "bad", spec=spec))


async def test_secret_is_created_and_restored(
    client: Client, kube_apiserver: ControlPlane, kube_namespace: str
) -> None:
    spec = {"data": DATA, "matchNamespaces": [f"{kube_namespace}$"]}
    key = Key(kube_namespace, kube_namespace)
    async with OperatorHarness(OPERATOR, kube_apiserver.config, watch_namespaces="*") as harness:
        await client.create(CLUSTER_SECRET, build_object(CLUSTER_SECRET, key.name, spec=spec))
        await harness.converged()
        await client.patch(SECRET, key, {"data": {"password": "Y2hhbmdlZA=="}})
        await harness.converged()

        assert (await client.get(SECRET, key))["data"] == DATA
        with pytest.raises(Invalid, match="immutable"):
            await client.patch(CLUSTER_SECRET, Key("", key.name), {"spec": {"type": "other"}})
