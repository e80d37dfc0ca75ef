"""The IPAM provider contract of Cluster API, with its own CRDs on a real API server."""

from __future__ import annotations

from typing import Final

import pytest
import yaml

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
from operators.ipam.samples import build_pool
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress

_MODULES: Final = (
    ("sigs.k8s.io/cluster-api@v1.11.2", ("ipam.*.yaml", "cluster.x-k8s.io_clusters.yaml")),
    ("sigs.k8s.io/cluster-api-ipam-provider-in-cluster@v1.1.0", ("ipam.*.yaml",)),
)
"""Modules that contain the CRDs of the contract, and patterns of their files."""


async def install(client: Client) -> None:
    """Serve the kinds of Cluster API as its Go module has them."""
    try:
        go = ensure_go(open_progress("cluster-api-ipam"))
        folders = [go.module_directory(module) / "config/crd/bases" for module, _ in _MODULES]
    except ToolError as err:
        pytest.skip(f"the CRDs of Cluster API cannot be downloaded: {err}")
    for folder, (_, patterns) in zip(folders, _MODULES, strict=True):
        paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
        await serve(client, *(yaml.safe_load(path.read_text()) for path in paths))


@pytest.mark.apiserver
async def test_schemas_of_cluster_api_accept_what_ipam_writes(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    """The server prunes fields that a schema lacks, so each field is looked at afterwards."""
    await install(kube_client)
    await serve(kube_client, *RESOURCES)
    addresses = {"addresses": ["203.0.113.0/26"], "prefix": 17, "gateway": "203.0.113.1"}
    pool = build_pool(kube_namespace, realm="capi", **addresses)
    await kube_client.create(IP_POOL, pool)
    pool_ref = {"apiGroup": IP_POOL.group, "kind": IP_POOL.kind, "name": kube_namespace}
    spec = {"poolRef": pool_ref, "clusterName": "tenant"}
    manifest = build_object(IP_ADDRESS_CLAIM, "node", kube_namespace, spec=spec)
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
            "poolRef": pool_ref,
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
