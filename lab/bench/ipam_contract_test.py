"""The IPAM provider contract of Cluster API, with its own CRDs on a real API server."""

from __future__ import annotations

import pytest

from lab.bench import ipam_peer
from lab.bench.ipam import build_pool, build_request
from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import Key, build_object, uid_of
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.contracts.cluster_api import CLUSTER, IP_ADDRESS, IP_ADDRESS_CLAIM
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from tools.cluster.errors import ToolError


async def install(client: Client) -> None:
    """Serve the kinds of Cluster API as its Go module has them."""
    try:
        await ipam_peer.install(client)
    except ToolError as err:
        pytest.skip(f"the CRDs of Cluster API cannot be downloaded: {err}")


@pytest.mark.apiserver
async def test_schemas_of_cluster_api_accept_what_ipam_writes(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    """The server prunes fields that a schema lacks, so each field is looked at afterwards."""
    await install(kube_client)
    await serve(kube_client, *RESOURCES)
    pool = build_pool(kube_namespace, "203.0.113.0/26")
    pool["spec"] |= {"gateway": "203.0.113.1", "realm": "capi"}
    await kube_client.create(IP_POOL, pool)
    manifest = build_request("node", kube_namespace, kube_namespace)
    manifest["spec"]["clusterName"] = "tenant"
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "any"}
    spec = {"infrastructureRef": reference}
    await kube_client.create(CLUSTER, build_object(CLUSTER, "tenant", kube_namespace, spec=spec))
    claim = await kube_client.create(IP_ADDRESS_CLAIM, manifest)
    key = Key(kube_namespace, "node")
    async with OperatorHarness(
        OPERATOR, kube_apiserver.config, watch_namespaces=(kube_namespace,), cluster_api=True
    ) as harness:
        await harness.converged()
        held = await kube_client.get(IP_ADDRESS, key)
        assert held["spec"] == {
            "address": "203.0.113.2",
            "claimRef": {"name": "node"},
            "gateway": "203.0.113.1",
            "poolRef": {"apiGroup": IP_POOL.group, "kind": IP_POOL.kind, "name": kube_namespace},
            "prefix": 17,
        }
        shown = (await kube_client.get(IP_ADDRESS_CLAIM, key))["status"]
        assert shown["addressRef"] == {"name": "node"}
        (ready,) = shown["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "Ready")
        assert ready["observedGeneration"] == 1

        await kube_client.delete(IP_ADDRESS_CLAIM, key, uid=uid_of(claim))
        await harness.converged()
        for kind in (IP_ADDRESS_CLAIM, IP_ADDRESS):
            with pytest.raises(NotFound):
                await kube_client.get(kind, key)
