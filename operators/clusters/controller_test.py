"""The clusters operator over HTTP, with clusters that simulated guests make over TLS.

ipam, network and compute are pretended; what a guest does with its first settings is simulated by
`lab.kubevirt_sim.guests`, which answers with certificates of the authorities of the cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from lab.kubevirt_sim.guests import GuestClusters
from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import (
    CONFIG_MAP,
    ENDPOINT_SLICE,
    NODE,
    POD,
    SECRET,
    SERVICE,
    Key,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.controller import OPERATOR
from operators.clusters.fake_workloads import drive as play
from operators.clusters.fake_workloads import run_machine
from operators.clusters.naming import DRAINING, FINALIZER, exposure_name, user_data_name
from operators.clusters.observed import read_data
from operators.clusters.samples import ADDRESS, build_cluster, build_network

EDGE = Key("default", "edge")
PLANE, WEB_0, WEB_1 = "edge-control-plane-0", "edge-web-0", "edge-web-1"


@dataclass
class Cloud:
    """Hold the API server, the operator and the guests of a test."""

    api: FakeApi
    operator: OperatorHarness
    guests: GuestClusters
    driving: bool = True
    off: set[str] = field(default_factory=set)
    restored: dict[str, str] = field(default_factory=dict)
    """UIDs that restored Instances had before, whose guests are the same ones."""

    async def until(self, probe: Callable[[], bool], what: str, *, drive: bool = True) -> None:
        """Let everybody work until something holds."""

        def step() -> bool:
            if self.driving and drive:
                play(self.api)
            return probe()

        await self.operator.eventually(step, what)

    async def ready(self) -> None:
        """Wait until the cluster is as its spec asks."""
        await self.until(lambda: self.condition("Ready").get("status") == "True", "it is ready")

    def condition(self, type_: str) -> dict[str, Any]:
        """Return a condition of the cluster, of the spec that it has now."""
        held = self.api.get(KUBERNETES_CLUSTER, EDGE)
        found = dict(find_condition(held, type_) or {})
        current = found.get("observedGeneration") == held["metadata"]["generation"]
        return found if current else {}

    def instances(self) -> list[str]:
        """Return the names of all machines."""
        return [key_of(each).name for each in self.api.objects(INSTANCE)]

    def workload(self) -> FakeApi:
        """Return the API of the cluster that was made."""
        (cluster,) = self.guests.clusters
        return cluster.api

    def list_machines(self) -> list[Manifest]:
        """List the runs of machines as KubeVirt would."""
        return [
            {
                "metadata": {
                    "name": key_of(each).name,
                    "namespace": "default",
                    "uid": f"{key_of(each).name}-{self.restored.get(uid_of(each), uid_of(each))}",
                },
                "spec": {
                    "volumes": [
                        {
                            "name": "cloud-init",
                            "cloudInitNoCloud": {
                                "secretRef": {"name": user_data_name(key_of(each).name)}
                            },
                        }
                    ]
                },
                "status": {"phase": "Running"},
            }
            for each in self.api.objects(INSTANCE)
            if each.get("status") and key_of(each).name not in self.off
        ]


@pytest.fixture
async def cloud(fake_api: FakeApi, fake_client: Client) -> AsyncIterator[Cloud]:
    """Run the operator, with simulated guests."""
    fake_api.register(build_crd(KubernetesCluster))
    for kind in (INSTANCE, OPERATION, IP_CLAIM, FIREWALL, NETWORK):
        fake_api.register(kind)
    fake_api.create(network())
    held: list[Cloud] = []
    guests = GuestClusters(
        fake_client, lambda: held[0].list_machines() if held else [], "127.0.0.1", 0
    )
    async with guests:
        operator = OperatorHarness(
            OPERATOR,
            fake_api.config,
            api_url=f"https://127.0.0.1:{guests.port}",
            api_poll_seconds=1,
            api_timeout_seconds=20,
        )
        async with operator:
            held.append(Cloud(fake_api, operator, guests))
            yield held[0]


def network(**spec: Any) -> Manifest:
    """Build the Network of the cluster."""
    return {**build_network(**spec), "metadata": {"name": "lan", "namespace": "default"}}


def create(cloud: Cloud, *, finalizers: Sequence[str] = (), **options: Any) -> None:
    cluster = build_cluster(**options)
    for name in ("uid", "generation"):
        del cluster["metadata"][name]
    cluster["metadata"]["finalizers"] = list(finalizers)
    cloud.api.create(cluster)


async def test_cluster_comes_up_node_by_node(cloud: Cloud) -> None:
    create(cloud, workers=2)

    await cloud.ready()

    assert cloud.instances() == [PLANE, WEB_0, WEB_1]
    status = cloud.api.get(KUBERNETES_CLUSTER, EDGE)["status"]
    assert status["endpoint"] == f"{ADDRESS}:6443"
    assert (status["controlPlane"]["summary"], status["nodes"]["summary"]) == ("1/1", "2/2")
    assert [key_of(each).name for each in cloud.workload().objects(NODE)] == cloud.instances()
    machine = cloud.api.get(INSTANCE, ("default", WEB_0))
    assert machine["spec"]["firewallRef"] == {"name": "edge-nodes"}
    assert cloud.condition("CertificatesExpiring")["reason"] == "Valid"
    slice_ = cloud.api.get(ENDPOINT_SLICE, ("default", "edge-api"))
    # kube-proxy finds the slices of a Service by this label.
    assert slice_["metadata"]["labels"]["kubernetes.io/service-name"] == "edge-api"
    plane = cloud.api.get(INSTANCE, ("default", PLANE))
    assert slice_["endpoints"][0]["addresses"] == [plane["status"]["privateIP"]]


async def test_cluster_goes_on_after_its_authorities_when_nothing_else_happens(
    cloud: Cloud,
) -> None:
    # As a process finds it that is started after a crash: no write of the primary is left to do.
    create(cloud, finalizers=[FINALIZER])
    cloud.driving = False

    await cloud.until(lambda: bool(cloud.api.objects(IP_CLAIM)), "an address is asked for")


async def test_nodes_reach_each_other_by_firewall_and_not_by_address(cloud: Cloud) -> None:
    """Some network plugins do not apply blocks of addresses to pods."""
    endpoint = {"poolName": "public", "port": 6443, "allowedCidrs": ["198.51.100.0/24"]}
    create(cloud, controlPlane={"count": 1, "size": "medium", "endpoint": endpoint})
    await cloud.ready()

    nodes = {
        "name": "nodes",
        "protocol": "ALL",
        "cidrs": ["127.0.0.1/32"],
        "peers": [
            {"firewallRef": {"name": "edge-control-plane"}},
            {"firewallRef": {"name": "edge-nodes"}},
        ],
    }
    to_nodes = {**nodes, "name": "to-nodes", "direction": "Egress"}
    # For most clients it sees the address of a node; the claim compares the clients.
    api = {"name": "api", "protocol": "TCP", "ports": [6443]}
    rules = {key_of(each).name: each["spec"]["rules"] for each in cloud.api.objects(FIREWALL)}
    assert rules == {
        "edge-control-plane": [api, nodes, to_nodes],
        "edge-nodes": [nodes, to_nodes],
    }
    (claim,) = [each for each in cloud.api.objects(IP_CLAIM) if "target" in each["spec"]]
    assert claim["spec"]["allowedCidrs"] == ["198.51.100.0/24"]


async def test_cluster_waits_for_a_network_with_addresses(cloud: Cloud) -> None:
    """Under masquerade all guests have the address 10.0.2.2."""
    cloud.api.delete(NETWORK, ("default", "lan"))
    create(cloud)

    def reason() -> str:
        return str(cloud.condition("Ready").get("reason"))

    await cloud.until(lambda: reason() == "NetworkMissing", "it misses the Network", drive=False)
    cloud.api.create(network(cidrs=["10.0.0.0/16"]))
    await cloud.until(lambda: reason() == "NetworkUnsuitable", "it says why")
    assert "Passt or Bridge" in cloud.condition("NetworkReady")["message"]
    for kind in (INSTANCE, IP_CLAIM, FIREWALL, SERVICE, ENDPOINT_SLICE, SECRET):
        assert cloud.api.objects(kind) == [], "nothing is created"

    cloud.api.patch(NETWORK, ("default", "lan"), {"spec": {"binding": "Passt"}})
    await cloud.ready()


async def test_smaller_pool_is_drained_first(cloud: Cloud) -> None:
    create(cloud, workers=2)
    await cloud.ready()
    pod = build_object(
        POD,
        "shop",
        "default",
        spec={"nodeName": WEB_1, "containers": [{"name": "shop", "image": "shop"}]},
    )
    cloud.workload().create(pod)
    seen: list[bool] = []

    def gone() -> bool:
        node = cloud.workload().find(NODE, ("", WEB_1))
        if cloud.workload().find(POD, ("default", "shop")) is not None:
            seen.append(WEB_1 in cloud.instances())
            if node is not None and DRAINING in (node["metadata"].get("annotations") or {}):
                assert node["spec"]["unschedulable"] is True
                pod_now = cloud.workload().get(POD, ("default", "shop"))
                if pod_now["metadata"].get("deletionTimestamp"):
                    cloud.workload().finish_termination(POD, ("default", "shop"))
        return node is None and WEB_1 not in cloud.instances()

    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"pools": [pool(1)]}})
    await cloud.until(gone, "the node has gone")

    assert seen and all(seen), "the machine went before its pods"
    await cloud.ready()
    assert cloud.api.find(SECRET, ("default", user_data_name(WEB_1))) is None


async def test_nodes_leave_a_drained_host_one_at_a_time_after_their_pods(cloud: Cloud) -> None:
    """Upstream: kubernetes-sigs/cluster-api-provider-kubevirt#403."""
    create(cloud, workers=2)
    await cloud.ready()
    for name in (WEB_0, WEB_1):
        held = cloud.api.get(INSTANCE, ("default", name))["status"]
        evicting = {**held["conditions"][0], "type": "Evicting"}
        shown = {**held, "nodeName": "host", "conditions": [*held["conditions"], evicting]}
        spec = {"nodeName": name, "containers": [{"name": "shop", "image": "shop"}]}
        cloud.workload().create(build_object(POD, f"shop-{name}", "default", spec=spec))
        cloud.api.patch_status(INSTANCE, ("default", name), shown)
    cordoned: list[set[str]] = []

    def moved() -> bool:
        pods = {pod["spec"]["nodeName"]: pod for pod in cloud.workload().objects(POD)}
        asked = {each["spec"]["targetRef"]["name"] for each in cloud.api.objects(OPERATION)}
        assert pods.keys().isdisjoint(asked), "a machine stops before its pods have left"
        cordoned.append({each for each in (WEB_0, WEB_1) if _is_cordoned(cloud, each)})
        for pod in pods.values():
            if pod["metadata"].get("deletionTimestamp"):
                cloud.workload().finish_termination(POD, key_of(pod))
        return asked == {WEB_0, WEB_1}

    await cloud.until(moved, "both machines have left the host")
    assert {each["spec"]["type"] for each in cloud.api.objects(OPERATION)} == {"Reboot"}
    assert max(map(len, cordoned)) == 1
    await cloud.until(
        lambda: not (_is_cordoned(cloud, WEB_0) or _is_cordoned(cloud, WEB_1)), "they take pods"
    )


