"""The types of the values that every chart has; the schema of the charts comes from it.

The templates that read them are in helm/operator-common. Defaults and descriptions stand in the
charts' values.yaml, where helm and people look for them; a test compares the keys of both.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Labels = dict[str, str]
"""Labels or annotations."""
Objects = list[dict[str, Any]]
"""Parts of a manifest that are passed on as they are."""
Seconds = Annotated[int, Field(ge=1)]
"""A time in seconds."""
Duration = Annotated[str, Field(pattern=r"^([0-9]+(ms|s|m|h))*$")]
"""A duration of Prometheus such as 30s; empty for its default."""
Namespace = Annotated[str, Field(max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$")]
"""The name of a namespace; the templates refuse a star, and say what to set instead."""
Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
"""A range of addresses such as 10.0.0.1/32."""
Registry = Annotated[str, Field(pattern=r"^([^/:@]+(:[0-9]+)?(/[^/:@]+)*)?$")]
"""A host, perhaps with a port and a path; neither a URL nor an image."""
Repository = Annotated[str, Field(pattern=r"^([^/:@]+:[0-9]+/)?[a-z0-9][a-z0-9._/-]*$")]
"""An image without tag and digest."""
Url = Annotated[str, Field(pattern=r"^(https?://.+)?$")]
"""A URL, or nothing."""


class ValuesModel(BaseModel):
    """A part of the values: unknown keys are typing errors and are refused."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid")


class Image(ValuesModel):
    """The image of the operator."""

    registry: Registry
    repository: Repository
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")]
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
    pull_policy: Literal["Always", "IfNotPresent", "Never"]


class Requirement(ValuesModel):
    """What the labels of a namespace must be like."""

    key: Annotated[str, Field(min_length=1)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []


class NamespaceSelector(ValuesModel):
    """Which namespaces are watched."""

    match_labels: Labels
    match_expressions: list[Requirement]


class Watch(ValuesModel):
    """Where the operator works."""

    namespaces: list[Namespace]
    cluster_wide: bool
    namespace_selector: NamespaceSelector


class ServiceAccount(ValuesModel):
    """The identity of the operator."""

    create: bool
    name: str
    annotations: Labels


class Rbac(ValuesModel):
    """Permissions."""

    create: bool
    user_roles: bool


class Crds(ValuesModel):
    """CustomResourceDefinitions."""

    install: bool
    keep: bool


class Cleanup(ValuesModel):
    """What happens when the release is uninstalled."""

    on_uninstall: bool
    timeout_seconds: Seconds


class Switch(ValuesModel):
    """Something that is made or not."""

    enabled: bool


class ApiServer(ValuesModel):
    """Where the API server is."""

    cidrs: list[Cidr]
    # A rule without ports would let everything out.
    ports: Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(min_length=1)]


class NetworkPolicy(Switch):
    """What may connect to the operator, and to what it may connect."""

    metrics_from: Objects
    api_server: ApiServer
    extra_egress: Objects


class ServiceMonitor(Switch):
    """Scraping by the Prometheus operator."""

    interval: Duration
    scrape_timeout: Duration
    labels: Labels
    metric_relabelings: Objects


class PrometheusRule(Switch):
    """Alerts."""

    labels: Labels


class Dashboard(Switch):
    """A dashboard for Grafana."""

    labels: Labels
    annotations: Labels


class Tracing(ValuesModel):
    """Traces."""

    endpoint: Url


class ChartValues(ValuesModel):
    """The values of a chart, without the settings of the operator."""

    image: Image
    image_pull_secrets: Objects
    fullname_override: Annotated[
        str, Field(max_length=50, pattern=r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$")
    ]
    replicas: Annotated[int, Field(ge=0, le=10)]
    watch: Watch
    tracing: Tracing
    extra_env: Objects
    extra_volumes: Objects
    extra_volume_mounts: Objects
    resources: dict[str, Any]
    pod_annotations: Labels
    pod_labels: Labels
    priority_class_name: str
    node_selector: Labels
    tolerations: Objects
    affinity: dict[str, Any]
    topology_spread_constraints: Objects
    termination_grace_period_seconds: Seconds
    service_account: ServiceAccount
    rbac: Rbac
    crds: Crds
    cleanup: Cleanup
    pod_disruption_budget: Switch
    network_policy: NetworkPolicy
    service_monitor: ServiceMonitor
    prometheus_rule: PrometheusRule
    dashboard: Dashboard
