"""Broken states that the tests build themselves, and how `why` names each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kubectl_slipway.conftest import Lab
from kubectl_slipway.states.conftest import (
    chain,
    delete_with,
    exporter_with_failure,
    failed_operation,
    no_access,
    only_operator,
    paused,
    pod_of,
    podset,
    refused_login,
    stale,
    terminating_namespace,
    unscheduled,
    volume_with_claim,
    waits,
    warned,
)


@dataclass(frozen=True)
class State:
    """A broken state, the object that `why` diagnoses, and the expected first finding."""

    name: str
    make: Callable[[Lab], None]
    code: str
    cause: str
    remedy: str
    target: str = "podset/web"
    namespace: str = "default"


START_ERROR = {
    "reason": "StartError",
    "exitCode": 128,
    "message": 'runc create failed: exec: "serve": executable file not found in $PATH',
}
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
        "helm install podset oci://",
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
        "Check whether the pods reach the API server",
    ),
    State(
        "uninstalled half-way",
        lambda lab: only_operator(lab, holder="release"),
        "OperatorReleased",
        "An uninstall has stopped the podset operator",
        "delete the Lease podset",
    ),
    State(
        "permission missing",
        no_access,
        "PermissionMissing",
        "patch podsets/status",
        "Upgrade the release",
    ),
    State(
        "namespace being deleted",
        terminating_namespace,
        "NamespaceTerminating",
        "Namespace ending is being deleted",
        "Use another namespace",
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
    State(
        "stale status",
        stale,
        "StaleStatus",
        "about generation 1 of the spec; the current generation is 2",
        "look for errors: kubectl slipway logs podset --object web",
    ),
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
        "Find out which component uses backup.example.com/keep",
    ),
    State(
        "waits for dependents",
        lambda lab: delete_with(lab, "foregroundDeletion"),
        "WaitingForDependents",
        "waits for objects that it owns",
        "kubectl slipway tree PodSet/web",
    ),
    State(
        "only an event says why",
        warned,
        "FailedCreate",
        "exceeded quota: small",
        "Fix what the message names",
    ),
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
        "image that no registry can have",
        lambda lab: pod_of(
            lab, waits("InvalidImageName", 'couldn\'t parse image name "Not A Name"')
        ),
        "InvalidImageName",
        'couldn\'t parse image name "Not A Name"',
        "Correct the image in the pod template",
    ),
    State(
        "image that must be on the node already",
        lambda lab: pod_of(
            lab,
            waits(
                "ErrImageNeverPull",
                'Container image "app:1" is not present with pull policy of Never',
            ),
        ),
        "ErrImageNeverPull",
        "not present with pull policy of Never",
        "Load the image onto the node, or change imagePullPolicy",
    ),
    State(
        "Secret of a mounted volume missing",
        lambda lab: pod_of(
            lab,
            {"phase": "Pending"},
            (
                "FailedMount",
                'MountVolume.SetUp failed for volume "s" : secret "absent" not found',
            ),
        ),
        "FailedMount",
        'secret "absent" not found',
        "Create the object that the event names",
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
        "kubectl describe pod web-0 -n default",
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
        "kubectl describe pod web-0 -n default shows the probe",
    ),
    State(
        "hook ends a container",
        lambda lab: pod_of(
            lab,
            waits("CrashLoopBackOff", exitCode=143, reason="Error"),
            ("FailedPostStartHook", "PostStartHook failed"),
        ),
        "ProbeKills",
        "The kubelet restarts container app: PostStartHook failed",
        "Check the probe or hook of the pod template",
    ),
    State(
        "provisioner does not run",
        lambda lab: volume_with_claim(
            lab,
            {"phase": "Pending"},
            (
                "ExternalProvisioning",
                "Waiting for a volume of the external provisioner 'nobody.example.com'",
            ),
        ),
        "ExternalProvisioning",
        "external provisioner 'nobody.example.com'",
        "Check that the provisioner of the StorageClass runs",
        "demovolume/data",
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
        "Correct the credentials in the Secret",
        target="pulsarconsumer/orders",
    ),
    State(
        "command not in the image",
        lambda lab: pod_of(lab, waits("CrashLoopBackOff", **START_ERROR)),
        "StartError",
        'exec: "serve": executable file not found',
        "Correct command in the pod template",
    ),
    State(
        "image runs as root",
        lambda lab: pod_of(
            lab,
            waits(
                "CreateContainerConfigError",
                "container has runAsNonRoot and image will run as root (pod: ...)",
            ),
        ),
        "CreateContainerConfigError",
        "image will run as root",
        "Set runAsUser",
    ),
    State(
        "node of a pod lost",
        lambda lab: pod_of(
            lab,
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [
                    {
                        "name": "app",
                        "image": "example.com/app:1",
                        "imageID": "",
                        "ready": True,
                        "restartCount": 0,
                        "state": {"running": {}},
                    }
                ],
            },
            ("NodeNotReady", "Node is not ready"),
        ),
        "NodeNotReady",
        "node n-1 last reported",
        "kubectl describe node n-1",
    ),
    State(
        "claim of a pod missing",
        lambda lab: pod_of(lab, unscheduled('persistentvolumeclaim "data" not found')),
        "Unschedulable",
        'persistentvolumeclaim "data" not found',
        "Create the PersistentVolumeClaim",
    ),
    State(
        "taint of all nodes",
        lambda lab: pod_of(
            lab,
            unscheduled("0/3 nodes are available: 3 node(s) had untolerated taint(s)."),
        ),
        "Unschedulable",
        "untolerated taint",
        "Add a toleration",
    ),
    State(
        "liveness probe ends a container",
        lambda lab: pod_of(
            lab,
            waits("CrashLoopBackOff", "", reason="Error", exitCode=137),
            ("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
        ),
        "ProbeKills",
        "HTTP probe failed with statuscode: 500",
        "Check the probe",
    ),
    State(
        "no default StorageClass",
        lambda lab: volume_with_claim(
            lab,
            {"phase": "Pending"},
            ("FailedBinding", "no persistent volumes available and no storage class is set"),
        ),
        "FailedBinding",
        "no storage class is set",
        "mark one as default",
        target="demovolume/data",
    ),
    State(
        "volume attached to another node",
        lambda lab: pod_of(
            lab,
            waits("ContainerCreating"),
            ("FailedAttachVolume", 'Multi-Attach error for volume "pvc-1": already attached'),
        ),
        "FailedAttachVolume",
        "Multi-Attach error",
        "Fix the volume, network or node",
    ),
    State(
        "network plugin of a node broken",
        lambda lab: pod_of(
            lab,
            waits("ContainerCreating"),
            ("FailedCreatePodSandBox", 'plugin type="bridge" failed (add)'),
        ),
        "FailedCreatePodSandBox",
        'plugin type="bridge" failed',
        "Fix the volume, network or node",
    ),
    State(
        "pod refused by its node",
        lambda lab: pod_of(
            lab,
            {"phase": "Failed", "reason": "OutOfmemory", "message": "Node has too little memory"},
        ),
        "OutOfmemory",
        "too little memory",
        "kubectl describe pod web-0",
    ),
]


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.name)
async def test_why_names_the_cause(lab: Lab, state: State) -> None:
    state.make(lab)
    result = await lab.run("why", state.target, "-n", state.namespace, "-o", "json")
    assert not result.err
    first = result.data["findings"][0]
    assert (first["code"], result.code) == (state.code, 1), result.out
    assert state.cause
    assert state.cause in first["cause"]
    assert state.remedy
    assert state.remedy in first["remedy"]
