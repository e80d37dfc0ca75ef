"""The types of the values of every chart, from which the schema of the charts is generated.

The templates that use them are in helm/operator-common, together with the defaults and descriptions
in files/values.yaml, from which the values.yaml of each chart is generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

Labels = dict[str, str]
"""Labels or annotations."""
Objects = list[dict[str, Any]]
"""Parts of a manifest that are copied unchanged."""
Seconds = Annotated[int, Field(ge=1)]
"""A time in seconds."""
Hours = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}h$")]
"""A number of hours such as 24h, as Go writes durations."""
Duration = Annotated[str, Field(pattern=r"^([0-9]+(ms|s|m|h))*$")]
"""A Prometheus duration such as 30s; empty for the default."""
Namespace = Annotated[str, Field(max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$")]
"""The name of a namespace; the templates refuse a star and name the value to set instead."""
NamespaceName = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""The name of a namespace, where a star means nothing."""
Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
"""A range of addresses such as 10.0.0.1/32."""
Registry = Annotated[str, Field(pattern=r"^([^/:@]+(:[0-9]+)?(/[^/:@]+)*)?$")]
"""A registry: a host, optionally with a port and a path; neither a URL nor an image."""
Repository = Annotated[str, Field(pattern=r"^([^/:@]+:[0-9]+/)?[a-z0-9][a-z0-9._/-]*$")]
"""The name of an image without tag and digest."""
UserId = Annotated[int, Field(ge=1)] | None
"""A non-root user or group; null lets the platform choose."""
Amount = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^[0-9]+%$")]
"""A number of pods, or a percentage of them."""
Port = Annotated[int, Field(ge=1, le=65535)]
"""A port."""
Profile = Annotated[
    dict[str, str],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": False,
            # Not in `properties`, so that the profile is one value in the table of values.
            "patternProperties": {
                "^type$": {"enum": ["RuntimeDefault", "Localhost"]},
                "^localhostProfile$": {"type": "string", "minLength": 1},
            },
        }
    ),
]
"""A seccomp or AppArmor profile other than Unconfined."""
Url = Annotated[str, Field(pattern=r"^(https?://.+)?$")]
"""A URL; empty for none."""


OTHER_NAMES: Final[Mapping[str, str]] = {
    "replicaCount": "replicas",
    "nameOverride": "fullnameOverride",
    "namespaceOverride": "the option --namespace of helm",
    "installCRDs": "crds.install",
    "crds.enabled": "crds.install",
    "crds.create": "crds.install",
    "crds.additionalAnnotations": "crds.annotations",
    "image.name": "image.repository",
    "env": "extraEnv",
    "extraEnvVars": "extraEnv",
    "envFrom": "extraEnvFrom",
    "args": "extraArgs",
    "additionalArgs": "extraArgs",
    "volumes": "extraVolumes",
    "volumeMounts": "extraVolumeMounts",
    "sidecars": "extraContainers",
    "extraInitContainers": "initContainers",
    "extraDeploy": "extraObjects",
    "extraManifests": "extraObjects",
    "labels": "commonLabels",
    "annotations": "commonAnnotations",
    "containerSecurityContext": "securityContext",
    "updateStrategy": "strategy",
    "upgradeStrategy": "strategy",
    "pdb": "podDisruptionBudget",
    "logLevel": "settings.logLevel",
    "leaderElection": "settings.leaderElect",
    "watchNamespace": "watch.namespaces",
    "watchNamespaces": "watch.namespaces",
    "watchAnyNamespace": "watch.clusterWide",
    "webhook": "settings.webhooks",
    "metrics": "serviceMonitor, podMonitor or settings.metricsSecure",
    "monitoring": "serviceMonitor, prometheusRule and dashboard",
    "prometheus": "serviceMonitor, podMonitor and prometheusRule",
    "serviceMonitor.additionalLabels": "serviceMonitor.labels",
    "podMonitor.additionalLabels": "podMonitor.labels",
}
"""Names that charts of other projects use, and what the value is called here.

The schema refuses them with this name, so that Helm prints it.
"""


