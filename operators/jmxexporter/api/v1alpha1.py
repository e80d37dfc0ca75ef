"""PrometheusJmxExporter v1alpha1: the kind, its conditions and reasons.

Manifests with nothing but `labelSelector`, `config` and `port` mean what they always meant.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    KubernetesModel,
    LabelMap,
    ListAtomic,
    ListSet,
    ObservedGeneration,
    Port,
    PrinterColumn,
    Rule,
    ShortText,
    Timestamp,
    Waive,
    kind_of,
)
from libs.common.kinds import Kind

GROUP: Final = "banzaicloud.com"
"""API group of the operator, kept from the one that it succeeds."""
SHOWN: Final = 200
"""Most endpoints, and most failures, that a status shows."""


class Mode(StrEnum):
    """Mode says whether JVMs are touched."""

    ACTIVE = "Active"
    DRY_RUN = "DryRun"
    PAUSED = "Paused"


class AgentKind(StrEnum):
    """AgentKind says what is loaded into a JVM."""

    GUARD = "Guard"
    UPSTREAM = "Upstream"


class Startup(StrEnum):
    """Startup says whether JVMs of new pods begin with the exporter."""

    NEVER = "Never"
    NEW_PODS = "NewPods"


class EndpointState(StrEnum):
    """EndpointState says what is known of an endpoint."""

    SERVING = "Serving"
    WOULD_INJECT = "WouldInject"
    STARTED_WITH = "StartedWith"


class ConditionType(StrEnum):
    """Conditions of a PrometheusJmxExporter."""

    READY = "Ready"
    """Ready is True when each JVM of the selected pods serves its metrics."""
    CONFIG_VALID = "ConfigValid"
    """ConfigValid is True when the configuration can be used."""
    CONFLICTING = "Conflicting"
    """Conflicting is True when an older PrometheusJmxExporter selects some of the pods; it has
    them."""
    DEGRADED = "Degraded"
    """Degraded is True when a JVM ended during an injection. No other is touched until the spec
    is changed."""


class Reason(StrEnum):
    """Reasons of the conditions, failures and events of a PrometheusJmxExporter."""

    ALL_SERVING = "AllServing"
    """AllServing means that each JVM of the selected pods serves its metrics."""
    NO_PODS = "NoPods"
    """NoPods means that spec.labelSelector selects no running pod."""
    INJECTING = "Injecting"
    """Injecting means that JVMs are still to be seen to; failures tell what they wait for."""
    TARGETS_FAILED = "TargetsFailed"
    """TargetsFailed means that some containers have no endpoint; status.failures says why."""
    DRY_RUN = "DryRun"
    """DryRun means that spec.mode is DryRun: status says what would be done."""
    PAUSED = "Paused"
    """Paused means that spec.mode is Paused: what is stays as it is."""
    CONFIG_ACCEPTED = "ConfigAccepted"
    """ConfigAccepted means that the configuration can be used."""
    CONFIG_MISSING = "ConfigMissing"
    """ConfigMissing means that the ConfigMap or its key does not exist."""
    CONFIG_INVALID = "ConfigInvalid"
    """ConfigInvalid means that the configuration cannot be used; the message says why."""
    NO_CONFLICT = "NoConflict"
    """NoConflict means that no other PrometheusJmxExporter has a claim on the pods."""
    OLDER_EXPORTER = "OlderExporter"
    """OlderExporter means that an older PrometheusJmxExporter selects the pod and has it."""
    HEALTHY = "Healthy"
    """Healthy means that no JVM ended during an injection."""
    STARTED = "Started"
    """Started means that an injector was put into a pod."""
    ANNOTATED = "Annotated"
    """Annotated means that a pod was annotated for Prometheus, or annotations were taken away."""
    REFUSED = "Refused"
    """Refused means that the API server refused an ephemeral container or an annotation."""
    POD_NOT_READY = "PodNotReady"
    """PodNotReady means that the pod is not ready for spec.minReadySeconds yet."""
    POD_BUSY = "PodBusy"
    """PodBusy means that another container of the pod has its turn."""
    WAITING = "Waiting"
    """Waiting means that spec.maxConcurrent injectors run, or a retry is not due yet."""
    STARTING = "Starting"
    """Starting means that the injector is not running yet; the message says what it waits for."""
    RUNNING = "Running"
    """Running means that the injector is at work."""
    NO_REPORT = "NoReport"
    """NoReport means that the injector ended without a word."""
    BUDGET_EXHAUSTED = "EphemeralContainerBudgetExhausted"
    """EphemeralContainerBudgetExhausted means that the pod has had spec.maxEphemeralContainers
    injectors; they cannot be removed, so only a new pod gets more."""
    FOREIGN_ANNOTATIONS = "ForeignAnnotations"
    """ForeignAnnotations means that the pod carries annotations for Prometheus that are not ours;
    they are left alone."""
    STOPPING = "Stopping"
    """Stopping means that endpoints are being ended."""
    RESTART_REQUIRED = "RestartRequired"
    """RestartRequired means that the pod began with another port, path or ConfigMap than the spec
    names now; a new pod takes what it says."""
    MONITOR_UNAVAILABLE = "MonitorUnavailable"
    """MonitorUnavailable means that spec.service.monitor is set and the cluster has no
    ServiceMonitors."""
    PUBLISHED = "Published"
    """Published means that the Service, its EndpointSlices or the ServiceMonitor were changed."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""
    NO_JVM_FOUND = "NoJvmFound"
    """NoJvmFound means that the container runs no JVM."""
    ALREADY_INSTRUMENTED = "AlreadyInstrumented"
    """AlreadyInstrumented means that the JVM has a JMX exporter that is not ours to change."""
    ATTACH_DISABLED = "AttachDisabled"
    """AttachDisabled means that the JVM was told not to listen for commands."""
    DYNAMIC_AGENTS_DISABLED = "DynamicAgentLoadingDisabled"
    """DynamicAgentLoadingDisabled means that the JVM loads no agents; start it with
    -XX:+EnableDynamicAgentLoading."""
    SECURITY_MANAGER = "SecurityManagerPresent"
    """SecurityManagerPresent means that a SecurityManager would stop the endpoint."""
    TMP_NOT_WRITABLE = "TmpNotWritable"
    """TmpNotWritable means that /tmp cannot be written, where a JVM listens; mount an emptyDir."""
    NO_WRITABLE_PATH = "NoWritablePath"
    """NoWritablePath means that there is no place for the agent."""
    PORT_IN_USE = "PortInUse"
    """PortInUse means that each port from spec.port to spec.lastPort is taken."""
    CONFIG_CHANGED = "ConfigChanged"
    """ConfigChanged means that the ConfigMap changed between two looks; it is tried again."""
    UID_MISMATCH = "UidMismatch"
    """UidMismatch means that the JVM runs as another user than the injector; it is tried again."""
    PTRACE_DENIED = "PtraceDenied"
    """PtraceDenied means that the kernel does not let the injector look at the JVM."""
    MISSING_MODULES = "MissingModules"
    """MissingModules means that the Java runtime lacks modules that the exporter needs."""
    UNSUPPORTED_JVM = "UnsupportedJvm"
    """UnsupportedJvm means that the JVM is not HotSpot."""
    NOT_READY = "NotReady"
    """NotReady means that the JVM does not handle signals yet; it is tried again."""
    TOO_LITTLE_MEMORY = "TooLittleMemory"
    """TooLittleMemory means that the JVM has too little metaspace left for the exporter."""
    FOREIGN_SOCKET = "ForeignSocket"
    """ForeignSocket means that the socket of another process is in the JVM's place in /tmp."""
    ATTACH_REFUSED = "AttachRefused"
    """AttachRefused means that the JVM refused the agent; the message has its words."""
    AGENT_ERROR = "AgentError"
    """AgentError means that the agent failed inside the JVM, which goes on without it."""
    NOT_SERVING = "NotServing"
    """NotServing means that the endpoint does not serve what was put in."""
    JVM_TERMINATED = "JvmTerminated"
    """JvmTerminated means that the JVM ended during an injection."""
    TIMEOUT = "Timeout"
    """Timeout means that the JVM did not answer in time."""


