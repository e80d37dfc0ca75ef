"""Rules for built-in kinds that operators create: pods, claims, Deployments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from kubectl_slipway.diagnosis.findings import Facts, Finding
from kubectl_slipway.model import Manifest, condition, parse_time, render_age, title

_STUCK_SECONDS = 60
_UNSCHEDULABLE = {
    "unbound immediate PersistentVolumeClaims": "Check the claims of the pod: kubectl get pvc.",
    "persistentvolumeclaim": "Create the PersistentVolumeClaim, or correct the pod template.",
    "untolerated taint": "Add a toleration to the pod template, or remove the taint of a node.",
    "": "Add capacity, or change requests, node selectors or tolerations.",
}
_NOT_STARTED = {
    "runAsNonRoot": "Set runAsUser in the pod template, or use an image that does not run as root.",
    "executable file not found": "Correct command in the pod template: the image does not have it.",
    "no such file or directory": "Correct command in the pod template: the image does not have it.",
    "": "Create the ConfigMap or Secret that the pod names, or correct the pod template.",
}
_CLAIM_EVENTS = {
    "ProvisioningFailed": (
        "The volume cannot be provisioned",
        "Create the StorageClass, or check its provisioner.",
    ),
    "ExternalProvisioning": (
        "The provisioner has not created the volume",
        "Check that the provisioner of the StorageClass runs.",
    ),
    "FailedBinding": (
        "The claim cannot be bound",
        "Name a StorageClass in the claim, or mark one as default.",
    ),
}
_PROBES = ("Liveness probe failed", "Startup probe failed", "PostStartHook failed")
"""Begin of the Events after which the kubelet ends a container."""
_IMAGE = {
    **dict.fromkeys(
        ("ImagePullBackOff", "ErrImagePull"),
        "Check the name of the image, the registry and imagePullSecrets.",
    ),
    "InvalidImageName": "Correct the image in the pod template.",
    "ErrImageNeverPull": "Load the image onto the node, or change imagePullPolicy.",
}
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


def find_workload(facts: Facts) -> Sequence[Finding]:
    """Find the problems of a built-in object."""
    match facts.manifest.get("kind"):
        case "Pod":
            return list(find_pod_problem(facts.manifest, facts.now, facts.events))
        case "PersistentVolumeClaim":
            return list(_find_claim_problem(facts))
        case "Deployment" | "ReplicaSet":
            return list(_find_deployment_problem(facts))
    return ()


def find_pod_problem(
    pod: Manifest, now: datetime, events: Sequence[Manifest] = ()
) -> Iterator[Finding]:
    """Find why a pod does not run or is not ready; at most one finding."""
    subject, meta = title(pod), pod["metadata"]
    status: Mapping[str, Any] = pod.get("status") or {}
    where = f"-n {meta.get('namespace')}"
    if meta.get("deletionTimestamp"):
        ended = parse_time(meta["deletionTimestamp"])
        if ended is not None and (now - ended).total_seconds() > _STUCK_SECONDS:
            age = render_age(meta["deletionTimestamp"], now)
            node = (pod.get("spec") or {}).get("nodeName") or "its node"
            yield Finding(
                "PodStuckTerminating",
                subject,
                f"The pod should have ended {age} ago; {node} does not confirm that it has.",
                "Check the node. If it is certain that it is off: "
                f"kubectl taint node {node} "
                "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
            )
        return
    scheduled = condition(pod, "PodScheduled")
    gates = [each.get("name", "") for each in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if gates:
        yield Finding(
            "SchedulingGated",
            subject,
            f"The pod waits until {', '.join(gates)} is removed from spec.schedulingGates.",
            "Check the controller that removes this scheduling gate.",
        )
        return
    if scheduled is not None and scheduled.status == "False":
        yield Finding(
            "Unschedulable",
            subject,
            f"No node can run the pod: {scheduled.message}",
            _advise(scheduled.message, _UNSCHEDULABLE),
        )
        return
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        found = _find_container_problem(subject, each, where, meta["name"], events)
        if found is not None:
            yield found
            return
    if status.get("phase") == "Failed":
        reason = status.get("reason") or "PodFailed"
        message = status.get("message") or "a container ended with an error"
        remedy = f"kubectl describe pod {meta['name']} {where}"
        yield Finding(reason, subject, f"The pod failed: {message}", remedy)
        return
    yield from _find_start_problem(pod, events, now)


def _find_container_problem(
    subject: str, container: Mapping[str, Any], where: str, pod: str, events: Sequence[Manifest]
) -> Finding | None:
    name = container.get("name", "")
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason") or "", waiting.get("message") or ""
    last = (container.get("lastState") or {}).get("terminated") or {}
    ended = (container.get("state") or {}).get("terminated") or {}
    if "OOMKilled" in (ended.get("reason"), last.get("reason")):
        return Finding(
            "OOMKilled",
            subject,
            f"Container {name} used more memory than its limit and was killed.",
            "Raise the memory limit.",
        )
    if reason in _IMAGE:
        return Finding(
            reason,
            subject,
            f"The image {container.get('image')} of container {name} cannot be pulled: {message}",
            _IMAGE[reason],
        )
    if reason in _CONFIG:
        return Finding(
            reason,
            subject,
            f"Container {name} cannot be created: {message}",
            _advise(message, _NOT_STARTED),
        )
    if reason == "CrashLoopBackOff" and last.get("reason") == "StartError":
        message = last.get("message") or ""
        cause = f"Container {name} cannot be started: {message}"
        return Finding("StartError", subject, cause, _advise(message, _NOT_STARTED))
    notes = [str(each.get("note") or "") for each in reversed(events)]
    probe = next((each for each in notes if each.startswith(_PROBES)), "")
    if reason == "CrashLoopBackOff" and probe and last.get("exitCode") != 0:
        return Finding(
            "ProbeKills",
            subject,
            f"The kubelet restarts container {name}: {probe}",
            "Check the probe or hook of the pod template; "
            f"kubectl logs {pod} -c {name} --previous {where}",
        )
    if reason == "CrashLoopBackOff":
        return Finding(
            reason,
            subject,
            f"Container {name} restarts repeatedly, last with exit code {_describe_end(last)}",
            f"kubectl logs {pod} -c {name} --previous {where}",
        )
    if ended and ended.get("exitCode") != 0:
        return Finding(
            "ContainerFailed",
            subject,
            f"Container {name} ended with exit code {_describe_end(ended)}",
            f"kubectl logs {pod} -c {name} {where}",
        )
    return None


def _advise(message: str, remedies: Mapping[str, str]) -> str:
    """Return the remedy of the first text that a message contains; the last one is empty."""
    return next(remedy for text, remedy in remedies.items() if text in message)


def _describe_end(ended: Mapping[str, Any]) -> str:
    """Return the exit code, and the last line of what the container left as its message."""
    lines = str(ended.get("message") or "").strip().splitlines()
    return f"{ended.get('exitCode', '?')}{f': {lines[-1]}' if lines else '.'}"


def _find_start_problem(
    pod: Manifest, events: Sequence[Manifest], now: datetime
) -> Iterator[Finding]:
    status = pod.get("status") or {}
    ready = condition(pod, "Ready")
    if status.get("phase") == "Running" and ready is not None and ready.status == "False":
        yield _find_unready_part(pod)
    elif status.get("phase") == "Pending":
        for event in reversed(events):
            if event.get("type") == "Warning":
                note = event.get("note") or event.get("message") or ""
                remedy = (
                    "Create the object that the event names, or correct its name in the template."
                    if str(note).endswith("not found")
                    else "Fix the volume, network or node that the event names."
                )
                yield Finding(str(event.get("reason")), title(pod), str(note), remedy)
                return


def _find_unready_part(pod: Manifest) -> Finding:
    """Name the containers, native sidecars or gates for which a running pod is not ready."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {
        each.get("name")
        for each in spec.get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    }
    names = [
        each.get("name", "")
        for each in (
            *status.get("containerStatuses", ()),
            *(e for e in status.get("initContainerStatuses", ()) if e.get("name") in sidecars),
        )
        if not each.get("ready")
    ]
    gates = [each.get("conditionType", "") for each in spec.get("readinessGates") or ()]
    held = {each: condition(pod, each) for each in gates}
    waiting = [each for each, found in held.items() if found is None or found.status != "True"]
    if not names and waiting:
        return Finding(
            "ReadinessGate",
            title(pod),
            f"The containers are ready, but the readiness gate {', '.join(waiting)} is not True.",
            "Check the controller that sets this condition of the pod.",
        )
    node = spec.get("nodeName")
    if node and not names and status.get("containerStatuses"):
        return Finding(
            "NodeNotReady",
            title(pod),
            f"All containers were ready when node {node} last reported, but the pod is not ready: "
            "the node does not report any more.",
            f"kubectl describe node {node}",
        )
    return Finding(
        "ProbeFailing",
        title(pod),
        f"The pod runs, and container {', '.join(names) or 'of unknown name'} is not ready.",
        f"kubectl describe pod {meta['name']} -n {meta.get('namespace')} shows the probe.",
    )


