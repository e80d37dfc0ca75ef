"""The network operator on a real cluster, and real packets where its policies are enforced.

While the tests with packets run, kube-router enforces NetworkPolicies in the cluster. Other tests
share the cluster, so it is removed again unless `./dev up --with network-policies` installed it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from libs.common.conditions import find_condition
from libs.common.errors import AlreadyExists, NotFound
from libs.common.kinds import CRD, NETWORK_POLICY, POD, Key, Manifest, build_object, uid_of
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL
from libs.contracts.network import FirewallView, NetworkView
from operators.network.api.v1alpha1 import FIREWALL, NETWORK
from tests.e2e.cluster import ROOT, Cluster, Serve, build_busybox, eventually
from tools.cluster import network_policies
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

_CRD_FILE: Final = "helm/compute/files/crds/compute.slipway.dev_instances.yaml"
_PORT: Final = 8080


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve) -> None:
    """Install the operator for all tests here."""
    serve("network")


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Make a namespace for one test, on a cluster that serves Instance; nothing runs machines."""
    crd: Manifest = yaml.safe_load(Path(ROOT, _CRD_FILE).read_text())
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(CRD, crd)

    async def served() -> bool:
        await cluster.client.list(INSTANCE)
        return True

    await eventually(served, "Instance is served")
    return await cluster.make_namespace("network")


async def add(cluster: Cluster, namespace: str, kind: Any, name: str, **spec: Any) -> str:
    """Create an object and return its UID."""
    manifest = build_object(kind, name, namespace, spec=spec)
    return uid_of(await cluster.client.create(kind, manifest))


async def add_instance(cluster: Cluster, namespace: str, name: str = "vm", **spec: Any) -> str:
    """Create an Instance that nothing runs."""
    return await add(
        cluster,
        namespace,
        INSTANCE,
        name,
        size="small",
        image={"url": "https://example.invalid/disk.qcow2"},
        rootDisk={"size": "1Gi"},
        networkRef={"name": "lan"},
        **spec,
    )


def build_pod(
    namespace: str, name: str, command: str, uid: str = "", network: str = ""
) -> Manifest:
    labels = {INSTANCE_UID_LABEL: uid} if uid else {}
    if network:
        labels[NETWORK_LABEL] = network
    spec = build_busybox("sh", "-c", command)
    return build_object(POD, name, namespace, metadata={"labels": labels}, spec=spec)


async def start(cluster: Cluster, pod: Manifest) -> str:
    """Run a pod and return its address."""
    created = await cluster.client.create(POD, pod)
    key = Key(created["metadata"]["namespace"], created["metadata"]["name"])
    address = ""

    async def running() -> bool:
        nonlocal address
        status = (await cluster.client.get(POD, key)).get("status") or {}
        address = status.get("podIP") or ""
        return bool(status.get("phase") == "Running" and address)

    await eventually(running, f"pod {key} runs")
    return address


async def reaches(cluster: Cluster, namespace: str, address: str, port: int = _PORT) -> bool:
    """Return whether the pod `client` can connect to an address."""
    probe = f"nc -w 2 {address} {port} </dev/null >/dev/null 2>&1 && echo open || echo shut"
    args = ("--namespace", namespace, "exec", "client", "--", "sh", "-c", probe)
    return "open" in await cluster.run(cluster.kubectl, *args)


@pytest.fixture(scope="module")
def plugin(kind_cluster: KindCluster) -> Iterator[None]:
    """Have the cluster enforce NetworkPolicies, once for the tests with packets."""
    progress = open_progress("network-policies", kind_cluster.cache)
    keep = network_policies.is_installed(kind_cluster)
    try:
        network_policies.install_network_policies(kind_cluster, progress)
    except network_policies.NotEnforceable as err:
        pytest.skip(str(err))
    yield
    if not keep:
        network_policies.remove_network_policies(kind_cluster, progress)


@pytest.fixture
async def enforcement(plugin: None, cluster: Cluster) -> None:
    """Wait until a policy that this test wrote by hand stops packets.

    It does not involve the operator, so a failure here is no fault of the operator.
    """
    namespace = await cluster.make_namespace("network-probe")
    server = build_pod(namespace, "server", f"while true; do nc -l -p {_PORT} </dev/null; done")
    address = await start(cluster, server)
    await start(cluster, build_pod(namespace, "client", "sleep 3600"))
    await eventually(lambda: reaches(cluster, namespace, address), "the server answers")
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    await cluster.client.create(
        NETWORK_POLICY, build_object(NETWORK_POLICY, "closed", namespace, spec=spec)
    )

    async def closed() -> bool:
        return not await reaches(cluster, namespace, address)

    await eventually(closed, "the network plugin enforces a NetworkPolicy written by hand")


async def test_examples_turn_ready(cluster: Cluster, namespace: str) -> None:
    for name in ("network-sample", "firewall-sample"):
        await cluster.apply_example("network", name, namespace)

    await cluster.wait_ready(NETWORK, Key(namespace, "network-sample"))
    await cluster.wait_ready(FIREWALL, Key(namespace, "firewall-sample"))
    policy = await cluster.client.get(NETWORK_POLICY, Key(namespace, "firewall-firewall-sample"))
    excepts = [
        peer["ipBlock"].get("except")
        for rule in policy["spec"]["ingress"]
        for peer in rule.get("from") or ()
    ]
    assert ["198.51.100.0/24"] in excepts


