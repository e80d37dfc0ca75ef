"""Builders of broken states, as the API server, the kubelet and the charts leave them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubectl_slipway.conftest import Lab, ago, build_namespace
from libs.common.crd import kind_of
from libs.common.kinds import EVENT, NAMESPACE, POD, PVC, Manifest, build_object, uid_of
from libs.common.testing.fakeapi import Request
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.podset.api import PodSet
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.volumes.api.v1alpha1 import DEMO_VOLUME

PODSET = kind_of(PodSet)
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


def pod_of(
    lab: Lab, status: Manifest, event: tuple[str, str] | None = None, **metadata: Any
) -> None:
    """Put a PodSet that waits for a pod in this state, perhaps with an Event about the pod."""
    lab.install("podset")
    parent = lab.api.create(podset(status=not_ready("PodsNotReady", "0 of 1 pods are available")))
    pod = build_object(
        POD,
        "web-0",
        "default",
        spec={"containers": [{"name": "app", "image": "example.com/app:1"}], "nodeName": "n-1"},
        metadata=metadata,
        status=status,
    )
    made = add_child(lab, parent, pod)
    if event:
        add_event(lab, made, *event)


def unscheduled(message: str) -> Manifest:
    reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"phase": "Pending", "conditions": [{**reason, "message": message}]}


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
    needed = {
        "serverAddress": "pulsar://p:6650",
        "topic": "t",
        "subscriptionName": "s",
        "replicas": 1,
    }
    refused = not_ready("AuthenticationFailed", "the broker refused", AuthenticationValid="False")
    lab.put(build_object(PULSAR_CONSUMER, "orders", "default", spec=needed, status=refused))


def pool(name: str = "public", **spec: Any) -> Manifest:
    defaults = {"family": "IPv4", "addresses": ["203.0.113.7"]}
    return build_object(IP_POOL, name, spec={**defaults, **spec})


def claim(name: str = "web", **spec: Any) -> Manifest:
    return build_object(IP_CLAIM, name, "default", spec={"poolRef": {"name": "public"}, **spec})
