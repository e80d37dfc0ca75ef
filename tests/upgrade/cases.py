"""What the operators need in the tests of upgrades, and the objects of their users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.upgrade.cluster import Cluster, Manifest

_IP_CLAIMS: Final = "ipclaims.ipam.slipway.dev"


def build(api_version: str, kind: str, object_name: str, /, **spec: Any) -> Manifest:
    metadata = {"name": object_name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def build_podset(name: str) -> Manifest:
    return build("batch.tutorial.kubebuilder.io/v1", "PodSet", name, replicas=2)


def build_volume(name: str) -> Manifest:
    return build("storage.slipway.dev/v1alpha1", "DemoVolume", name, name=name, size=1)


def build_claim(name: str) -> Manifest:
    return build("ipam.slipway.dev/v1alpha1", "IPClaim", name, poolRef={"name": "demo"})


def build_firewall(name: str) -> Manifest:
    rule = {"name": "ssh", "protocol": "TCP", "ports": [22], "cidrs": ["192.0.2.0/24"]}
    return build(
        "network.slipway.dev/v1alpha1",
        "Firewall",
        name,
        networkRef={"name": "lan"},
        rules=[rule],
    )


def build_consumer(name: str) -> Manifest:
    return build(
        "consumer.pulsarconsumer.krvarma.com/v1",
        "PulsarConsumer",
        name,
        serverAddress="pulsar://pulsar:6650",
        topic=name,
        subscriptionName="test",
        replicas=1,
    )


def build_instance(name: str) -> Manifest:
    image = {"url": "https://images.example.com/debian-13.qcow2"}
    return build("compute.slipway.dev/v1alpha1", "Instance", name, size="small", image=image)


def build_kubernetes(name: str) -> Manifest:
    return build(
        "clusters.slipway.dev/v1alpha1",
        "KubernetesCluster",
        name,
        version="v1.34.2",
        image={"registry": "docker://registry.example.com/kubernetes-node:v1.34.2"},
        networkRef={"name": "lan"},
        controlPlane={"count": 1, "size": "small", "endpoint": {"poolName": "demo"}},
        pools=[],
    )


def build_exporter(name: str) -> Manifest:
    return build(
        "banzaicloud.com/v1alpha1",
        "PrometheusJmxExporter",
        name,
        labelSelector={"app": name},
        config={"configMapName": "rules", "configMapKey": "config.yaml"},
        port=9400,
        minReadySeconds=0,
    )


POOL: Final = build(
    "ipam.slipway.dev/v1alpha1", "IPPool", "demo", family="IPv4", addresses=["203.0.113.0/24"]
)
NETWORK: Final = build("network.slipway.dev/v1alpha1", "Network", "lan", cidrs=["10.10.0.0/16"])
ROUTED: Final = build(
    "network.slipway.dev/v1alpha1",
    "Network",
    "lan",
    cidrs=["10.10.0.0/16"],
    backend="Multus",
    providerNetworkRef={"name": "office"},
    poolRef={"name": "private"},
)
"""A network on which nodes of clusters can run."""
SIZE: Final = build(
    "compute.slipway.dev/v1alpha1", "InstanceSize", "small", cpus=2, memory="4Gi", disk="10Gi"
)
RULES: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "rules"},
    "data": {"config.yaml": "rules:\n- pattern: .*\n"},
}


def run_jvms(cluster: Cluster) -> None:
    """Run a pod with a JVM for each object that a test creates first, as a kubelet does."""
    started = "2026-01-01T00:00:00Z"
    for number in range(3):
        name = f"first-{number}"
        container = {"name": "app", "image": "example.com/shop:1"}
        pod = build("v1", "Pod", name, containers=[container], nodeName="node")
        pod["metadata"]["labels"] = {"app": name}
        cluster.apply(pod)
        running = {
            **container,
            "containerID": f"containerd://{name}",
            "imageID": "shop",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": started}},
        }
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": started}
        status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [ready]}
        cluster.set_status("pod", name, {**status, "containerStatuses": [running]})


def give_addresses(cluster: Cluster) -> None:
    """Give each IPClaim an address, as the ipam operator does."""
    claims = cluster.items(_IP_CLAIMS)
    taken = {claim.get("status", {}).get("address") for claim in claims}
    free = (f"203.0.113.{number}" for number in range(1, 255))
    free = (address for address in free if address not in taken)
    for claim in claims:
        if not claim.get("status", {}).get("address"):
            cluster.set_status(_IP_CLAIMS, claim["metadata"]["name"], {"address": next(free)})


@dataclass(frozen=True)
class Case:
    """An operator, what it needs, and the objects of its users.

    Attributes:
        build: Build an object of a user.
        creates: What exists for each object of a user before the upgrade, as Kind/prefix of a name.
        needs: Operators whose kinds it uses; they do not run.
        objects: Objects that exist before.
        prepare: Create more of them.
        respond: Do the part of another operator.
        kinds: Kinds that it creates, other than kinds of Kubernetes.
        simulator: Whether the simulator of KubeVirt runs, and serves these kinds.
    """

    build: Callable[[str], Manifest]
    creates: Sequence[str] = ()
    needs: Sequence[str] = ()
    objects: Sequence[Manifest] = ()
    prepare: Callable[[Cluster], None] | None = None
    respond: Callable[[Cluster], None] | None = None
    kinds: Sequence[str] = ()
    simulator: bool = False


CASES: Final[dict[str, Case]] = {
    "podset": Case(build_podset, ["Pod/{}-pod-0", "Pod/{}-pod-1"]),
    "volumes": Case(build_volume, ["PersistentVolumeClaim/{}"]),
    "ipam": Case(build_claim, objects=[POOL]),
    "network": Case(build_firewall, ["NetworkPolicy/"], objects=[NETWORK]),
    "pulsarconsumer": Case(build_consumer, ["Deployment/{}"]),
    "jmxexporter": Case(build_exporter, ["Injector/{}/"], objects=[RULES], prepare=run_jvms),
    "compute": Case(
        build_instance,
        ["VirtualMachineInstance/{}"],
        objects=[SIZE],
        kinds=[
            "virtualmachines.kubevirt.io",
            "virtualmachineinstances.kubevirt.io",
            "datavolumes.cdi.kubevirt.io",
        ],
        simulator=True,
    ),
    "clusters": Case(
        build_kubernetes,
        ["Instance/{}-"],
        needs=("compute", "ipam", "network"),
        objects=[ROUTED],
        respond=give_addresses,
        kinds=[
            "instances.compute.slipway.dev",
            "operations.compute.slipway.dev",
            _IP_CLAIMS,
            "firewalls.network.slipway.dev",
        ],
    ),
}