async def test_node_is_rebuilt_once_for_a_token(cloud: Cloud) -> None:
    create(cloud, workers=1)
    await cloud.ready()

    ask = {"spec": {"recycle": [{"node": WEB_0, "token": "spring"}]}}
    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, ask)
    notes = "clusters.slipway.dev/recycled"

    def recorded() -> bool:
        held = cloud.api.get(INSTANCE, ("default", WEB_0))
        return (held["metadata"].get("annotations") or {}).get(notes) == "spring"

    await cloud.until(recorded, "the rebuild is written down")
    (operation,) = cloud.api.objects(OPERATION)
    assert operation["spec"]["type"] == "Rebuild"
    cloud.api.delete(OPERATION, key_of(operation))
    await cloud.until(lambda: not _is_cordoned(cloud, WEB_0), "the node takes pods again")
    await cloud.ready()
    assert cloud.api.objects(OPERATION) == []


async def test_labels_and_taints_of_a_pool_reach_its_node(cloud: Cloud) -> None:
    create(cloud, workers=1)
    await cloud.ready()
    theirs = {"key": "example.com/hold", "effect": "NoSchedule"}
    own = {"metadata": {"labels": {"own": "mine"}}, "spec": {"taints": [theirs]}}
    cloud.workload().patch(NODE, ("", WEB_0), own)

    def has(labels: dict[str, str], *taints: Manifest) -> Callable[[], bool]:
        def check() -> bool:
            node = cloud.workload().get(NODE, ("", WEB_0))
            held = {
                key: value for key, value in node["metadata"]["labels"].items() if "/" not in key
            }
            return held == labels and node["spec"].get("taints") == list(taints)

        return check

    gpu = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    marked = {**pool(1), "labels": {"tier": "web"}, "taints": [gpu]}
    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"pools": [marked]}})
    await cloud.until(has({"own": "mine", "tier": "web"}, theirs, gpu), "the node has them")

    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"pools": [pool(1)]}})
    await cloud.until(has({"own": "mine"}, theirs), "the node has its own alone")


