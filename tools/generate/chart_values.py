"""The values that every chart has, as a model: the schema and the tables of the charts come from it.

The templates that read them are in helm/operator-common. Defaults stand in the charts' values.yaml,
where helm looks for them; a test compares the keys of both.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

type Labels = dict[str, str]
"""Labels or annotations."""
type Objects = list[dict[str, Any]]
"""Parts of a manifest that are passed on as they are."""

Duration = Annotated[str, Field(pattern=r"^([0-9]+(ms|s|m|h))*$")]
"""A duration of Prometheus such as 30s; empty for its default."""
Namespace = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""The name of a namespace."""


class ValuesModel(BaseModel):
    """A part of the values: unknown keys are typing errors and are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        use_attribute_docstrings=True,
        extra="forbid",
    )


class Image(ValuesModel):
    """The image of the operator."""

    registry: str = ""
    """registry is the host of a registry to put before the repository; empty for none."""
    repository: str = ""
    """repository is the name of the image."""
    tag: str = ""
    """tag is the tag of the image; empty means the version of the chart's application."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """digest pins the image by content, such as `sha256:...`; it wins over the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """pullPolicy says when the image is pulled."""


class Watch(ValuesModel):
    """Where the operator works."""

    namespaces: list[Namespace] = []
    """namespaces are the namespaces to watch; empty means that of the release."""
    cluster_wide: bool = False
    """clusterWide makes the operator watch all namespaces, with a ClusterRole in place of Roles."""


class ServiceAccount(ValuesModel):
    """The identity of the operator."""

    create: bool = True
    """create tells whether the chart makes the service account."""
    name: str = ""
    """name is the name of the service account; empty means that of the release."""
    annotations: Labels = {}
    """annotations are put on the service account."""


class Rbac(ValuesModel):
    """Permissions."""

    create: bool = True
    """create tells whether the chart makes roles and bindings for the operator."""
    user_roles: bool = True
    """userRoles tells whether the built-in roles view, edit and admin cover the operator's kinds."""


class Crds(ValuesModel):
    """CustomResourceDefinitions."""

    install: bool = True
    """install tells whether the chart installs and updates the CRDs of the operator."""
    keep: bool = True
    """keep tells whether the CRDs, and thereby all objects, stay when the release is uninstalled."""


class Cleanup(ValuesModel):
    """What happens when the release is uninstalled."""

    on_uninstall: bool = True
    """onUninstall removes the operator's finalizers first, so that nothing hangs in deletion."""
    timeout_seconds: Annotated[int, Field(ge=1)] = 120
    """timeoutSeconds is the time that this may take."""


class PodDisruptionBudget(ValuesModel):
    """Protection from voluntary disruptions."""

    enabled: bool = True
    """enabled makes a PodDisruptionBudget when there are several replicas."""


class ApiServer(ValuesModel):
    """Where the API server is, for the NetworkPolicy."""

    cidrs: list[str] = []
    """cidrs are the addresses of the API server; empty allows any."""
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = [443, 6443]
    """ports are the ports of the API server."""


class NetworkPolicy(ValuesModel):
    """What may connect to the operator, and to what it may connect."""

    enabled: bool = False
    """enabled makes a NetworkPolicy for the operator's pods."""
    api_server: ApiServer = ApiServer()
    """apiServer says where the API server is."""
    metrics_from: Objects = []
    """metricsFrom are the peers that may scrape metrics; empty allows any."""
    extra_egress: Objects = []
    """extraEgress are further egress rules, such as to a broker."""


class ServiceMonitor(ValuesModel):
    """Scraping by the Prometheus operator."""

    enabled: bool = False
    """enabled makes a ServiceMonitor."""
    interval: Duration = ""
    """interval is the time between two scrapes; empty means the default of Prometheus."""
    scrape_timeout: Duration = ""
    """scrapeTimeout is the time that a scrape may take; empty means the default of Prometheus."""
    labels: Labels = {}
    """labels are put on the ServiceMonitor, for the selector of a Prometheus."""
    metric_relabelings: Objects = []
    """metricRelabelings are applied to the samples before they are stored."""


class PrometheusRule(ValuesModel):
    """Alerts."""

    enabled: bool = False
    """enabled makes a PrometheusRule with the alerts of the operator."""
    labels: Labels = {}
    """labels are put on the PrometheusRule, for the selector of a Prometheus."""


class Dashboard(ValuesModel):
    """A dashboard for Grafana."""

    enabled: bool = False
    """enabled makes a ConfigMap with the dashboard of the operator."""
    labels: Labels = {}
    """labels are put on the ConfigMap, for the sidecar that loads dashboards."""
    annotations: Labels = {}
    """annotations are put on the ConfigMap, such as the folder of the dashboard."""


class Tracing(ValuesModel):
    """Traces."""

    endpoint: Annotated[str, Field(pattern=r"^(https?://.+)?$")] = ""
    """endpoint is the base URL of an OTLP/HTTP receiver; empty disables tracing."""


class ChartValues(ValuesModel):
    """The values of a chart, without the settings of the operator."""

    name_override: str = ""
    """nameOverride takes the place of the chart's name in the names of objects."""
    fullname_override: Annotated[str, Field(max_length=53)] = ""
    """fullnameOverride is the name of all objects; empty means that of the release."""
    replicas: Annotated[int, Field(ge=0, le=10)] = 1
    """replicas is the number of operator pods; one works, the others stand by."""
    image: Image = Image()
    """image is the image of the operator."""
    image_pull_secrets: Objects = []
    """imagePullSecrets name the Secrets to pull the image with."""
    watch: Watch = Watch()
    """watch says where the operator works."""
    service_account: ServiceAccount = ServiceAccount()
    """serviceAccount is the identity of the operator."""
    rbac: Rbac = Rbac()
    """rbac says which permissions the chart grants."""
    crds: Crds = Crds()
    """crds says what becomes of the CRDs."""
    cleanup: Cleanup = Cleanup()
    """cleanup says what happens when the release is uninstalled."""
    resources: dict[str, Any] = {}
    """resources are the requests and limits of the operator's container."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1)] = 30
    """terminationGracePeriodSeconds is the time between SIGTERM and SIGKILL."""
    pod_labels: Labels = {}
    """podLabels are put on the operator's pods."""
    pod_annotations: Labels = {}
    """podAnnotations are put on the operator's pods."""
    priority_class_name: str = ""
    """priorityClassName is the priority class of the operator's pods."""
    node_selector: Labels = {}
    """nodeSelector says which nodes the operator may run on."""
    tolerations: Objects = []
    """tolerations say which taints of nodes the operator tolerates."""
    affinity: dict[str, Any] = {}
    """affinity says which nodes the operator prefers."""
    topology_spread_constraints: Objects = []
    """topologySpreadConstraints say how replicas are spread; empty means over nodes."""
    extra_env: Objects = []
    """extraEnv are further environment variables of the operator's container."""
    extra_volumes: Objects = []
    """extraVolumes are further volumes of the operator's pods."""
    extra_volume_mounts: Objects = []
    """extraVolumeMounts are further mounts of the operator's container."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """podDisruptionBudget protects the operator from voluntary disruptions."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """networkPolicy says what may connect to the operator, and to what it may connect."""
    service_monitor: ServiceMonitor = ServiceMonitor()
    """serviceMonitor has the operator's metrics scraped."""
    prometheus_rule: PrometheusRule = PrometheusRule()
    """prometheusRule has alerts made of the operator's metrics."""
    dashboard: Dashboard = Dashboard()
    """dashboard shows the operator's metrics."""
    tracing: Tracing = Tracing()
    """tracing says where traces go."""