class ConfigSource(KubernetesModel):
    """ConfigSource names the configuration of the exporter."""

    config_map_name: DnsSubdomain
    """configMapName is the name of a ConfigMap in the same namespace."""
    config_map_key: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")
    ] = "config.yaml"
    """configMapKey is the key of the ConfigMap that holds the configuration."""


class ContainerFilter(KubernetesModel):
    """ContainerFilter picks containers of a pod by name."""

    include: Annotated[list[DnsLabel], ListSet(), Field(max_length=20)] = []
    """include names the containers to look at (default: all)."""
    exclude: Annotated[list[DnsLabel], ListSet(), Field(max_length=20)] = ["istio-proxy"]
    """exclude names the containers to leave alone."""


class ServiceMonitor(KubernetesModel):
    """ServiceMonitor lets the Prometheus operator find the endpoints."""

    labels: LabelMap = {}
    """labels are those by which Prometheus picks ServiceMonitors."""
    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """intervalSeconds is the time between scrapes."""


class MetricsService(KubernetesModel):
    """MetricsService makes the endpoints known by a Service, beside annotations."""

    labels: LabelMap = {}
    """labels are put on the Service and its EndpointSlices."""
    monitor: ServiceMonitor | None = None
    """monitor makes a ServiceMonitor; the cluster must have the Prometheus operator."""


