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
        ({"version": "v1.9.0"}, "v1.31.0 or newer"),
        ({"version": "v1.30.14"}, "v1.31.0 or newer"),
        ({"podCidr": "10.0.0.0"}, "must be a block"),
        ({"pools": [{"name": "control-plane", "count": 1, "size": "s"}]}, "is reserved"),
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


@pytest.mark.parametrize("version", ["v1.31.0", "v1.40.1", "v1.100.0", "v1.34.2-rc.1"])
async def test_version_that_kubeadm_can_configure_is_taken(
    client: Client, kube_namespace: str, version: str
) -> None:
    await client.create(KUBERNETES_CLUSTER, build(kube_namespace, version=version))


async def test_control_plane_grows_and_never_shrinks(client: Client, kube_namespace: str) -> None:
    key = Key(kube_namespace, "edge")
    await client.create(KUBERNETES_CLUSTER, build(kube_namespace, count=1))
    await client.patch(KUBERNETES_CLUSTER, key, {"spec": {"controlPlane": {"count": 3}}})

    with pytest.raises(Invalid, match="not shrink"):
        await client.patch(KUBERNETES_CLUSTER, key, {"spec": {"controlPlane": {"count": 1}}})


async def _change_version(
    client: Client, namespace: str, old: str, new: str, *, count: int = 3, reached: str = ""
) -> None:
    key = Key(namespace, "edge")
    await client.create(KUBERNETES_CLUSTER, build(namespace, count=count, version=old))
    if reached:
        status = {"status": {"version": reached}}
        await client.patch(KUBERNETES_CLUSTER, key, status, subresource="status")
    await client.patch(KUBERNETES_CLUSTER, key, {"spec": {"version": new}})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v1.34.2", "v1.34.3"),
        ("v1.34.2", "v1.35.0"),
        ("v1.34.9", "v1.34.10"),
        ("v1.34.2", "v1.35.0-rc.1"),
        ("v1.35.0-rc.1", "v1.35.0"),
        ("v1.99.0", "v1.100.0"),
    ],
)
async def test_version_goes_up_by_a_minor_version(
    client: Client, kube_namespace: str, old: str, new: str
) -> None:
    await _change_version(client, kube_namespace, old, new, reached=old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v1.34.2", "v1.36.0"),
        ("v1.34.2", "v1.33.9"),
        ("v1.34.2", "v1.34.1"),
        ("v1.35.0", "v1.35.0-rc.1"),
        ("v1.35.0-rc.2", "v1.35.0-rc.1"),
    ],
)
async def test_version_that_skips_a_minor_version_or_goes_down_is_refused(
    client: Client, kube_namespace: str, old: str, new: str
) -> None:
    with pytest.raises(Invalid, match="version goes up"):
        await _change_version(client, kube_namespace, old, new)


async def test_version_of_a_single_control_plane_cannot_change(
    client: Client, kube_namespace: str
) -> None:
    with pytest.raises(Invalid, match="is 3 or 5"):
        await _change_version(client, kube_namespace, "v1.34.2", "v1.35.0", count=1)


async def test_next_minor_version_waits_until_every_node_has_the_one_before(
    client: Client, kube_namespace: str
) -> None:
    with pytest.raises(Invalid, match="one minor version newer"):
        await _change_version(client, kube_namespace, "v1.35.0", "v1.36.0", reached="v1.34.2")
    # Nothing of it keeps the operator from telling what it sees.
    status = {"status": {"version": "v1.31.0"}}
    key = Key(kube_namespace, "edge")
    await client.patch(KUBERNETES_CLUSTER, key, status, subresource="status")


@pytest.mark.parametrize(
    "change",
    [
        {"networkRef": {"name": "other"}},
        {"podCidr": "10.9.0.0/16"},
        {"controlPlane": {"endpoint": {"port": 7443}}},
        {"controlPlane": {"endpoint": {"poolName": "other"}}},
        {"controlPlane": {"endpoint": {"dnsNames": ["api.example.com"]}}},
    ],
    ids=str,
)
async def test_what_nodes_were_made_for_cannot_be_changed(
    client: Client, kube_namespace: str, change: Manifest
) -> None:
    await client.create(KUBERNETES_CLUSTER, build(kube_namespace))

    with pytest.raises(Invalid, match=r"immutable|cannot be set or removed after creation"):
        await client.patch(KUBERNETES_CLUSTER, Key(kube_namespace, "edge"), {"spec": change})