async def test_network_plugin_is_applied_to_the_cluster(cloud: Cloud) -> None:
    addons = [{"name": "network", "configMapRef": {"name": "cni"}}]
    create(cloud, addons=addons)
    await cloud.until(
        lambda: cloud.condition("AddonsApplied").get("reason") == "AddonMissing", "it is missed"
    )
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cni, namespace: kube-system}\n"
    labels = {"clusters.slipway.dev/addon": "true"}
    source = build_object(CONFIG_MAP, "cni", "default", metadata={"labels": labels})
    cloud.api.create({**source, "data": {"cni.yaml": text}})

    await cloud.ready()

    assert cloud.condition("AddonsApplied")["status"] == "True"
    assert cloud.workload().find(CONFIG_MAP, ("kube-system", "cni")) is not None


async def test_no_node_is_touched_in_a_reconcile_whose_writes_failed(cloud: Cloud) -> None:
    """What the plan counts on may not have come to be."""
    create(cloud, workers=2)
    await cloud.ready()
    foreign = build_object(SERVICE, "edge-api", "default", spec={"ports": [{"port": 1}]})
    cloud.api.delete(SERVICE, ("default", "edge-api"))
    cloud.api.create(foreign)
    await cloud.until(
        lambda: cloud.condition("Ready").get("reason") == "NameTaken", "it reports it"
    )

    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"pools": [pool(1)]}})
    await cloud.until(
        lambda: cloud.condition("NodesReady").get("reason") == "Draining", "a node must leave"
    )

    assert not _is_cordoned(cloud, WEB_1)
    cloud.api.delete(SERVICE, ("default", "edge-api"))
    await cloud.until(lambda: WEB_1 not in cloud.instances(), "the node has gone")