async def test_instance_is_closed_before_its_machine_may_start(
    cluster: Cluster, namespace: str
) -> None:
    await add(cluster, namespace, NETWORK, "lan", cidrs=["10.10.0.0/16"])
    await add(cluster, namespace, FIREWALL, "web", networkRef={"name": "lan"})
    uid = await add_instance(cluster, namespace, firewallRef={"name": "web"})

    async def protected() -> bool:
        network = await cluster.client.get(NETWORK, Key(namespace, "lan"))
        firewall = await cluster.client.get(FIREWALL, Key(namespace, "web"))
        return NetworkView.parse(network).isolated and FirewallView.parse(firewall).protects(uid)

    await eventually(protected, "the firewall lists the instance")
    policy = await cluster.client.get(NETWORK_POLICY, Key(namespace, "firewall-web"))
    (rule,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert rule["values"] == [uid]


async def test_deletion_waits_for_the_instance_that_uses_it(
    cluster: Cluster, namespace: str
) -> None:
    await add(cluster, namespace, NETWORK, "lan", cidrs=["10.10.0.0/16"])
    await add(cluster, namespace, FIREWALL, "web", networkRef={"name": "lan"})
    await add_instance(cluster, namespace, firewallRef={"name": "web"})
    await cluster.wait_ready(FIREWALL, Key(namespace, "web"))
    await cluster.delete(FIREWALL, Key(namespace, "web"))

    async def waits() -> bool:
        held = await cluster.client.get(FIREWALL, Key(namespace, "web"))
        found = find_condition(held, "Terminating") or {}
        return "Instance vm" in found.get("message", "")

    await eventually(waits, "the condition names the instance")
    await cluster.client.get(NETWORK_POLICY, Key(namespace, "firewall-web"))
    await cluster.delete(INSTANCE, Key(namespace, "vm"))
    await cluster.wait_gone(FIREWALL, Key(namespace, "web"))
    await cluster.wait_gone(NETWORK_POLICY, Key(namespace, "firewall-web"))


@pytest.mark.usefixtures("enforcement")
async def test_packets_pass_as_the_rules_say(cluster: Cluster, namespace: str) -> None:
    """Pods that are labelled like the pods of an instance meet real packets."""
    await add(cluster, namespace, NETWORK, "lan", cidrs=["10.10.0.0/16"])
    rules = [{"name": "open", "protocol": "TCP", "ports": [_PORT]}]
    await add(cluster, namespace, FIREWALL, "web", networkRef={"name": "lan"}, rules=rules)
    uid = await add_instance(cluster, namespace, firewallRef={"name": "web"})
    await cluster.wait_ready(FIREWALL, Key(namespace, "web"))
    listen = f"while true; do nc -l -p {_PORT} </dev/null; done & "
    command = f"{listen} while true; do nc -l -p 9090; done"
    server = build_pod(namespace, "server", command, uid, "lan")
    address = await start(cluster, server)
    await start(cluster, build_pod(namespace, "client", "sleep 3600"))
    await eventually(lambda: reaches(cluster, namespace, address), "the open port answers")

    async def enforced() -> bool:
        return not await reaches(cluster, namespace, address, 9090)

    # Policies take effect some time after they are written.
    await eventually(enforced, "a port that no rule opens is shut")
    denied = [{"name": "open", "protocol": "TCP", "ports": [_PORT], "action": "Deny"}]
    patch = [{"op": "replace", "path": "/spec/rules", "value": denied}]
    await cluster.client.patch(FIREWALL, Key(namespace, "web"), patch)

    async def shut() -> bool:
        return not await reaches(cluster, namespace, address)

    await eventually(shut, "the port that is denied now is shut")
    with pytest.raises(NotFound):
        await cluster.client.get(NETWORK_POLICY, Key(namespace, "network-lan-open"))


@pytest.mark.usefixtures("enforcement")
async def test_network_leaves_machines_alone_that_do_not_name_it(
    cluster: Cluster, namespace: str
) -> None:
    """The pod has the label of an instance, which once sufficed to be cut off."""
    await add(cluster, namespace, NETWORK, "lan", cidrs=["10.10.0.0/16"], isolation="Network")
    await cluster.wait_ready(NETWORK, Key(namespace, "lan"))
    listen = f"while true; do nc -l -p {_PORT} </dev/null; done"
    stranger = await start(cluster, build_pod(namespace, "stranger", listen, "a-uid"))
    fresh = await start(cluster, build_pod(namespace, "fresh", listen, "b-uid", "lan"))
    await start(cluster, build_pod(namespace, "client", "sleep 3600"))

    async def closed() -> bool:
        return not await reaches(cluster, namespace, fresh)

    await eventually(closed, "a machine of the network that nothing opens yet is closed")
    assert await reaches(cluster, namespace, stranger)
