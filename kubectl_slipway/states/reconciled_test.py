"""Broken states whose status the real operators write, and how `why` names each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from kubectl_slipway.conftest import Lab
from kubectl_slipway.states.conftest import (
    IMAGE,
    PODSET,
    claim,
    not_ready,
    podset,
    pool,
)
from kubectl_slipway.states.made_test import STATES
from libs.common.kinds import POD, PVC, Manifest, build_object
from libs.common.testing.harness import OperatorHarness
from operators.clusters.controller import OPERATOR as CLUSTERS
from operators.clusters.samples import build_cluster, build_network
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.controller import OPERATOR as COMPUTE
from operators.ipam.controller import OPERATOR as IPAM
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.controller import OPERATOR as JMX
from operators.network.api.v1alpha1.firewall import FIREWALL
from operators.network.api.v1alpha1.network import NETWORK
from operators.network.api.v1alpha1.provider import PROVIDER_NETWORK
from operators.network.controller import OPERATOR as NETWORKS
from operators.podset.controller import OPERATOR as PODSETS
from operators.pulsarconsumer.controller import OPERATOR as CONSUMERS
from operators.pulsarconsumer.samples import build_manifest
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from operators.volumes.controller import OPERATOR as VOLUMES

OPERATORS = {
    "clusters": CLUSTERS,
    "compute": COMPUTE,
    "ipam": IPAM,
    "jmxexporter": JMX,
    "network": NETWORKS,
    "podset": PODSETS,
    "pulsarconsumer": CONSUMERS,
    "volumes": VOLUMES,
}
LOGIN = {"type": "Token", "token": {"secretKeyRef": {"name": "login", "key": "token"}}}


@dataclass(frozen=True)
class Reconciled:
    """Objects for which a real operator reports a problem, and the expected finding.

    Attributes:
        quota: Message with which the API server refuses every pod; empty if it refuses none.
    """

    name: str
    operator: str
    objects: list[Manifest]
    target: str
    code: str
    cause: str
    remedy: str
    exit: int = 1
    quota: str = ""


def network(**spec: Any) -> Manifest:
    return build_object(NETWORK, "lan", "default", spec={"cidrs": ["10.10.0.0/16"], **spec})


def ready_instance() -> Manifest:
    """Return an Instance that stays ready without KubeVirt, because it is paused."""
    instance = build_object(INSTANCE, "web", "default", spec={"size": "small", "image": IMAGE})
    instance["metadata"]["annotations"] = {"slipway.dev/paused": "true"}
    return {**instance, "status": not_ready("Running", Ready="True")}


def reboot(**target: Any) -> Manifest:
    spec = {"type": "Reboot", "targetRef": {"name": "web", **target}}
    return build_object(OPERATION, "op", "default", spec=spec)


RECONCILED = [
    Reconciled(
        "pool has no address",
        "ipam",
        [pool(excluded=["203.0.113.7"])],
        "ippool/public",
        "NoAddresses",
        "leave none of spec.addresses",
        "Change spec.addresses or spec.excluded",
    ),
    Reconciled(
        "pool missing",
        "ipam",
        [claim()],
        "ipclaim/web",
        "IPPoolMissing",
        "IPPool public, which spec.poolRef of IPClaim/web names, does not exist",
        "Create it",
    ),
    Reconciled(
        "pool exhausted",
        "ipam",
        [pool(), claim("first"), claim("web", priority=-1)],
        "ipclaim/web",
        "PoolExhausted",
        "IPPool public has no free address",
        "Add addresses to spec.addresses",
    ),
    Reconciled(
        "pool draining",
        "ipam",
        [pool(allocation="Draining"), claim()],
        "ipclaim/web",
        "Draining",
        "spec.allocation is Draining",
        "Set spec.allocation to Enabled",
    ),
    Reconciled(
        "address not in the pool",
        "ipam",
        [pool(), claim(address="198.51.100.1")],
        "ipclaim/web",
        "AddressOutOfRange",
        "198.51.100.1",
        "Change spec.address",
    ),
    Reconciled(
        "namespace not allowed",
        "ipam",
        [pool(allowedNamespaces={"matchLabels": {"team": "shop"}}), claim()],
        "ipclaim/web",
        "NamespaceNotAllowed",
        "does not serve namespace default",
        "spec.allowedNamespaces",
    ),
    Reconciled(
        "target missing",
        "ipam",
        [pool(), claim(target={"kind": "Service", "name": "shop"})],
        "ipclaim/web",
        "TargetNotFound",
        "shop",
        "Create the object that spec.target names",
        # The claim has its address, so it is Ready.
        exit=0,
    ),
    Reconciled(
        "network of a firewall missing",
        "network",
        [
            build_object(
                FIREWALL,
                "edge",
                "default",
                spec={"networkRef": {"name": "lan"}, "rules": []},
            )
        ],
        "firewall/edge",
        "NetworkMissing",
        "Network lan, which spec.networkRef of Firewall/edge names, does not exist",
        "Create it",
    ),
    Reconciled(
        "Multus missing",
        "network",
        [
            build_object(
                PROVIDER_NETWORK,
                "fabric",
                spec={"bridge": "br", "allowedNamespaces": {}, "vlans": [{"first": 1, "last": 9}]},
            ),
            network(backend="Multus", providerNetworkRef={"name": "fabric"}),
        ],
        "network/lan",
        "MultiPolicyMissing",
        "does not serve multi-networkpolicies.k8s.cni.cncf.io",
        "Install MultiNetworkPolicy, or set spec.isolation to None",
    ),
    Reconciled(
        "claim of somebody else",
        "volumes",
        [
            build_object(
                PVC,
                "data",
                "default",
                spec={
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            ),
            build_object(DEMO_VOLUME, "data", "default", spec={"name": "data", "size": 1}),
        ],
        "demovolume/data",
        "UnownedClaim",
        "existed before and is not changed; set spec.adopt",
        "spec.adopt",
    ),
    Reconciled(
        "configuration of an exporter missing",
        "jmxexporter",
        [
            build_object(
                PROMETHEUS_JMX_EXPORTER,
                "app",
                "default",
                spec={
                    "labelSelector": {"app": "shop"},
                    "config": {"configMapName": "rules"},
                    "port": 9400,
                },
            )
        ],
        "prometheusjmxexporter/app",
        "ConfigMissing",
        "rules",
        "Create the ConfigMap",
    ),
    Reconciled(
        "Instance of an Operation recreated",
        "compute",
        [ready_instance(), reboot(uid="6b9f")],
        "operation/op",
        "TargetNotFound",
        "instead of 6b9f",
        "Check the name of the Instance",
    ),
    Reconciled(
        "size of an Instance missing",
        "compute",
        [build_object(INSTANCE, "web", "default", spec={"size": "small", "image": IMAGE})],
        "instance/web",
        "InstanceSizeMissing",
        "InstanceSize small, which spec.size of Instance/web names, does not exist",
        "Create it",
    ),
    Reconciled(
        "network of a cluster missing",
        "clusters",
        [build_cluster()],
        "kubernetescluster/edge",
        "NetworkMissing",
        "Network lan, which spec.networkRef",
        "Create it",
    ),
    Reconciled(
        "operator of a Network that a cluster uses missing",
        "clusters",
        [build_network(cidrs=["10.0.0.0/16"]), build_cluster()],
        "kubernetescluster/edge",
        "OperatorMissing",
        "The network operator is not installed",
        "helm install network oci://",
    ),
    Reconciled(
        "quota refuses the pods of a set",
        "podset",
        [podset()],
        "podset/web",
        "FailedCreate",
        "exceeded quota: pods",
        "Fix what the message names",
        quota="exceeded quota: pods",
    ),
    Reconciled(
        "set with pods paused",
        "podset",
        [build_object(PODSET, "web", "default", spec={"replicas": 1, "paused": True})],
        "podset/web",
        "Paused",
        "spec.paused is set, so no pods are created",
        "Set spec.paused to false",
    ),
    Reconciled(
        "pod of a set does not start",
        "podset",
        [podset()],
        "podset/web",
        "PodsNotReady",
        "web-pod-0 (Pending, not ready)",
        "kubectl slipway tree PodSet/web",
    ),
    Reconciled(
        "Secret of a consumer's login missing",
        "pulsarconsumer",
        [build_manifest(authentication=LOGIN, adminAddress="http://broker.example.com:8080")],
        "pulsarconsumer/orders",
        "SecretMissing",
        "spec.authentication.token: there is no Secret login",
        "Create the Secret",
    ),
    Reconciled(
        "broker address of a consumer belongs to the operator",
        "pulsarconsumer",
        [build_manifest(adminAddress="http://127.0.0.1:8080")],
        "pulsarconsumer/orders",
        "RefusedAddress",
        "127.0.0.1 resolves to an address of the operator's own pod or node",
        "Set spec.adminAddress to the address of the broker",
    ),
    Reconciled(
        "broker of a consumer does not respond",
        "pulsarconsumer",
        [build_manifest()],
        "pulsarconsumer/orders",
        "Unreachable",
        "the admin API does not respond",
        "Check spec.adminAddress",
    ),
]


@pytest.mark.parametrize("state", RECONCILED, ids=lambda each: each.name)
async def test_why_understands_the_operators(lab: Lab, state: Reconciled) -> None:
    lab.install(state.operator)
    lab.put(*state.objects)
    if state.quota:
        lab.api.fail("create", POD, status=403, times=None, message=state.quota)
    async with OperatorHarness(OPERATORS[state.operator], lab.api.config) as harness:
        await harness.converged()
    # Not before, because the operator logs to the output from which the findings are read.
    result = await lab.run("why", state.target, "-o", "json")
    first = result.data["findings"][0]
    assert (first["code"], result.code) == (state.code, state.exit), result.out
    assert state.cause
    assert state.cause in first["cause"]
    assert state.remedy
    assert state.remedy in first["remedy"]


async def test_why_reports_a_missing_engine_in_addition_to_the_broker(lab: Lab) -> None:
    lab.install("pulsarconsumer")
    lab.put(build_manifest(autoscaling={"engine": "KEDA", "maxReplicas": 3}))
    async with OperatorHarness(CONSUMERS, lab.api.config) as harness:
        await harness.converged()
    result = await lab.run("why", "pulsarconsumer/orders", "-o", "json")

    broker, engine, *rest = result.data["findings"]
    assert (broker["code"], engine["code"]) == ("Unreachable", "EngineMissing")
    assert engine["remedy"] == "Install KEDA, or set spec.autoscaling.engine to Native."
    # What follows from the causes comes last.
    assert [each["code"] for each in rest] == ["NoConsumerReady", "Starting"]


def test_there_are_thirty_states() -> None:
    names = [*(each.name for each in STATES), *(each.name for each in RECONCILED)]
    assert len(set(names)) == len(names) >= 30