async def test_unreachable_cluster_is_told_and_left_alone(cloud: Cloud) -> None:
    create(cloud, workers=2)
    await cloud.ready()
    cloud.off.add(PLANE)

    await cloud.until(
        lambda: cloud.condition("APIReachable").get("status") == "False", "it is unreachable"
    )
    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"pools": [pool(1)]}})
    await cloud.until(
        lambda: cloud.condition("NodesReady").get("reason") == "Draining", "a node must leave"
    )

    assert WEB_1 in cloud.instances()
    assert cloud.condition("Ready")["status"] == "False"
    cloud.off.clear()
    await cloud.until(lambda: WEB_1 not in cloud.instances(), "the node has gone")


async def test_lost_machine_of_a_pool_comes_back(cloud: Cloud) -> None:
    create(cloud, workers=1)
    await cloud.ready()

    cloud.api.delete(INSTANCE, ("default", WEB_0))

    await cloud.until(lambda: WEB_0 in cloud.instances(), "it is made again")
    await cloud.ready()


async def test_lost_control_plane_does_not_become_an_empty_cluster(cloud: Cloud) -> None:
    create(cloud, workers=1)
    await cloud.ready()

    cloud.api.delete(INSTANCE, ("default", PLANE))

    await cloud.until(
        lambda: cloud.condition("ControlPlaneReady").get("reason") == "ControlPlaneLost",
        "it reports it",
    )
    assert cloud.instances() == [WEB_0]


