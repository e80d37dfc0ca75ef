"""Broken states, and how `why` names each of them.

`STATES` are made by hand as the API server, the kubelet and the charts leave them; `RECONCILED` are
objects whose status the real operators write here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from kubectl_slipway.conftest import Lab, ago, build_namespace
from libs.common.crd import kind_of
from libs.common.kinds import (
    EVENT,
    NAMESPACE,
    POD,
    PVC,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.testing.fakeapi import Request
from libs.common.testing.harness import OperatorHarness
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.controller import OPERATOR as COMPUTE
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR as IPAM
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.controller import OPERATOR as JMX
from operators.network.api.v1alpha1.firewall import FIREWALL
from operators.network.api.v1alpha1.network import NETWORK
from operators.network.controller import OPERATOR as NETWORKS
from operators.podset.api import PodSet
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from operators.volumes.controller import OPERATOR as VOLUMES

PODSET = kind_of(PodSet)
OPERATORS = {
    "compute": COMPUTE,
    "ipam": IPAM,
    "jmxexporter": JMX,
    "network": NETWORKS,
    "volumes": VOLUMES,
}
IMAGE = {"url": "https://images.example.com/debian-13.qcow2"}


def podset(name: str = "web", namespace: str = "default", **parts: Any) -> Manifest:
    return build_object(PODSET, name, namespace, spec={"replicas": 1}, **parts)


def not_ready(reason: str, message: str = "", generation: int = 1, **more: str) -> Manifest:
    listed = {"Ready": "False", **more}
    conditions = [
        {
            "type": type,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            "lastTransitionTime": ago(240),
        }
        for type, status in listed.items()
    ]
    return {"conditions": conditions, "observedGeneration": generation}


def add_child(lab: Lab, parent: Manifest, child: Manifest) -> Manifest:
    child["metadata"]["ownerReferences"] = [
        {
            "apiVersion": parent["apiVersion"],
            "kind": parent["kind"],
            "name": parent["metadata"]["name"],
            "uid": uid_of(parent),
            "controller": True,
        }
    ]
    return lab.api.create(child)


def add_event(lab: Lab, regarding: Manifest, reason: str, note: str) -> None:
    lab.put(
        build_object(
            EVENT,
            f"{regarding['metadata']['name']}.{reason.lower()}",
            "default",
            type="Warning",
            reason=reason,
            action="Reconcile",
            note=note,
            eventTime=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            reportingController="test",
            reportingInstance="test",
            regarding={
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "name": regarding["metadata"]["name"],
                "namespace": "default",
                "uid": uid_of(regarding),
            },
        )
    )


def pod_of(lab: Lab, status: Manifest, **metadata: Any) -> None:
    """Put a PodSet that waits for a pod in this state."""
    lab.install("podset")
    parent = lab.api.create(podset(status=not_ready("PodsNotReady", "0 of 1 pods are available")))
    pod = build_object(
        POD,
        "web-0",
        "default",
        spec={"containers": [{"name": "app", "image": "example.com/app:1"}]},
        metadata=metadata,
        status=status,
    )
    add_child(lab, parent, pod)


def waits(cause: str, message: str = "", /, **last: Any) -> Manifest:
    container = {
        "name": "app",
        "image": "example.com/app:1",
        "imageID": "",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": cause, "message": message}},
    }
    if last:
        container["lastState"] = {"terminated": last}
    return {"phase": "Pending", "containerStatuses": [container]}


def volume_with_claim(lab: Lab, claim_status: Manifest, event: tuple[str, str] | None) -> None:
    lab.install("volumes")
    parent = lab.api.create(
        build_object(
            DEMO_VOLUME,
            "data",
            "default",
            spec={"name": "data", "size": 1},
            status=not_ready("Provisioning", "the claim waits for its volume"),
        )
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = build_object(PVC, "data", "default", spec=spec, status=claim_status)
    made = add_child(lab, parent, claim)
    if event:
        add_event(lab, made, *event)


def exporter_with_failure(lab: Lab) -> None:
    lab.install("jmxexporter")
    failure = {
        "pod": "shop-0",
        "container": "app",
        "reason": "AttachDisabled",
        "message": "the JVM runs with -XX:+DisableAttachMechanism",
    }
    status = {**not_ready("TargetsFailed", "1 container failed"), "failures": [failure]}
    spec = {"labelSelector": {"app": "shop"}, "config": {"configMapName": "rules"}, "port": 9400}
    lab.put(build_object(PROMETHEUS_JMX_EXPORTER, "app", "default", spec=spec, status=status))


def delete_with(lab: Lab, finalizer: str, message: str = "") -> None:
    lab.install("podset")
    status = not_ready("Terminating", message, Terminating="True")
    lab.put(podset(metadata={"finalizers": [finalizer]}, status=status))
    lab.api.collector.pause()
    propagation = "Foreground" if finalizer == "foregroundDeletion" else "Background"
    lab.api.delete(PODSET, ("default", "web"), propagation=propagation)


def no_access(lab: Lab) -> None:
    lab.install("podset")
    lab.put(podset())

    async def review(request: Request) -> tuple[int, Manifest]:
        asked = request.body["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked["subresource"]) != ("patch", "status")
        return 201, {"status": {"allowed": allowed}}

    lab.api.aggregate("authorization.k8s.io", "v1", review)


def terminating_namespace(lab: Lab) -> None:
    lab.install("podset")
    name = build_namespace("ending")
    name["spec"] = {"finalizers": ["kubernetes"]}
    lab.put(name, podset(namespace="ending", status=not_ready("FailedCreate", "forbidden")))
    lab.api.collector.pause()
    lab.api.delete(NAMESPACE, ("", "ending"))


def paused(lab: Lab) -> None:
    lab.install("podset")
    lab.put(podset(metadata={"annotations": {"slipway.dev/paused": "true"}}))


def stale(lab: Lab) -> None:
    lab.install("podset")
    lab.put(podset(status=not_ready("Updating", "1 of 3 pods")))
    lab.api.patch(PODSET, ("default", "web"), {"spec": {"replicas": 3}})


def warned(lab: Lab) -> None:
    lab.install("podset")
    made = lab.api.create(podset(status=not_ready("ScalingUp", "0 of 1 pods exist")))
    add_event(lab, made, "FailedCreate", "exceeded quota: small")


def only_operator(lab: Lab, **options: Any) -> None:
    lab.install("podset", **options)
    lab.put(podset())


def chain(lab: Lab) -> None:
    """Put an Instance that waits for its claim, which waits for its pool."""
    lab.install("compute", "ipam")
    lab.put(
        build_object(
            IP_POOL,
            "public",
            spec={"family": "IPv4", "addresses": ["203.0.113.0/30"]},
            status=not_ready("NoneFree", "1 claim waits", Exhausted="True"),
        ),
        build_object(
            IP_CLAIM,
            "web-ip",
            "default",
            spec={"poolRef": {"name": "public"}},
            status=not_ready("PoolExhausted", "IPPool public has no free address"),
        ),
        build_object(
            INSTANCE,
            "web",
            "default",
            spec={
                "size": "small",
                "image": IMAGE,
                "publicIP": {"mode": "Claim", "claimName": "web-ip"},
            },
            status=not_ready("AddressPending", "IPClaim web-ip has no address"),
        ),
        build_object(
            INSTANCE_SIZE,
            "small",
            spec={"cpus": 1, "memory": "1Gi", "disk": "1Gi"},
        ),
    )


def failed_operation(lab: Lab) -> None:
    lab.install("compute")
    lab.put(
        build_object(
            OPERATION,
            "op",
            "default",
            spec={"type": "Reboot", "targetRef": {"name": "web"}},
            status=not_ready("DeadlineExceeded", "3600 s were not enough", Failed="True"),
        )
    )


def refused_login(lab: Lab) -> None:
    lab.install("pulsarconsumer")
    needed = {"serverAddress": "pulsar://pulsar:6650", "topic": "t", "subscriptionName": "s"}
    refused = not_ready("AuthenticationFailed", "the broker refused", AuthenticationValid="False")
    lab.put(build_object(PULSAR_CONSUMER, "orders", "default", spec=needed, status=refused))


@dataclass(frozen=True)
class State:
    """A broken state: how it is made, what is asked, and what the first finding says."""

    name: str
    make: Callable[[Lab], None]
    code: str
    cause: str
    remedy: str = ""
    target: str = "podset/web"
    namespace: str = "default"


STATES = [
    State(
        "JVM that refuses agents",
        exporter_with_failure,
        "AttachDisabled",
        "(container app)",
        "Remove -XX:+DisableAttachMechanism",
        "prometheusjmxexporter/app",
    ),
    State(
        "operator not installed",
        lambda lab: lab.put(podset()),
        "OperatorMissing",
        "The podset operator is not installed",
        "helm install podset",
    ),
    State(
        "namespace not watched",
        lambda lab: only_operator(lab, watches="shop,bank"),
        "NamespaceNotWatched",
        "watches shop,bank",
        "Add default to watch.namespaces",
    ),
    State(
        "operator scaled to zero",
        lambda lab: only_operator(lab, replicas=0, ready=0),
        "OperatorScaledToZero",
        "has 0 replicas",
        "kubectl scale deployment/podset -n slipway-system --replicas=1",
    ),
    State(
        "image of the operator missing",
        lambda lab: only_operator(lab, ready=0, waiting={"reason": "ImagePullBackOff"}),
        "OperatorNotReady",
        "The image slipway/podset:0.1.0",
        "imagePullSecrets",
    ),
    State(
        "operator crashes",
        lambda lab: only_operator(lab, ready=0, waiting={"reason": "CrashLoopBackOff"}),
        "OperatorNotReady",
        "restarts repeatedly",
        "kubectl logs podset-5d8f-abcde -c operator --previous",
    ),
    State(
        "nobody leads",
        lambda lab: only_operator(lab, renewed=300),
        "NoLeader",
        "is not renewed",
    ),
    State(
        "uninstalled half-way",
        lambda lab: only_operator(lab, holder="release"),
        "OperatorReleased",
        "An uninstall has stopped the podset operator",
        "delete the Lease podset",
    ),
    State("permission missing", no_access, "PermissionMissing", "patch podsets/status"),
    State(
        "namespace being deleted",
        terminating_namespace,
        "NamespaceTerminating",
        "Namespace ending is being deleted",
        namespace="ending",
    ),
    State("paused", paused, "Paused", "slipway.dev/paused", "kubectl slipway resume PodSet/web"),
    State(
        "never reconciled",
        only_operator,
        "NotReconciled",
        "has not written a status",
        "kubectl slipway logs podset --object web",
    ),
    State("stale status", stale, "Updating", "1 of 3 pods"),
    State(
        "clean-up does not finish",
        lambda lab: delete_with(lab, "batch.tutorial.kubebuilder.io/finalizer", "pod web-0 stays"),
        "DeletionBlocked",
        "pod web-0 stays",
        "force-finalize PodSet/web",
    ),
    State(
        "finalizer of another component",
        lambda lab: delete_with(lab, "backup.example.com/keep"),
        "ForeignFinalizer",
        "backup.example.com/keep",
    ),
    State(
        "waits for dependents",
        lambda lab: delete_with(lab, "foregroundDeletion"),
        "WaitingForDependents",
        "waits for objects that it owns",
    ),
    State("only an event says why", warned, "ScalingUp", "0 of 1 pods exist"),
    State(
        "pod cannot be scheduled",
        lambda lab: pod_of(
            lab,
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient memory.",
                    }
                ],
            },
        ),
        "Unschedulable",
        "3 Insufficient memory",
        "Add capacity",
    ),
    State(
        "image of a pod missing",
        lambda lab: pod_of(lab, waits("ErrImagePull", "manifest unknown")),
        "ErrImagePull",
        "manifest unknown",
        "Check the name of the image",
    ),
    State(
        "pod crashes",
        lambda lab: pod_of(lab, waits("CrashLoopBackOff", exitCode=3, reason="Error")),
        "CrashLoopBackOff",
        "exit code 3",
        "kubectl logs web-0 -c app --previous -n default",
    ),
    State(
        "pod out of memory",
        lambda lab: pod_of(lab, waits("CrashLoopBackOff", exitCode=137, reason="OOMKilled")),
        "OOMKilled",
        "more memory than its limit",
        "Raise the memory limit",
    ),
    State(
        "Secret of a pod missing",
        lambda lab: pod_of(lab, waits("CreateContainerConfigError", 'secret "db" not found')),
        "CreateContainerConfigError",
        'secret "db" not found',
        "Create the ConfigMap or Secret",
    ),
    State(
        "pod evicted",
        lambda lab: pod_of(
            lab, {"phase": "Failed", "reason": "Evicted", "message": "The node was low on disk."}
        ),
        "Evicted",
        "low on disk",
    ),
    State(
        "readiness probe fails",
        lambda lab: pod_of(
            lab,
            {
                **waits("x"),
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False"}],
            },
        ),
        "ProbeFailing",
        "app is not ready",
    ),
    State(
        "StorageClass missing",
        lambda lab: volume_with_claim(
            lab, {"phase": "Pending"}, ("ProvisioningFailed", 'storageclass "fast" not found')
        ),
        "ProvisioningFailed",
        'storageclass "fast" not found',
        "Create the StorageClass",
        target="demovolume/data",
    ),
    State(
        "volume lost",
        lambda lab: volume_with_claim(lab, {"phase": "Lost"}, None),
        "VolumeLost",
        "its data is lost",
        "Restore a backup",
        target="demovolume/data",
    ),
    State(
        "cause two objects away",
        chain,
        "NoneFree",
        "1 claim waits",
        "Add addresses to spec.addresses",
        target="instance/web",
    ),
    State(
        "Operation failed",
        failed_operation,
        "InstanceMissing",
        "Instance web, which spec.targetRef.name of Operation/op names, does not exist",
        "Create it, or change spec.targetRef.name",
        target="operation/op",
    ),
    State(
        "broker refuses the credentials",
        refused_login,
        "AuthenticationFailed",
        "the broker refused",
        target="pulsarconsumer/orders",
    ),
]


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.name)
async def test_why_names_the_cause(lab: Lab, state: State) -> None:
    state.make(lab)
    result = await lab.run("why", state.target, "-n", state.namespace, "-o", "json")
    assert not result.err
    first = result.data["findings"][0]
    assert (first["code"], result.code) == (state.code, 1), result.out
    assert state.cause in first["cause"]
    assert state.remedy in first["remedy"]


@dataclass(frozen=True)
class Reconciled:
    """Objects that a real operator finds fault with."""

    name: str
    operator: str
    objects: list[Manifest]
    target: str
    code: str
    cause: str
    remedy: str = ""
    exit: int = 1


def pool(name: str = "public", **spec: Any) -> Manifest:
    defaults = {"family": "IPv4", "addresses": ["203.0.113.7"]}
    return build_object(IP_POOL, name, spec={**defaults, **spec})


def claim(name: str = "web", **spec: Any) -> Manifest:
    return build_object(IP_CLAIM, name, "default", spec={"poolRef": {"name": "public"}, **spec})


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
        "",
    ),
    Reconciled("pool missing", "ipam", [claim()], "ipclaim/web", "IPPoolMissing", "IPPool public"),
    Reconciled(
        "pool exhausted",
        "ipam",
        [pool(), claim("first"), claim("web", priority=-1)],
        "ipclaim/web",
        "PoolExhausted",
        "",
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
        "",
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
        # The claim has its address, which is what Ready is about.
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
        "Network lan",
    ),
    Reconciled(
        "Multus missing",
        "network",
        [network(backend="Multus")],
        "network/lan",
        "MultiPolicyMissing",
        "install it, or set spec.isolation to None",
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
        "",
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
]


@pytest.mark.parametrize("state", RECONCILED, ids=lambda each: each.name)
async def test_why_understands_the_operators(lab: Lab, state: Reconciled) -> None:
    lab.install(state.operator)
    lab.put(*state.objects)
    async with OperatorHarness(OPERATORS[state.operator], lab.api.config) as harness:
        await harness.converged()
        result = await lab.run("why", state.target, "-o", "json")
    first = result.data["findings"][0]
    assert (first["code"], result.code) == (state.code, state.exit), result.out
    assert state.cause in first["cause"]
    assert state.remedy in first["remedy"]


def test_there_are_thirty_states() -> None:
    names = [each.name for each in STATES] + [each.name for each in RECONCILED]
    assert len(set(names)) == len(names) >= 30