class PrometheusJmxExporterSpec(
    KubernetesModel,
    rules=(
        Rule(
            "self.startup == 'Never' || self.agent == 'Guard'",
            "startup needs agent Guard: the upstream agent ends JVMs that it cannot serve",
            field_path=".startup",
        ),
        Rule(
            "!has(self.lastPort) || "
            "(self.lastPort >= self.port && self.lastPort <= self.port + 99)",
            "lastPort must be from port to port + 99",
            field_path=".lastPort",
        ),
    ),
):
    """PrometheusJmxExporterSpec is what a user asks for."""

    label_selector: Annotated[LabelMap, Field(min_length=1)]
    """labelSelector selects pods of the same namespace, by equal labels."""
    config: ConfigSource
    """config names the configuration of the exporter."""
    port: Annotated[Port, Field(ge=1024)]
    """port is the port of the pod that the metrics are served at."""
    last_port: Port | None = None
    """lastPort ends the range of ports for pods with several JVMs (default: port)."""
    path: Annotated[str, Field(max_length=128, pattern=r"^/[-._~a-zA-Z0-9/]*$")] = "/metrics"
    """path is the path of the metrics."""
    mode: Mode = Mode.ACTIVE
    """mode is Active, DryRun to look without a change, or Paused to leave all as it is."""
    agent: AgentKind = AgentKind.GUARD
    """agent is Guard; or Upstream, which ends its JVM when it cannot start, and stays for good."""
    startup: Startup = Startup.NEVER
    """startup is Never; or NewPods, by which the JVMs of pods that are created from now on begin
    with the exporter and are not attached to. The namespace must allow it by a label."""
    service: MetricsService | None = None
    """service makes a headless Service with an EndpointSlice for each port (default: none)."""
    containers: ContainerFilter = ContainerFilter()
    """containers picks the containers to look at."""
    main_class: ShortText = ""
    """mainClass is a regular expression of the main classes to take (default: all)."""
    exclude_main_class: ShortText = ""
    """excludeMainClass is a regular expression of the main classes to leave alone."""
    max_jvms: Annotated[int, Field(ge=1, le=8)] = 5
    """maxJvms is the most JVMs to take in one container."""
    min_ready_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """minReadySeconds is how long a pod must be ready before it is touched."""
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 40
    """timeoutSeconds is the time for one JVM."""
    max_concurrent: Annotated[int, Field(ge=1, le=100)] = 5
    """maxConcurrent is the most pods that are worked on at a time."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """maxAttempts is how often a container is tried before it is given up."""
    backoff_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """backoffSeconds is the time before a second attempt; it doubles with each further one."""
    max_ephemeral_containers: Annotated[int, Field(ge=1, le=100)] = 10
    """maxEphemeralContainers is the most injectors that a pod ever gets."""

    @property
    def ports(self) -> tuple[int, int]:
        """The first and the last port."""
        return self.port, self.last_port or self.port


class MetricsEndpoint(KubernetesModel):
    """MetricsEndpoint is where the metrics of one JVM are served."""

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
        EndpointState, Waive("no-phase", "an endpoint that is shown has no further conditions")
    ] = EndpointState.SERVING
    """state is Serving; WouldInject in a dry run; StartedWith where the JVM began with the
    exporter, which is not verified."""
    last_verified_time: Timestamp | None = None
    """lastVerifiedTime is when the metrics were last seen."""


class Failure(KubernetesModel):
    """Failure says why a container has no endpoint."""

    pod: DnsSubdomain
    """pod is the name of the pod."""
    container: DnsLabel | None = None
    """container is the name of the container."""
    reason: Reason
    """reason is the cause."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """message is the cause for people."""
    attempts: Count = 0
    """attempts is how many injectors the container has had."""


class PrometheusJmxExporterStatus(KubernetesModel):
    """PrometheusJmxExporterStatus is what the operator observed."""

    conditions: Conditions = []
    """conditions tell whether the metrics are served, and what keeps them from that."""
    observed_generation: ObservedGeneration = 0
    """observedGeneration is the generation of the spec that this status is about."""
    config_hash: ShortText = ""
    """configHash is the SHA-256 of the configuration."""
    matched_pods: Count = 0
    """matchedPods is the number of running pods that are selected."""
    instrumented_pods: Count = 0
    """instrumentedPods is the number of pods with an endpoint."""
    pending_pods: Count = 0
    """pendingPods is the number of pods that are still to be seen to, or do not run yet."""
    failed_pods: Count = 0
    """failedPods is the number of pods with a container that was given up."""
    metrics_endpoints: Annotated[list[MetricsEndpoint], ListAtomic(), Field(max_length=SHOWN)] = []
    """metricsEndpoints are where metrics are served, the first 200 by name."""
    failures: Annotated[list[Failure], ListAtomic(), Field(max_length=SHOWN)] = []
    """failures say why containers have no endpoint, the first 200 by name."""


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
        PrinterColumn("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
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
    """spec is what a user asks for."""
    status: PrometheusJmxExporterStatus | None = None
    """status is what the operator observed."""


PROMETHEUS_JMX_EXPORTER: Final[Kind] = kind_of(PrometheusJmxExporter)
"""The kind as data."""