async def test_lost_authorities_are_told_and_never_made_anew(cloud: Cloud) -> None:
    create(cloud, workers=1)
    await cloud.ready()

    cloud.api.delete(SECRET, ("default", "edge-authorities"))

    await cloud.until(lambda: cloud.condition("Ready").get("reason") == "PKILost", "it reports it")
    assert cloud.api.find(SECRET, ("default", "edge-authorities")) is None
    assert cloud.instances() == [PLANE, WEB_0]
    # Somebody else may get the address that the machine had.
    held = cloud.api.get(INSTANCE, ("default", PLANE))["status"]
    cloud.api.patch_status(INSTANCE, ("default", PLANE), {**held, "privateIP": "10.0.9.9"})
    await cloud.until(lambda: endpoints(cloud, "edge-api") == ["10.0.9.9"], "it is followed")


async def test_machine_of_somebody_else_is_left_alone(cloud: Cloud) -> None:
    foreign = build_object(INSTANCE, WEB_0, "default", spec={"size": "small"})
    cloud.api.create(foreign)
    create(cloud, workers=1)

    await cloud.until(
        lambda: cloud.condition("Ready").get("reason") == "NameTaken", "it reports it"
    )

    assert cloud.api.get(INSTANCE, ("default", WEB_0))["spec"] == {"size": "small"}


async def test_control_plane_grows_one_by_one(cloud: Cloud) -> None:
    create(cloud, count=3, workers=0)
    cloud.driving = False
    number = 0

    def boot_one() -> bool:
        nonlocal number
        waiting = [each for each in cloud.api.objects(INSTANCE) if not each.get("status")]
        assert len(waiting) <= 1, "two nodes of the control plane are being made at once"
        for claim in cloud.api.objects(IP_CLAIM):
            if not claim.get("status"):
                cloud.api.patch_status(IP_CLAIM, key_of(claim), {"address": ADDRESS})
        for each in waiting:
            number += 1
            run_machine(cloud.api, key_of(each), number)
        return number == 3

    await cloud.until(boot_one, "three nodes are there")
    cloud.driving = True
    await cloud.ready()
    data = {
        name: read_data(cloud.api.get(SECRET, ("default", user_data_name(name))))["userdata"]
        for name in cloud.instances()
    }
    assert not any("kubeadm init" in text for text in data.values())


async def test_deletion_goes_in_order_and_shows_what_is_left(cloud: Cloud) -> None:
    create(cloud, workers=1)
    await cloud.ready()
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    cloud.api.patch(INSTANCE, ("default", WEB_0), held)

    cloud.api.delete(KUBERNETES_CLUSTER, EDGE)
    await cloud.until(
        lambda: bool(cloud.api.get(KUBERNETES_CLUSTER, EDGE)["status"].get("leftovers")), "told"
    )

    left = cloud.api.get(KUBERNETES_CLUSTER, EDGE)["status"]["leftovers"]
    assert left[0] == "Instance default/edge-web-0"
    assert cloud.instances() == [PLANE, WEB_0], "the control plane went before the nodes"
    cloud.api.patch(INSTANCE, ("default", WEB_0), {"metadata": {"finalizers": []}})
    await cloud.until(lambda: cloud.api.find(KUBERNETES_CLUSTER, EDGE) is None, "it is gone")
    for kind in (INSTANCE, IP_CLAIM, FIREWALL, SERVICE, ENDPOINT_SLICE, SECRET):
        assert [key_of(each).name for each in cloud.api.objects(kind)] == []


