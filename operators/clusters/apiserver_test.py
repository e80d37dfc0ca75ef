"""What the API server itself refuses of a KubernetesCluster, and that it takes the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.common.client import Client
from libs.common.errors import BadRequest, Invalid
from libs.common.kinds import Key, Manifest
from libs.common.testing.serving import serve
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.samples import build_cluster

pytestmark = pytest.mark.apiserver
EXAMPLES = sorted(Path(__file__).with_name("examples").glob("*.yaml"))


@pytest.fixture
async def client(kube_client: Client) -> Client:
    """Connect to an API server that serves the kind."""
    await serve(kube_client, KubernetesCluster)
    return kube_client


def build(namespace: str, **spec: Any) -> Manifest:
    manifest = build_cluster(**spec)
    manifest["metadata"] = {"name": "edge", "namespace": namespace}
    return manifest


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
async def test_example_is_taken(client: Client, kube_namespace: str, path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        manifest["metadata"]["namespace"] = kube_namespace
        await client.create(KUBERNETES_CLUSTER, manifest)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "1.34"}, "spec.version"),
        ({"podCidr": "10.0.0.0"}, "must be a block"),
        ({"pools": [{"name": "control-plane", "count": 1, "size": "s"}]}, "is taken"),
        ({"pools": [{"name": "web", "count": 101, "size": "s"}]}, "count"),
        ({"recycle": [{"node": "edge-web-0", "token": "a b"}]}, "token"),
        ({"health": {"unhealthySeconds": 1}}, "unhealthySeconds"),
    ],
    ids=str,
)
async def test_bad_field_is_refused_by_its_name(
    client: Client, kube_namespace: str, change: Manifest, words: str
) -> None:
    manifest = build(kube_namespace)
    manifest["spec"] |= change

    with pytest.raises((Invalid, BadRequest), match=words):
        await client.create(KUBERNETES_CLUSTER, manifest)


@pytest.mark.parametrize("count", [0, 2, 4, 7])
async def test_control_plane_without_majority_is_refused(
    client: Client, kube_namespace: str, count: int
) -> None:
    with pytest.raises(Invalid, match="count"):
        await client.create(KUBERNETES_CLUSTER, build(kube_namespace, count=count))


async def test_name_that_makes_no_host_name_is_refused(client: Client, kube_namespace: str) -> None:
    manifest = build(kube_namespace)
    for name in ("1edge", "a" * 33, "a.b"):
        manifest["metadata"]["name"] = name
        with pytest.raises(Invalid, match="host names"):
            await client.create(KUBERNETES_CLUSTER, manifest)


async def test_control_plane_grows_and_never_shrinks(client: Client, kube_namespace: str) -> None:
    key = Key(kube_namespace, "edge")
    await client.create(KUBERNETES_CLUSTER, build(kube_namespace, count=1))
    await client.patch(KUBERNETES_CLUSTER, key, {"spec": {"controlPlane": {"count": 3}}})

    with pytest.raises(Invalid, match="never shrink"):
        await client.patch(KUBERNETES_CLUSTER, key, {"spec": {"controlPlane": {"count": 1}}})


@pytest.mark.parametrize(
    "change",
    [
        {"version": "v1.35.0"},
        {"networkRef": {"name": "other"}},
        {"podCidr": "10.9.0.0/16"},
        {"controlPlane": {"endpoint": {"port": 7443}}},
        {"controlPlane": {"endpoint": {"poolName": "other"}}},
    ],
    ids=str,
)
async def test_what_nodes_were_made_for_cannot_be_changed(
    client: Client, kube_namespace: str, change: Manifest
) -> None:
    await client.create(KUBERNETES_CLUSTER, build(kube_namespace))

    with pytest.raises(Invalid, match="immutable"):
        await client.patch(KUBERNETES_CLUSTER, Key(kube_namespace, "edge"), {"spec": change})