class ValuesModel(BaseModel):
    """A part of the values; unknown keys are refused because they are probably typing errors."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid")


class Global(BaseModel):
    """Values that a parent chart sets for all of its dependencies.

    Unknown keys are ignored: tools and parent charts add keys that are meant for other charts.
    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="allow")

    image_registry: Registry
    image_pull_secrets: Objects
    common_labels: Labels
    common_annotations: Labels
    node_selector: Labels
    tolerations: Objects
    priority_class_name: str
    platform_assigns_user_ids: bool


class Image(ValuesModel):
    """The image of the operator."""

    registry: Registry
    repository: Repository
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")]
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
    pull_policy: Literal["Always", "IfNotPresent", "Never"]


class Requirement(ValuesModel):
    """A requirement on the labels of a namespace."""

    key: Annotated[str, Field(min_length=1)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []


class NamespaceSelector(ValuesModel):
    """A label selector for the watched namespaces."""

    match_labels: Labels
    match_expressions: list[Requirement]


class Watch(ValuesModel):
    """The namespaces that the operator watches."""

    namespaces: list[Namespace]
    cluster_wide: bool
    excluded_namespaces: list[NamespaceName]
    namespace_selector: NamespaceSelector


class ServiceAccount(ValuesModel):
    """The identity of the operator."""

    create: bool
    name: str
    annotations: Labels
    labels: Labels


class Rbac(ValuesModel):
    """Permissions."""

    create: bool
    cluster_roles: bool
    user_roles: bool
    team_roles: bool
    existing_cluster_role: Annotated[str, Field(max_length=253)]
    catalog_groups: list[str]


class Crds(ValuesModel):
    """CustomResourceDefinitions."""

    install: bool
    keep: bool
    annotations: Labels


class Lease(ValuesModel):
    """The Lease of the leader election."""

    create: bool


class PodSecurityContext(ValuesModel):
    """Security context of a pod, at least as strict as the standard `restricted`."""

    run_as_non_root: Literal[True]
    run_as_user: UserId
    run_as_group: UserId
    fs_group: UserId
    supplemental_groups: list[Annotated[int, Field(ge=1)]]
    seccomp_profile: Profile
    # The alias generator cannot derive this name.
    se_linux_options: dict[str, str] = Field(alias="seLinuxOptions")


class Capabilities(ValuesModel):
    """Capabilities of a container: none."""

    drop: Annotated[list[Literal["ALL"]], Field(min_length=1, max_length=1)]


class SecurityContext(ValuesModel):
    """Security context of a container, at least as strict as the standard `restricted`."""

    allow_privilege_escalation: Literal[False]
    read_only_root_filesystem: Literal[True]
    capabilities: Capabilities
    app_armor_profile: Profile


class Probe(ValuesModel):
    """Timing of a probe."""

    period_seconds: Seconds
    timeout_seconds: Seconds
    failure_threshold: Annotated[int, Field(ge=1)]


class PodDisruptionBudget(ValuesModel):
    """The number of pods that can be evicted at a time."""

    enabled: bool
    max_unavailable: Amount | None
    min_available: Amount | None


class Cleanup(ValuesModel):
    """What happens when the release is uninstalled."""

    on_uninstall: bool
    timeout_seconds: Seconds


class Switch(ValuesModel):
    """An object that is created or not."""

    enabled: bool


class ApiServer(ValuesModel):
    """Addresses of the API server."""

    cidrs: list[Cidr]
    # A rule without ports would allow all egress traffic.
    ports: Annotated[list[Port], Field(min_length=1)]


class Dns(ValuesModel):
    """Addresses of the DNS servers."""

    to: Objects
    ports: Annotated[list[Port], Field(min_length=1)]


class NetworkPolicy(Switch):
    """The connections that are allowed from and to the operator."""

    flavor: Literal["kubernetes", "cilium"]
    metrics_from: Objects
    dns: Dns
    api_server: ApiServer
    traces_to: Objects
    extra_egress: Objects


class Monitor(Switch):
    """Scraping by the Prometheus operator."""

    namespace: Namespace | Literal[""]
    interval: Duration
    scrape_timeout: Duration
    labels: Labels
    annotations: Labels
    honor_labels: bool
    relabelings: Objects
    metric_relabelings: Objects
    scheme: Literal["http", "https"]
    tls_config: dict[str, Any]
    authorization: dict[str, Any]


class PrometheusRule(Switch):
    """Alerts."""

    namespace: Namespace | Literal[""]
    labels: Labels
    alert_labels: Labels
    disabled_alerts: list[str]
    runbook_url: Url


class Dashboard(Switch):
    """Dashboards for Grafana."""

    runtime: bool
    namespace: Namespace | Literal[""]
    labels: Labels
    annotations: Labels


class Tracing(ValuesModel):
    """Traces."""

    endpoint: Url


class IssuerRef(ValuesModel):
    """The issuer that signs a certificate."""

    name: Annotated[str, Field(max_length=253)]
    kind: Annotated[str, Field(min_length=1)]
    group: Annotated[str, Field(min_length=1)]


class CertManager(Switch):
    """A certificate that cert-manager issues."""

    issuer_ref: IssuerRef
    duration: Hours
    renew_before: Hours
    private_key_algorithm: Literal["ECDSA", "RSA", "Ed25519"]


class Ports(ValuesModel):
    """Ports of the container."""

    metrics: Port
    probes: Port
    webhook: Port


class Service(ValuesModel):
    """The Services."""

    annotations: Labels
    labels: Labels
    ip_family_policy: Literal["", "SingleStack", "PreferDualStack", "RequireDualStack"]
    ip_families: Annotated[list[Literal["IPv4", "IPv6"]], Field(max_length=2)]


class Webhooks(ValuesModel):
    """The webhooks and their certificate."""

    failure_policy: Literal["", "Ignore", "Fail"]
    timeout_seconds: Annotated[int, Field(ge=0, le=30)]
    certificate_secret: Annotated[str, Field(max_length=253)]
    cert_manager: CertManager


class ChartValues(ValuesModel):
    """The values of a chart except the settings of the operator."""

    # The key is a keyword of Python.
    global_: Global = Field(alias="global")
    image: Image
    image_pull_secrets: Objects
    fullname_override: Annotated[
        str, Field(max_length=50, pattern=r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$")
    ]
    common_labels: Labels
    common_annotations: Labels
    replicas: Annotated[int, Field(ge=0, le=10)]
    watch: Watch
    tracing: Tracing
    extra_args: list[str]
    extra_env: Objects
    extra_env_from: Objects
    init_containers: Objects
    extra_containers: Objects
    extra_objects: Objects
    extra_volumes: Objects
    extra_volume_mounts: Objects
    resources: dict[str, Any]
    pod_security_context: PodSecurityContext
    security_context: SecurityContext
    startup_probe: Probe
    liveness_probe: Probe
    readiness_probe: Probe
    strategy: dict[str, Any]
    revision_history_limit: Annotated[int, Field(ge=0)]
    deployment_annotations: Labels
    pod_annotations: Labels
    pod_labels: Labels
    priority_class_name: str
    runtime_class_name: str
    dns_policy: Literal["", "ClusterFirst", "Default", "None"]
    dns_config: dict[str, Any]
    host_aliases: Objects
    host_network: bool
    host_users: bool | None
    ports: Ports
    service: Service
    webhooks: Webhooks
    node_selector: Labels
    tolerations: Objects
    affinity: dict[str, Any]
    topology_spread_constraints: Objects
    termination_grace_period_seconds: Seconds
    service_account: ServiceAccount
    rbac: Rbac
    crds: Crds
    lease: Lease
    cleanup: Cleanup
    pod_disruption_budget: PodDisruptionBudget
    network_policy: NetworkPolicy
    service_monitor: Monitor
    pod_monitor: Monitor
    prometheus_rule: PrometheusRule
    dashboard: Dashboard
