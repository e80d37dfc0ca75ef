"""Defaults that the API server fills into built-in kinds, for those that operators make.

They matter because an operator that compares what it wants with what it finds sees them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.registry import Resource

_MISSING_CONFIG_MODE: Final = 0o644


def fill_defaults(resource: Resource, obj: Manifest) -> None:
    """Fill the defaults of a built-in kind into an object, which the caller owns."""
    fill = _BY_RESOURCE.get((resource.group, resource.plural))
    if fill is not None:
        fill(obj)


def admit(resource: Resource, obj: Manifest) -> None:
    """Change a new object as admission plugins and allocators do: nobody is recorded for that."""
    change = _ADMISSION.get((resource.group, resource.plural))
    if change is not None:
        change(obj)


def _set(target: Manifest, **values: Any) -> None:
    for name, value in values.items():
        if target.get(name) is None:
            target[name] = value


def fill_pod_spec(spec: Manifest, *, restart: str = "Always") -> None:
    """Fill the defaults of a pod spec or of the spec in a pod template."""
    _set(
        spec,
        dnsPolicy="ClusterFirst",
        restartPolicy=restart,
        schedulerName="default-scheduler",
        securityContext={},
        terminationGracePeriodSeconds=30,
    )
    if spec.get("serviceAccountName"):
        _set(spec, serviceAccount=spec["serviceAccountName"])
    for name in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(name) or ():
            _fill_container(container)
    for volume in spec.get("volumes") or ():
        for name in ("configMap", "secret", "downwardAPI", "projected"):
            if isinstance(volume.get(name), dict):
                _set(volume[name], defaultMode=_MISSING_CONFIG_MODE)
        if not any(name != "name" for name in volume):
            volume["emptyDir"] = {}


def _fill_container(container: Manifest) -> None:
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    _set(
        container,
        imagePullPolicy="Always" if latest else "IfNotPresent",
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    demand = container["resources"]
    if demand.get("limits"):
        requests = demand.setdefault("requests", {})
        for name, value in demand["limits"].items():
            requests.setdefault(name, value)
    for port in container.get("ports") or ():
        _set(port, protocol="TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            _set(reference, apiVersion="v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            _fill_probe(container[name])


def _fill_probe(probe: Manifest) -> None:
    _set(probe, failureThreshold=3, periodSeconds=10, successThreshold=1, timeoutSeconds=1)
    if isinstance(probe.get("httpGet"), dict):
        _set(probe["httpGet"], path="/", scheme="HTTP")


def _pod(obj: Manifest) -> None:
    spec = obj.setdefault("spec", {})
    fill_pod_spec(spec)
    _set(spec, enableServiceLinks=True)
    for condition in (obj.get("status") or {}).get("conditions") or ():
        # These times are not optional in the Go type: they show as null.
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)


def _admit_pod(obj: Manifest) -> None:
    spec = obj["spec"]
    _set(spec, preemptionPolicy="PreemptLowerPriority", priority=0)
    spec.setdefault("tolerations", [])
    known = {toleration.get("key") for toleration in spec["tolerations"]}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if key not in known:
            spec["tolerations"].append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )


def _template(obj: Manifest, *, restart: str = "Always") -> None:
    template = obj.get("spec", {}).get("template")
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        fill_pod_spec(template.setdefault("spec", {}), restart=restart)


def _deployment(obj: Manifest) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, replicas=1, progressDeadlineSeconds=600, revisionHistoryLimit=10, strategy={})
    _set(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        _set(spec["strategy"], rollingUpdate={})
        _set(spec["strategy"]["rollingUpdate"], maxSurge="25%", maxUnavailable="25%")
    _template(obj)


def _replica_set(obj: Manifest) -> None:
    _set(obj.setdefault("spec", {}), replicas=1)
    _template(obj)


def _stateful_set(obj: Manifest) -> None:
    spec = obj.setdefault("spec", {})
    _set(
        spec,
        replicas=1,
        podManagementPolicy="OrderedReady",
        revisionHistoryLimit=10,
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"},
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    )
    _template(obj)


def _claim(obj: Manifest) -> None:
    _set(obj.setdefault("spec", {}), volumeMode="Filesystem")


def _volume(obj: Manifest) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")


def _service(obj: Manifest) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, type="ClusterIP", sessionAffinity="None")
    if spec["type"] == "ExternalName":
        return
    _set(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _set(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _set(spec, allocateLoadBalancerNodePorts=True)
    for port in spec.get("ports") or ():
        _set(port, protocol="TCP", targetPort=port.get("port"))


def _admit_service(obj: Manifest) -> None:
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        return
    if spec.get("clusterIP") == "None":
        dual = not spec.get("selector")
        _set(spec, clusterIPs=["None"], ipFamilies=["IPv4", "IPv6"] if dual else ["IPv4"])
        _set(spec, ipFamilyPolicy="RequireDualStack" if dual else "SingleStack")
        return
    # Nothing routes to it. It follows from the name, so that two runs of a test have the same.
    metadata = obj["metadata"]
    last = zlib.crc32(f"{metadata['namespace']}/{metadata['name']}".encode()) % 65534 + 1
    _set(spec, clusterIP=f"10.96.{last >> 8}.{last & 255}")
    _set(spec, clusterIPs=[spec["clusterIP"]], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")


def _protect(obj: Manifest, finalizer: str) -> None:
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _admit_new_event(obj: Manifest) -> None:
    obj.setdefault("deprecatedSource", {})


def _admit_event(obj: Manifest) -> None:
    obj.setdefault("source", {})
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")


def _job(obj: Manifest) -> None:
    spec = obj.setdefault("spec", {})
    _set(
        spec,
        backoffLimit=6,
        completionMode="NonIndexed",
        completions=1,
        manualSelector=False,
        parallelism=1,
        podReplacementPolicy="TerminatingOrFailed",
        suspend=False,
    )
    _template(obj)


def _secret(obj: Manifest) -> None:
    _set(obj, type="Opaque")
    for name, text in (obj.pop("stringData", None) or {}).items():
        obj.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


def _storage_class(obj: Manifest) -> None:
    _set(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _network_policy(obj: Manifest) -> None:
    spec = obj.setdefault("spec", {})
    types = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    _set(spec, podSelector={}, policyTypes=types)
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            _set(port, protocol="TCP")


def _endpoint_slice(obj: Manifest) -> None:
    for endpoint in obj.get("endpoints") or ():
        _set(endpoint, conditions={})
    for port in obj.get("ports") or ():
        _set(port, name="", protocol="TCP")


def _namespace(obj: Manifest) -> None:
    labels = obj["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")


def _admit_namespace(obj: Manifest) -> None:
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


def _crd(obj: Manifest) -> None:
    spec = obj["spec"]
    names = spec.setdefault("names", {})
    _set(names, singular=names.get("kind", "").lower(), listKind=f"{names.get('kind', '')}List")
    _set(spec, conversion={"strategy": "None"})


def _event(obj: Manifest) -> None:
    _set(obj, source={}, firstTimestamp=None, lastTimestamp=None, eventTime=None)


def _new_event(obj: Manifest) -> None:
    names = ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime")
    _set(obj, deprecatedSource={}, **dict.fromkeys(names))


def _node(obj: Manifest) -> None:
    status = obj.setdefault("status", {})
    _set(status, daemonEndpoints={"kubeletEndpoint": {"Port": 0}}, nodeInfo={})
    _set(status["nodeInfo"], **dict.fromkeys(_NODE_INFO, ""))
    for condition in status.get("conditions") or ():
        _set(condition, lastHeartbeatTime=None, lastTransitionTime=None)


_NODE_INFO: Final = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)
"""What a node says of itself; an empty field shows, too."""
_BY_RESOURCE: Final[Mapping[tuple[str, str], Callable[[Manifest], None]]] = {
    ("", "pods"): _pod,
    ("", "events"): _event,
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("", "secrets"): _secret,
    ("", "services"): _service,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    ("apps", "daemonsets"): _template,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): _replica_set,
    ("apps", "statefulsets"): _stateful_set,
    ("batch", "jobs"): _job,
    ("discovery.k8s.io", "endpointslices"): _endpoint_slice,
    ("events.k8s.io", "events"): _new_event,
    ("networking.k8s.io", "networkpolicies"): _network_policy,
    ("storage.k8s.io", "storageclasses"): _storage_class,
}
_ADMISSION: Final[Mapping[tuple[str, str], Callable[[Manifest], None]]] = {
    ("", "events"): _admit_event,
    ("", "namespaces"): _admit_namespace,
    ("", "persistentvolumeclaims"): lambda obj: _protect(obj, "kubernetes.io/pvc-protection"),
    ("", "persistentvolumes"): lambda obj: _protect(obj, "kubernetes.io/pv-protection"),
    ("", "pods"): _admit_pod,
    ("", "services"): _admit_service,
    ("events.k8s.io", "events"): _admit_new_event,
}
