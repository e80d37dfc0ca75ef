"""Values, and what each must become: the data of the suite of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from libs.common.testing.helm import REGISTRY

_POD: Final = "spec.template.spec"
_CONTAINER: Final = f"{_POD}.containers.0"
_DIGEST: Final = "sha256:" + "0123456789abcdef" * 4
_PEERS: Final = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
_TOLERATIONS: Final = [{"key": "a", "operator": "Exists"}]


@dataclass(frozen=True, slots=True)
class Case:
    """What a value must become.

    Attributes:
        value: What the user sets.
        kind: Kind of the object that shows it.
        path: Where in the object, dotted.
        expected: Expected content; None if the value itself is expected.
    """

    value: Any
    kind: str
    path: str
    expected: Any = None


def _monitor_cases(value: str, kind: str, endpoints: str, own: int) -> dict[str, Case]:
    """Build the cases of a ServiceMonitor or PodMonitor with so many relabelings of its own."""
    relabeling = {"action": "labeldrop", "regex": "a"}
    return {
        f"{value}.namespace": Case("monitoring", kind, "metadata.namespace"),
        f"{value}.interval": Case("5s", kind, f"{endpoints}.0.interval"),
        f"{value}.scrapeTimeout": Case("5s", kind, f"{endpoints}.0.scrapeTimeout"),
        f"{value}.labels": Case({"release": "p"}, kind, "metadata.labels.release", "p"),
        f"{value}.annotations": Case({"a": "b"}, kind, "metadata.annotations"),
        f"{value}.honorLabels": Case(True, kind, f"{endpoints}.0.honorLabels"),
        f"{value}.relabelings": Case(
            [relabeling], kind, f"{endpoints}.0.relabelings.{own}", relabeling
        ),
        f"{value}.metricRelabelings": Case([relabeling], kind, f"{endpoints}.0.metricRelabelings"),
        f"{value}.scheme": Case("https", kind, f"{endpoints}.0.scheme"),
        f"{value}.authorization": Case(
            {"credentials": {"name": "a", "key": "b"}}, kind, f"{endpoints}.0.authorization"
        ),
        f"{value}.tlsConfig": Case({"serverName": "a"}, kind, f"{endpoints}.0.tlsConfig"),
    }


CASES: Final[Mapping[str, Case]] = {
    "image.registry": Case(
        "r:5000", "Deployment", f"{_CONTAINER}.image", "r:5000/slipway/{chart}:0.1.0"
    ),
    "image.repository": Case("a/b", "Job", f"{_CONTAINER}.image", f"{REGISTRY}/a/b:0.1.0"),
    "image.tag": Case(
        "dev", "Deployment", f"{_CONTAINER}.image", f"{REGISTRY}/slipway/{{chart}}:dev"
    ),
    "image.digest": Case(
        _DIGEST, "Deployment", f"{_CONTAINER}.image", f"{REGISTRY}/slipway/{{chart}}@{_DIGEST}"
    ),
    "image.pullPolicy": Case("Always", "Deployment", f"{_CONTAINER}.imagePullPolicy"),
    "global.imageRegistry": Case(
        "m.io", "Job", f"{_CONTAINER}.image", "m.io/slipway/{chart}:0.1.0"
    ),
    "global.imagePullSecrets": Case([{"name": "a"}], "Deployment", f"{_POD}.imagePullSecrets"),
    "global.commonLabels": Case({"a": "b"}, "Service", "metadata.labels.a", "b"),
    "global.commonAnnotations": Case({"a": "b"}, "Role", "metadata.annotations.a", "b"),
    "global.nodeSelector": Case({"a": "b"}, "Job", f"{_POD}.nodeSelector"),
    "global.tolerations": Case(_TOLERATIONS, "Pod", "spec.tolerations"),
    "global.priorityClassName": Case("high", "Job", f"{_POD}.priorityClassName"),
    "commonLabels": Case({"a": "b"}, "Deployment", "spec.template.metadata.labels.a", "b"),
    "commonAnnotations": Case({"a": "b"}, "Job", "metadata.annotations.a", "b"),
    "imagePullSecrets": Case([{"name": "a"}], "Pod", "spec.imagePullSecrets"),
    "fullnameOverride": Case("other", "Deployment", "metadata.name"),
    "replicas": Case(3, "Deployment", "spec.replicas"),
    "tracing.endpoint": Case(
        "http://c:4318", "NetworkPolicy", "spec.egress.2.ports", [{"port": 4318}]
    ),
    "extraEnv": Case(
        [{"name": "A", "value": "b"}],
        "Deployment",
        f"{_CONTAINER}.env.3",
        {"name": "A", "value": "b"},
    ),
    "extraArgs": Case(["--log-level=debug"], "Deployment", f"{_CONTAINER}.args"),
    "extraEnvFrom": Case([{"configMapRef": {"name": "a"}}], "Job", f"{_CONTAINER}.envFrom"),
    "initContainers": Case([{"name": "a", "image": "b"}], "Deployment", f"{_POD}.initContainers"),
    "extraContainers": Case(
        [{"name": "a", "image": "b"}], "Deployment", f"{_POD}.containers.1.name", "a"
    ),
    "extraObjects": Case(
        [{"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "{{ .Release.Name }}-a"}}],
        "Endpoints",
        "metadata.name",
        "{chart}-a",
    ),
    "podSecurityContext.runAsUser": Case(
        1000680000, "Deployment", f"{_POD}.securityContext.runAsUser"
    ),
    "podSecurityContext.runAsGroup": Case(7, "Job", f"{_POD}.securityContext.runAsGroup"),
    "podSecurityContext.fsGroup": Case(7, "Pod", "spec.securityContext.fsGroup"),
    "podSecurityContext.supplementalGroups": Case(
        [7], "Deployment", f"{_POD}.securityContext.supplementalGroups"
    ),
    "podSecurityContext.seccompProfile.type": Case(
        "Localhost", "Deployment", f"{_POD}.securityContext.seccompProfile.type"
    ),
    "podSecurityContext.seLinuxOptions": Case(
        {"level": "s0:c1"}, "Deployment", f"{_POD}.securityContext.seLinuxOptions"
    ),
    "securityContext.appArmorProfile": Case(
        {"type": "RuntimeDefault"}, "Job", f"{_CONTAINER}.securityContext.appArmorProfile"
    ),
    **{
        f"{probe}Probe.{field}": Case(9, "Deployment", f"{_CONTAINER}.{probe}Probe.{field}")
        for probe in ("startup", "liveness", "readiness")
        for field in ("periodSeconds", "timeoutSeconds", "failureThreshold")
    },
    "strategy": Case({"type": "Recreate"}, "Deployment", "spec.strategy"),
    "revisionHistoryLimit": Case(1, "Deployment", "spec.revisionHistoryLimit"),
    "deploymentAnnotations": Case({"a": "b"}, "Deployment", "metadata.annotations.a", "b"),
    "podDisruptionBudget.maxUnavailable": Case("50%", "PodDisruptionBudget", "spec.maxUnavailable"),
    "podDisruptionBudget.minAvailable": Case(1, "PodDisruptionBudget", "spec.minAvailable"),
    "extraVolumes": Case(
        [{"name": "a", "configMap": {"name": "a"}}], "Deployment", f"{_POD}.volumes.1.name", "a"
    ),
    "extraVolumeMounts": Case(
        [{"name": "a", "mountPath": "/a"}],
        "Deployment",
        f"{_CONTAINER}.volumeMounts.1.mountPath",
        "/a",
    ),
    "resources.requests.cpu": Case("1", "Deployment", f"{_CONTAINER}.resources.requests.cpu"),
    "resources.requests.memory": Case("1Gi", "Job", f"{_CONTAINER}.resources.requests.memory"),
    "resources.requests.ephemeral-storage": Case(
        "1Gi", "Deployment", f"{_CONTAINER}.resources.requests.ephemeral-storage"
    ),
    "resources.limits.memory": Case("1Gi", "Deployment", f"{_CONTAINER}.resources.limits.memory"),
    "resources.limits.ephemeral-storage": Case(
        "1Gi", "Deployment", f"{_CONTAINER}.resources.limits.ephemeral-storage"
    ),
    "podAnnotations": Case({"a": "b"}, "Deployment", "spec.template.metadata.annotations.a", "b"),
    "podLabels": Case({"a": "b"}, "Deployment", "spec.template.metadata.labels.a", "b"),
    "priorityClassName": Case("high", "Deployment", f"{_POD}.priorityClassName"),
    "runtimeClassName": Case("gvisor", "Deployment", f"{_POD}.runtimeClassName"),
    "dnsPolicy": Case("None", "Job", f"{_POD}.dnsPolicy"),
    "dnsConfig": Case({"nameservers": ["10.0.0.10"]}, "Pod", "spec.dnsConfig"),
    "hostAliases": Case(
        [{"ip": "10.0.0.1", "hostnames": ["a"]}], "Deployment", f"{_POD}.hostAliases"
    ),
    "hostNetwork": Case(True, "Deployment", f"{_POD}.dnsPolicy", "ClusterFirstWithHostNet"),
    "hostUsers": Case(False, "Deployment", f"{_POD}.hostUsers"),
    "ports.metrics": Case(9080, "Deployment", f"{_CONTAINER}.ports.0.containerPort"),
    "ports.probes": Case(9081, "Deployment", f"{_CONTAINER}.ports.1.containerPort"),
    "service.annotations": Case({"a": "b"}, "Service", "metadata.annotations"),
    "service.labels": Case({"a": "b"}, "Service", "metadata.labels.a", "b"),
    "service.ipFamilyPolicy": Case("PreferDualStack", "Service", "spec.ipFamilyPolicy"),
    "service.ipFamilies": Case(["IPv6", "IPv4"], "Service", "spec.ipFamilies"),
    "nodeSelector": Case({"a": "b"}, "Deployment", f"{_POD}.nodeSelector"),
    "tolerations": Case(_TOLERATIONS, "Deployment", f"{_POD}.tolerations"),
    "affinity": Case({"nodeAffinity": {}}, "Deployment", f"{_POD}.affinity"),
    "topologySpreadConstraints": Case(
        [{"maxSkew": 2}], "Deployment", f"{_POD}.topologySpreadConstraints"
    ),
    "terminationGracePeriodSeconds": Case(
        90, "Deployment", f"{_POD}.terminationGracePeriodSeconds"
    ),
    "serviceAccount.create": Case(False, "Deployment", f"{_POD}.serviceAccountName", "default"),
    "serviceAccount.name": Case("other", "ServiceAccount", "metadata.name"),
    "serviceAccount.annotations": Case({"a": "b"}, "ServiceAccount", "metadata.annotations"),
    "serviceAccount.labels": Case({"a": "b"}, "ServiceAccount", "metadata.labels.a", "b"),
    "cleanup.timeoutSeconds": Case(30, "Job", "spec.activeDeadlineSeconds"),
    "networkPolicy.flavor": Case("cilium", "CiliumNetworkPolicy", "kind", "CiliumNetworkPolicy"),
    "networkPolicy.metricsFrom": Case(_PEERS, "NetworkPolicy", "spec.ingress.0.from"),
    "networkPolicy.apiServer.ports": Case(
        [6444], "NetworkPolicy", "spec.egress.1.ports", [{"port": 6444}]
    ),
    "networkPolicy.apiServer.cidrs": Case(
        ["10.0.0.1/32"], "NetworkPolicy", "spec.egress.1.to.0.ipBlock.cidr", "10.0.0.1/32"
    ),
    "networkPolicy.extraEgress": Case(
        [{"ports": [{"port": 1}]}], "NetworkPolicy", "spec.egress.3.ports.0.port", 1
    ),
    "networkPolicy.dns.to": Case(
        [{"ipBlock": {"cidr": "169.254.20.10/32"}}], "NetworkPolicy", "spec.egress.0.to"
    ),
    "networkPolicy.dns.ports": Case(
        [5353],
        "NetworkPolicy",
        "spec.egress.0.ports",
        [{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}],
    ),
    "networkPolicy.tracesTo": Case(_PEERS, "NetworkPolicy", "spec.egress.2.to"),
    **_monitor_cases("serviceMonitor", "ServiceMonitor", "spec.endpoints", 0),
    **_monitor_cases("podMonitor", "PodMonitor", "spec.podMetricsEndpoints", 1),
    "prometheusRule.namespace": Case("monitoring", "PrometheusRule", "metadata.namespace"),
    "dashboard.namespace": Case("monitoring", "ConfigMap", "metadata.namespace"),
    "prometheusRule.labels": Case(
        {"release": "p"}, "PrometheusRule", "metadata.labels.release", "p"
    ),
    "prometheusRule.alertLabels": Case(
        {"severity": "page"}, "PrometheusRule", "spec.groups.0.rules.0.labels.severity", "page"
    ),
    "prometheusRule.runbookUrl": Case(
        "https://d.example/alerts/",
        "PrometheusRule",
        "spec.groups.0.rules.0.annotations.runbook_url",
        "https://d.example/alerts/#operatordown",
    ),
    "dashboard.labels.grafana_dashboard": Case(
        "yes", "ConfigMap", "metadata.labels.grafana_dashboard"
    ),
    "dashboard.annotations": Case({"folder": "a"}, "ConfigMap", "metadata.annotations"),
}
"""A case for each value that shows in one place."""

SWITCHES: Final[Mapping[str, tuple[bool, str]]] = {
    "crds.install": (True, "CustomResourceDefinition"),
    "cleanup.onUninstall": (True, "Job"),
    "podDisruptionBudget.enabled": (True, "PodDisruptionBudget"),
    "networkPolicy.enabled": (False, "NetworkPolicy"),
    "serviceMonitor.enabled": (False, "ServiceMonitor"),
    "podMonitor.enabled": (False, "PodMonitor"),
    "lease.create": (True, "Lease"),
    "prometheusRule.enabled": (False, "PrometheusRule"),
    "dashboard.enabled": (False, "ConfigMap"),
}
"""Values that turn a kind of object on and off, with their default."""

ELSEWHERE: Final = frozenset(
    {
        *("watch.namespaces", "watch.clusterWide", "watch.excludedNamespaces"),
        *("rbac.create", "rbac.userRoles", "crds.keep"),
        *(
            "rbac.clusterRoles",
            "global.platformAssignsUserIds",
            "rbac.teamRoles",
            "rbac.existingClusterRole",
            "rbac.catalogGroups",
        ),
        *("podSecurityContext.runAsNonRoot", "securityContext.allowPrivilegeEscalation"),
        *("securityContext.readOnlyRootFilesystem", "securityContext.capabilities.drop"),
        *("dashboard.runtime", "prometheusRule.disabledAlerts", "webhooks.certificateSecret"),
        *("webhooks.certManager.enabled", "webhooks.certManager.privateKeyAlgorithm"),
        *("webhooks.failurePolicy", "webhooks.timeoutSeconds", "ports.webhook", "crds.annotations"),
        *("webhooks.certManager.duration", "webhooks.certManager.renewBefore"),
        *(f"webhooks.certManager.issuerRef.{name}" for name in ("name", "kind", "group")),
        *("watch.namespaceSelector.matchLabels", "watch.namespaceSelector.matchExpressions"),
    }
)
"""Values that tests of the other suites are about."""
