"""Addons are applied to a real API server."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import CONFIG_MAP, CRD, SERVICE_ACCOUNT, Key, Kind
from libs.common.testing.serving import wait_served
from operators.clusters.addon_writer import apply_addon, read_record
from operators.clusters.addons import AddonStep

pytestmark = pytest.mark.apiserver
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets")
MANIFESTS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: cni}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: agent, image: "registry.example.com/agent:1"}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: without-a-namespace}
---
apiVersion: v1
kind: Namespace
metadata: {name: cni}
"""
CUSTOM = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: peers.cni.example.com}
spec:
  group: cni.example.com
  scope: Cluster
  names: {kind: Peer, plural: peers, singular: peer}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: cni.example.com/v1
kind: Peer
metadata: {name: first}
"""


async def test_addon_is_applied_and_written_down(kube_client: Client) -> None:
    first = AddonStep("network", "digest-1", {"cni.yaml": MANIFESTS})

    assert await apply_addon(kube_client, first) == ""
    assert await apply_addon(kube_client, AddonStep("metrics", "digest-2", {})) == ""
    changed = MANIFESTS.replace("agent:1", "agent:2")
    assert await apply_addon(kube_client, AddonStep("network", "digest-3", {"a": changed})) == ""

    assert await read_record(kube_client) == {"network": "digest-3", "metrics": "digest-2"}
    held = await kube_client.get(DAEMON_SET, Key("cni", "agent"))
    assert held["spec"]["template"]["spec"]["containers"][0]["image"].endswith("agent:2")
    await kube_client.get(SERVICE_ACCOUNT, Key("default", "without-a-namespace"))


async def test_object_of_a_kind_that_the_addon_brings_follows_its_definition(
    kube_client: Client,
) -> None:
    step = AddonStep("custom", "digest", {"cni.yaml": CUSTOM})
    peer = Kind("cni.example.com", "v1", "Peer", "peers", namespaced=False)

    async with asyncio.timeout(60):
        while await apply_addon(kube_client, step):
            await wait_served(kube_client, peer)

    await kube_client.get(CRD, Key("", "peers.cni.example.com"))
    assert (await kube_client.get(peer, Key("", "first")))["metadata"]["name"] == "first"


async def test_object_that_is_refused_is_named_and_the_others_are_applied(
    kube_client: Client,
) -> None:
    bad = """
apiVersion: v1
kind: ConfigMap
metadata: {name: good, namespace: default}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: Bad_Name}
---
apiVersion: example.com/v1
kind: Nothing
metadata: {name: none}
"""
    problem = await apply_addon(kube_client, AddonStep("broken", "digest", {"a": bad}))

    assert problem.startswith("ConfigMap Bad_Name: ") and problem.endswith("(and 1 more)")
    assert (await kube_client.get(CONFIG_MAP, Key("default", "good")))["metadata"]["uid"]
    assert "broken" not in await read_record(kube_client), "it is tried again"
    with pytest.raises(NotFound):
        await kube_client.get(CONFIG_MAP, Key("default", "Bad_Name"))