async def test_cluster_with_the_name_of_a_deleted_one_shows_its_own_certificate(
    cloud: Cloud,
) -> None:
    def is_evaluated(reason: str) -> bool:
        return cloud.condition("CertificatesExpiring").get("reason") == reason

    cloud.guests.lifetime = timedelta(days=20)
    create(cloud)
    await cloud.until(lambda: is_evaluated("Expiring"), "the certificate was read")
    cloud.api.delete(KUBERNETES_CLUSTER, EDGE)
    await cloud.until(lambda: cloud.api.find(KUBERNETES_CLUSTER, EDGE) is None, "it is gone")

    cloud.guests.lifetime = timedelta(days=365)
    create(cloud)
    await cloud.until(lambda: is_evaluated("Valid"), "the new certificate counts alone")


def pool(count: int) -> Manifest:
    return {"name": "web", "count": count, "size": "large"}


def _is_cordoned(cloud: Cloud, name: str) -> bool:
    node = cloud.workload().get(NODE, ("", name))
    return bool(node.get("spec", {}).get("unschedulable"))


async def test_cluster_goes_on_once_what_it_needs_is_installed(fake_api: FakeApi) -> None:
    fake_api.register(build_crd(KubernetesCluster))
    cluster = build_cluster()
    for name in ("uid", "generation"):
        del cluster["metadata"][name]
    async with OperatorHarness(OPERATOR, fake_api.config) as operator:
        fake_api.create(cluster)
        await operator.converged()
        ready = find_condition(fake_api.get(KUBERNETES_CLUSTER, EDGE), "Ready") or {}
        assert ready["reason"] == "APIMissing"

        for kind in (INSTANCE, OPERATION, IP_CLAIM, FIREWALL, NETWORK):
            fake_api.register(kind)
        fake_api.create(network())
        await operator.eventually(lambda: fake_api.objects(IP_CLAIM))


def expose(cloud: Cloud, name: str) -> None:
    """Create a Service of type LoadBalancer in the cluster that was made."""
    spec = {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]}
    cloud.workload().create(build_object(SERVICE, name, "default", spec=spec))


async def test_service_of_type_load_balancer_gets_an_address(cloud: Cloud) -> None:
    create(cloud, workers=2, loadBalancers={"poolName": "public", "limit": 1})
    await cloud.ready()

    def reason() -> str:
        return str(cloud.condition("LoadBalancersReady").get("reason"))

    expose(cloud, "web")
    await cloud.until(lambda: ingress(cloud, "web") == [ADDRESS], "it gets an address")
    await cloud.until(lambda: reason() == "Available", "the cluster says so")
    rule, *_ = cloud.api.get(FIREWALL, ("default", "edge-nodes"))["spec"]["rules"]
    assert rule["ports"] == [30080]
    expose(cloud, "shop")
    await cloud.until(lambda: reason() == "ServicesWaiting", "the limit is said")
    assert ingress(cloud, "shop") == []

    cloud.workload().delete(SERVICE, ("default", "web"))
    await cloud.until(lambda: ingress(cloud, "shop") == [ADDRESS], "the next one gets one")
    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"loadBalancers": None}})
    await cloud.until(lambda: len(cloud.api.objects(IP_CLAIM)) == 1, "the address is released")
    assert ingress(cloud, "shop") == []

    def rules() -> list[str]:
        held = cloud.api.get(FIREWALL, ("default", "edge-nodes"))
        return [each["name"] for each in held["spec"]["rules"]]

    await cloud.until(lambda: rules() == ["nodes", "to-nodes"], "the port is closed")


def ingress(cloud: Cloud, name: str) -> list[str]:
    held = cloud.workload().get(SERVICE, ("default", name))
    shown = (held.get("status") or {}).get("loadBalancer", {}).get("ingress") or []
    return [each["ip"] for each in shown]