def _find_claim_problem(facts: Facts) -> Iterator[Finding]:
    claim = facts.manifest
    phase = (claim.get("status") or {}).get("phase")
    if phase == "Lost":
        yield Finding(
            "VolumeLost",
            title(claim),
            "The PersistentVolume of the claim does not exist any more; its data is lost.",
            "Restore a backup into a new claim.",
        )
    if phase != "Pending":
        return
    for event in reversed(facts.events):
        note = str(event.get("note") or event.get("message") or "")
        reason = str(event.get("reason"))
        if reason in _CLAIM_EVENTS:
            what, remedy = _CLAIM_EVENTS[reason]
            yield Finding(reason, title(claim), f"{what}: {note}", remedy)
            return
        if reason == "WaitForFirstConsumer":
            yield Finding(
                "WaitForFirstConsumer",
                title(claim),
                "The volume is provisioned when the first pod uses the claim.",
                "Create a pod that uses it.",
                "Warning",
            )
            return
    yield Finding(
        "ClaimPending",
        title(claim),
        "The claim waits for a volume.",
        f"kubectl describe pvc {claim['metadata']['name']} -n {claim['metadata'].get('namespace')}",
    )


def _find_deployment_problem(facts: Facts) -> Iterator[Finding]:
    failed = condition(facts.manifest, "ReplicaFailure")
    if failed is not None and failed.status == "True":
        remedy = "Change the quota, admission policy or pod security level that refuses pods."
        yield Finding(
            "ReplicaFailure",
            title(facts.manifest),
            f"Pods cannot be created: {failed.message}",
            remedy,
        )
