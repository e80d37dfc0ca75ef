"""PrometheusJmxExporter v1alpha1: the kind, its conditions and reasons.

Manifests with only `labelSelector`, `config` and `port` keep their meaning from the operator that
this one succeeds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    READY_COLUMN,
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    KubernetesModel,
    LabelMap,
    LabelSelector,
    ListAtomic,
    ListSet,
    ObjectStatus,
    Port,
    PrinterColumn,
    Quantity,
    Rule,
    ShortText,
    Timestamp,
    Waive,
    kind_of,
)
from libs.common.kinds import Kind
from operators.jmxexporter.api.monitors import Monitor, ServiceMonitor
from operators.jmxexporter.reasons import ConditionType, Reason

GROUP: Final = "banzaicloud.com"
"""API group of the operator, kept from the operator that it succeeds."""
SHOWN: Final = 200
"""Maximum number of endpoints, and of failures, in a status."""


class Mode(StrEnum):
    """Mode defines whether the operator changes JVMs."""

    ACTIVE = "Active"
    DRY_RUN = "DryRun"
    PAUSED = "Paused"


class AgentKind(StrEnum):
    """AgentKind is the agent that is loaded into a JVM."""

    GUARD = "Guard"
    UPSTREAM = "Upstream"


class Startup(StrEnum):
    """Startup defines whether the JVMs of new pods start with the exporter."""

    NEVER = "Never"
    NEW_PODS = "NewPods"


class HostNetwork(StrEnum):
    """HostNetwork defines whether pods that use the network of their node are instrumented."""

    REFUSE = "Refuse"
    ALLOW = "Allow"


class Preset(StrEnum):
    """Preset names a set of rules that is part of the operator."""

    KAFKA = "Kafka"
    TOMCAT = "Tomcat"
    CASSANDRA = "Cassandra"
    SPRING_BOOT = "SpringBoot"


class Annotations(StrEnum):
    """Annotations defines which annotations pods get."""

    PROMETHEUS = "Prometheus"
    NONE = "None"


class ClientCertificates(StrEnum):
    """ClientCertificates defines whether clients must present a certificate."""

    IGNORE = "Ignore"
    REQUIRE = "Require"


class EndpointState(StrEnum):
    """EndpointState is the state of an endpoint."""

    SERVING = "Serving"
    WOULD_INJECT = "WouldInject"
    STARTED_WITH = "StartedWith"
    NOT_VERIFIED = "NotVerified"


class ConfigSource(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.configMapName) != has(self.preset)",
            "exactly one of configMapName and preset must be set",
        ),
    ),
):
    """ConfigSource names the configuration of the exporter."""

    config_map_name: DnsSubdomain | None = None
    """configMapName is the name of a ConfigMap in the same namespace."""
    config_map_key: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")
    ] = "config.yaml"
    """configMapKey is the key of the ConfigMap that holds the configuration."""
    preset: Preset | None = None
    """preset names rules that come with the operator, instead of a ConfigMap: Kafka, Tomcat,
    Cassandra or SpringBoot. A newer version of the operator may change them."""


class ContainerFilter(KubernetesModel):
    """ContainerFilter selects containers of a pod by name."""

    include: Annotated[list[DnsLabel], ListSet(), Field(max_length=20)] = []
    """include names the containers to instrument. Defaults to all containers."""
    exclude: Annotated[list[DnsLabel], ListSet(), Field(max_length=20)] = ["istio-proxy"]
    """exclude names the containers to ignore."""


class EndpointTls(KubernetesModel):
    """EndpointTls serves the metrics by HTTPS."""

    secret_name: DnsSubdomain
    """secretName is the name of a Secret with the keys tls.crt and tls.key, such as cert-manager
    creates. Injectors read it; the operator does not."""
    server_name: Annotated[str, Field(max_length=253)] = ""
    """serverName is the name that Prometheus expects in the certificate. Defaults to the name of
    the Service."""
    client_certificates: ClientCertificates = ClientCertificates.IGNORE
    """clientCertificates is Ignore; or Require to serve the metrics only to clients with a
    certificate that an authority in ca.crt of the Secret signed."""


class BasicAuth(KubernetesModel):
    """BasicAuth requires a user name and password from clients of the endpoint."""

    secret_name: DnsSubdomain
    """secretName is the name of a Secret with the keys username and password. Injectors read it;
    the operator does not."""


class PodSelector(
    LabelSelector,
    rules=(
        Rule(
            "(has(self.matchLabels) && size(self.matchLabels) > 0) || "
            "(has(self.matchExpressions) && size(self.matchExpressions) > 0)",
            "an empty selector would select every pod of the namespace",
        ),
    ),
):
    """PodSelector selects pods by their labels."""


class MetricsService(KubernetesModel):
    """MetricsService publishes the endpoints by a Service, in addition to annotations."""

    labels: LabelMap = {}
    """labels are added to the Service and its EndpointSlices."""
    monitor: ServiceMonitor | None = None
    """monitor creates a ServiceMonitor; the cluster must have the Prometheus operator."""


class PrometheusJmxExporterSpec(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.labelSelector) != has(self.selector)",
            "exactly one of labelSelector and selector must be set",
        ),
        Rule(
            "(!has(self.tls) && !has(self.basicAuth)) || self.startup == 'Never'",
            "tls and basicAuth need startup Never",
        ),
        Rule(
            "self.path != '/-/config'",
            "path /-/config is reserved for the operator",
            field_path=".path",
        ),
        Rule(
            "!has(self.lastPort) || "
            "(self.lastPort >= self.port && self.lastPort <= self.port + 99)",
            "lastPort must be from port to port + 99",
            field_path=".lastPort",
        ),
    ),
):
    """PrometheusJmxExporterSpec is the desired state of a PrometheusJmxExporter."""

    label_selector: Annotated[LabelMap, Field(min_length=1)] | None = None
    """labelSelector selects pods of the same namespace, by equal labels. Pods with the annotation
    banzaicloud.com/jmx-opt-out: "true" are never selected."""
    selector: PodSelector | None = None
    """selector selects pods of the same namespace by matchLabels and matchExpressions, instead of
    labelSelector."""
    config: ConfigSource
    """config names the configuration of the exporter."""
    port: Annotated[Port, Field(ge=1024)]
    """port is the port of the pod on which the metrics are served."""
    last_port: Port | None = None
    """lastPort is the last port of the range for pods with several JVMs. Defaults to port."""
    path: Annotated[str, Field(max_length=128, pattern=r"^/[-._~a-zA-Z0-9/]*$")] = "/metrics"
    """path is the path of the metrics."""
    mode: Mode = Mode.ACTIVE
    """mode is Active, DryRun to report what would be done, or Paused to change nothing."""
    agent: AgentKind = AgentKind.GUARD
    """agent is Guard. Upstream is accepted from older manifests and means Guard, which exports the
    same metrics. Defaults to Guard."""
    startup: Startup = Startup.NEVER
    """startup is Never; or NewPods to start the JVMs of new pods with the exporter, so that no
    injector is needed. The namespace must allow it by a label. It sets JAVA_TOOL_OPTIONS in the
    pod, which hides a value that the image sets: repeat such a value in the pod. Defaults to
    Never."""
    service: MetricsService | None = None
    """service creates a headless Service with an EndpointSlice for each port. Defaults to no
    Service."""
    pod_monitor: Monitor | None = None
    """podMonitor creates a PodMonitor, which scrapes the first endpoint of each pod. The cluster
    must have the Prometheus operator."""
    annotations: Annotations = Annotations.PROMETHEUS
    """annotations is Prometheus for the annotations prometheus.io/... on pods; or None, for
    clusters that find the endpoints by spec.service or spec.podMonitor. Defaults to Prometheus."""
    tls: EndpointTls | None = None
    """tls serves the metrics by HTTPS. Defaults to HTTP."""
    basic_auth: BasicAuth | None = None
    """basicAuth requires a user name and password. Defaults to no login."""
    containers: ContainerFilter = ContainerFilter()
    """containers selects the containers."""
    main_class: ShortText = ""
    """mainClass is a regular expression for the main classes to instrument. Defaults to all."""
    exclude_main_class: ShortText = ""
    """excludeMainClass is a regular expression for the main classes to ignore."""
    max_jvms: Annotated[int, Field(ge=1, le=8)] = 5
    """maxJvms is the maximum number of JVMs to instrument in one container. With startup NewPods
    each JVM uses a port of the range from port to lastPort instead."""
    min_ready_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """minReadySeconds is how long a pod must be ready before it is instrumented."""
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 40
    """timeoutSeconds is the maximum time for the injection into one JVM. In half of it, the JVM
    must serve the metrics twice; raise it for JVMs with tens of thousands of beans."""
    max_concurrent: Annotated[int, Field(ge=1, le=100)] = 5
    """maxConcurrent is the maximum number of pods that are instrumented at the same time."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """maxAttempts is the maximum number of attempts per container."""
    backoff_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """backoffSeconds is the delay before the second attempt. It doubles with each further
    attempt."""
    max_ephemeral_containers: Annotated[int, Field(ge=1, le=100)] = 10
    """maxEphemeralContainers limits the injectors of a pod, including the injectors of other
    PrometheusJmxExporters. An injector that stops endpoints is always allowed."""
    min_free_memory: Quantity = "96Mi"
    """minFreeMemory is the memory that a container must have left below its limit; a container with
    less is skipped. Defaults to 96Mi: an endpoint takes up to 50 MiB, an injector 22."""
    host_network: HostNetwork = HostNetwork.REFUSE
    """hostNetwork is Refuse; or Allow to instrument pods that use the network of their node. The
    metrics are then served without login on the addresses of the node."""

    @property
    def pod_selector(self) -> dict[str, Any]:
        """The selector of pods, as a manifest."""
        if self.selector is not None:
            return self.selector.to_manifest()
        return {"matchLabels": self.label_selector or {}}

    @property
    def ports(self) -> tuple[int, int]:
        """The first and the last port."""
        return self.port, self.last_port or self.port


class MetricsEndpoint(KubernetesModel):
    """MetricsEndpoint is the endpoint that serves the metrics of one JVM."""

    pod: DnsSubdomain
    """pod is the name of the pod."""
    port: Port
    """port is the port of the pod."""
    container: DnsLabel | None = None
    """container is the name of the container."""
    container_id: ShortText = ""
    """containerId is the id of the container at the runtime."""
    pid: Count = 0
    """pid is the process id, as the container sees it."""
    main_class: ShortText = ""
    """mainClass is the main class or jar."""
    url: ShortText = ""
    """url is the address of the metrics."""
    agent_version: ShortText = ""
    """agentVersion is the version of the exporter."""
    config_hash: ShortText = ""
    """configHash is the SHA-256 of the configuration that is served."""
    state: Annotated[
        EndpointState, Waive("no-phase", "a listed endpoint has no further conditions")
    ] = EndpointState.SERVING
    """state is Serving; WouldInject in a dry run; StartedWith if the JVM began with the exporter
    and its endpoint responded; NotVerified if it has not responded to the operator yet."""
    last_verified_time: Timestamp | None = None
    """lastVerifiedTime is the time at which an injector last verified the endpoint."""


class Failure(KubernetesModel):
    """Failure is the reason why a container has no endpoint."""

    pod: DnsSubdomain
    """pod is the name of the pod."""
    container: DnsLabel | None = None
    """container is the name of the container."""
    reason: Reason
    """reason is the cause."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """message describes the cause."""
    attempts: Count = 0
    """attempts is the number of injectors that the container has had."""


class PrometheusJmxExporterStatus(ObjectStatus):
    """PrometheusJmxExporterStatus is the observed state of a PrometheusJmxExporter."""

    conditions: Conditions = []
    """conditions report whether the metrics are served, and why not."""
    config_hash: ShortText = ""
    """configHash is the SHA-256 of the configuration."""
    matched_pods: Count = 0
    """matchedPods is the number of running pods that are selected."""
    instrumented_pods: Count = 0
    """instrumentedPods is the number of pods with an endpoint."""
    pending_pods: Count = 0
    """pendingPods is the number of pods that are not instrumented yet or do not run yet."""
    failed_pods: Count = 0
    """failedPods is the number of pods with a container that cannot be instrumented."""
    metrics_endpoints: Annotated[list[MetricsEndpoint], ListAtomic(), Field(max_length=SHOWN)] = []
    """metricsEndpoints are the endpoints that serve metrics; the first 200 by name."""
    failures: Annotated[list[Failure], ListAtomic(), Field(max_length=SHOWN)] = []
    """failures are the reasons why containers have no endpoint; the first 200 by name."""


class PrometheusJmxExporter(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="prometheusjmxexporters",
    short_names=("pjmx",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Pods", "integer", ".status.matchedPods"),
        PrinterColumn("Instrumented", "integer", ".status.instrumentedPods"),
        PrinterColumn("Failed", "integer", ".status.failedPods"),
        PrinterColumn("Port", "integer", ".spec.port"),
        READY_COLUMN,
        PrinterColumn("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Pending", "integer", ".status.pendingPods", priority=1),
        PrinterColumn("Mode", "string", ".spec.mode", priority=1),
        AGE,
    ),
    conditions=ConditionType,
    reasons=Reason,
):
    """PrometheusJmxExporter serves the metrics of running JVMs for Prometheus."""

    spec: PrometheusJmxExporterSpec
    """spec is the desired state."""
    status: PrometheusJmxExporterStatus | None = None
    """status is the observed state."""


PROMETHEUS_JMX_EXPORTER: Final[Kind] = kind_of(PrometheusJmxExporter)
"""The kind as a value, for the client and the generator."""