def endpoints(cloud: Cloud, name: str) -> list[str]:
    """Return the addresses of machines to which an address routes traffic."""
    held = cloud.api.find(ENDPOINT_SLICE, ("default", name)) or {}
    return [address for each in held.get("endpoints") or () for address in each["addresses"]]


async def test_two_controllers_of_a_service_do_not_write_in_turn(cloud: Cloud) -> None:
    """Such as the operator and MetalLB in the cluster, which correct the status of each other."""
    create(cloud, workers=1, loadBalancers={"poolName": "public"})
    await cloud.ready()
    expose(cloud, "web")
    await cloud.until(lambda: ingress(cloud, "web") == [ADDRESS], "it gets an address")
    held = cloud.workload().get(SERVICE, ("default", "web"))
    other = {"loadBalancer": {"ingress": [{"ip": "192.168.7.7"}]}}
    cloud.workload().patch_status(SERVICE, Key("default", "web"), {**held["status"], **other})

    def message() -> str:
        return str(cloud.condition("LoadBalancersReady").get("message"))

    await cloud.until(lambda: "has written an address" in message(), "it reports it")
    assert "loadBalancerClass" in message()
    assert ingress(cloud, "web") == ["192.168.7.7"]
    assert endpoints(cloud, exposure_name("edge", Key("default", "web"))), "it is kept"

    cloud.workload().patch_status(SERVICE, Key("default", "web"), {"loadBalancer": {"ingress": []}})
    await cloud.until(lambda: ingress(cloud, "web") == [ADDRESS], "the other one has gone")


async def test_deleted_cluster_routes_no_address_to_a_machine_that_is_gone(cloud: Cloud) -> None:
    """A pod of somebody else may get the address of the machine, while other machines stop."""
    create(cloud, workers=2, loadBalancers={"poolName": "public"})
    await cloud.ready()
    expose(cloud, "web")
    await cloud.until(lambda: ingress(cloud, "web") == [ADDRESS], "it gets an address")
    for name in (WEB_0, PLANE):
        held = {"metadata": {"finalizers": ["example.com/hold"]}}
        cloud.api.patch(INSTANCE, ("default", name), held)

    cloud.api.delete(KUBERNETES_CLUSTER, EDGE)
    await cloud.until(lambda: WEB_1 not in cloud.instances(), "a worker has gone")
    await cloud.operator.converged()
    names = [key_of(each).name for each in cloud.api.objects(ENDPOINT_SLICE)]
    assert names == ["edge-api"], "nodes that stop have an API server"
    assert [key_of(each).name for each in cloud.api.objects(IP_CLAIM)] == ["edge-api"]

    cloud.api.patch(INSTANCE, ("default", WEB_0), {"metadata": {"finalizers": []}})
    await cloud.until(lambda: endpoints(cloud, "edge-api") == [], "the API is closed")
    assert cloud.instances() == [PLANE]
    cloud.api.patch(INSTANCE, ("default", PLANE), {"metadata": {"finalizers": []}})
    await cloud.until(lambda: cloud.api.find(KUBERNETES_CLUSTER, EDGE) is None, "it is gone")


async def test_refused_address_of_a_service_stops_nothing_else(cloud: Cloud) -> None:
    """Such as by a ResourceQuota of the namespace, which a user of the cluster can use up."""
    create(cloud, loadBalancers={"poolName": "public"})
    await cloud.ready()
    cloud.api.fail("create", ENDPOINT_SLICE, status=403, times=None)
    cloud.api.fail("patch", ENDPOINT_SLICE, status=403, times=None)
    expose(cloud, "web")

    await cloud.until(
        lambda: cloud.condition("LoadBalancersReady").get("reason") == "WriteRefused", "it is said"
    )
    cloud.api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"pools": []}})
    await cloud.until(lambda: cloud.instances() == [PLANE], "the node is drained and removed")
    await cloud.ready()
