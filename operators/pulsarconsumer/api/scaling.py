"""Parts of the spec that define the number of consumers and their pods."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.crd import (
    Count,
    IntOrString,
    KubernetesModel,
    LabelMap,
    ListMap,
    RawObject,
    Rule,
    TemplateMeta,
)
from operators.pulsarconsumer.api.connection import UNSTORED

MAX_REPLICAS = 1000
"""Maximum number of consumers of one PulsarConsumer."""
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
"""A number of consumers."""
Window = Annotated[int, Field(ge=0, le=3600)]
"""A duration in seconds, at most one hour."""


class ScalingEngine(StrEnum):
    """ScalingEngine names the component that decides the number of consumers."""

    NATIVE = "Native"
    """Native scales by backlog, age and drain time, down to zero."""
    KEDA = "KEDA"
    """KEDA creates a ScaledObject. KEDA must be installed."""
    HPA = "HPA"
    """HPA creates a HorizontalPodAutoscaler that scales by CPU."""


class DelayedMessages(StrEnum):
    """DelayedMessages defines whether messages that are not due yet count as backlog."""

    IGNORE = "Ignore"
    COUNT = "Count"


class BacklogPrecision(StrEnum):
    """BacklogPrecision defines how the broker counts the backlog."""

    ESTIMATE = "Estimate"
    """Estimate is cheap and may be inexact."""
    PRECISE = "Precise"
    """Precise makes the broker read its ledgers."""


class PartitionLimit(StrEnum):
    """PartitionLimit defines whether consumers that would be idle are omitted."""

    AUTO = "Auto"
    """Auto runs at most one consumer of type Exclusive, and at most one per partition of type
    Failover."""
    NEVER = "Never"


class ScalingTargets(KubernetesModel):
    """ScalingTargets are the targets of autoscaling. The target that needs most consumers wins."""

    backlog_per_replica: Annotated[int, Field(ge=1, le=1_000_000_000)] = 100
    """backlogPerReplica is the number of messages in the backlog for each consumer."""
    max_backlog_age_seconds: Annotated[int, Field(ge=1, le=604_800)] | None = None
    """maxBacklogAgeSeconds is the age of the oldest message above which consumers are added."""
    drain_time_seconds: Annotated[int, Field(ge=1, le=604_800)] | None = None
    """drainTimeSeconds is the time in which the backlog should be consumed, at the rate at which
    consumers acknowledge messages."""
    cpu_utilization_percent: Annotated[int, Field(ge=1, le=1000)] = 80
    """cpuUtilizationPercent is the target for the mean utilization of the requested CPU, for engine
    HPA."""


class ScalingStep(KubernetesModel):
    """ScalingStep limits changes in one direction."""

    stabilization_seconds: Window = 0
    """stabilizationSeconds is the window over which the smallest change is chosen."""
    max_step: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    """maxStep is the maximum number of consumers that are added or removed at a time."""


class ScalingBehavior(KubernetesModel):
    """ScalingBehavior limits how fast the number of consumers changes."""

    scale_up: ScalingStep = ScalingStep()
    """scaleUp limits how fast consumers are added."""
    scale_down: ScalingStep = ScalingStep(stabilization_seconds=300)
    """scaleDown limits how fast consumers are removed. Defaults to a window of 300 seconds."""


class ScalingFallback(KubernetesModel):
    """ScalingFallback applies if the broker cannot be queried."""

    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = 3
    """failureThreshold is the number of successive queries that must fail."""
    replicas: Replicas = 1
    """replicas is the minimum number of consumers in this case. The number is never lowered."""


class Autoscaling(
    KubernetesModel,
    rules=(
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas must not exceed maxReplicas",
            field_path=".minReplicas",
        ),
        Rule(
            "self.engine != 'HPA' || self.minReplicas >= 1",
            "minReplicas must be at least 1 if engine is HPA, which cannot scale up from zero",
            field_path=".minReplicas",
        ),
    ),
):
    """Autoscaling adjusts the number of consumers."""

    engine: ScalingEngine = ScalingEngine.NATIVE
    """engine is Native, KEDA or HPA."""
    min_replicas: Replicas = 0
    """minReplicas is the minimum number of consumers. With 0, all stop while there is no
    backlog."""
    max_replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 10
    """maxReplicas is the maximum number of consumers."""
    targets: Annotated[ScalingTargets, UNSTORED] = ScalingTargets()
    """targets are the values that autoscaling maintains."""
    activation_backlog: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    """activationBacklog is the number of messages that must be exceeded to scale up from zero."""
    delayed_messages: DelayedMessages = DelayedMessages.IGNORE
    """delayedMessages is Count if messages that are not due yet are part of the backlog."""
    backlog_precision: BacklogPrecision = BacklogPrecision.ESTIMATE
    """backlogPrecision is Estimate or Precise."""
    partition_limit: PartitionLimit = PartitionLimit.AUTO
    """partitionLimit is Auto to run no consumers that would receive no messages."""
    poll_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """pollSeconds is the time between two queries of the backlog."""
    cooldown_seconds: Window = 300
    """cooldownSeconds is the time without a backlog after which the last consumer stops."""
    behavior: Annotated[ScalingBehavior, UNSTORED] = ScalingBehavior()
    """behavior limits how fast the number changes."""
    fallback: Annotated[ScalingFallback, UNSTORED] = ScalingFallback()
    """fallback applies if the broker cannot be queried."""


class PodMonitor(KubernetesModel):
    """PodMonitor configures a PodMonitor. The Prometheus operator must be installed."""

    labels: LabelMap = {}
    """labels are the labels by which Prometheus selects PodMonitors."""
    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """intervalSeconds is the time between scrapes."""


class Metrics(KubernetesModel):
    """Metrics configures the metrics of the consumers."""

    port: Annotated[int, Field(ge=1024, le=65535)] = 8080
    """port is the port of the metrics."""
    pod_monitor: PodMonitor | None = None
    """podMonitor creates a PodMonitor."""


class DisruptionBudget(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.minAvailable) != has(self.maxUnavailable)",
            "podDisruptionBudget needs exactly one of minAvailable and maxUnavailable",
        ),
    ),
):
    """DisruptionBudget limits how many consumers a node drain evicts at a time."""

    min_available: IntOrString | None = None
    """minAvailable is the number or percentage of consumers that must remain."""
    max_unavailable: IntOrString | None = None
    """maxUnavailable is the number or percentage of consumers that may be unavailable."""


class ConsumerTemplate(KubernetesModel):
    """ConsumerTemplate is merged into the pod template that the operator builds."""

    metadata: TemplateMeta = TemplateMeta()
    """metadata has additional labels and annotations of the pods."""
    spec: RawObject = {}
    """spec is merged into the spec of the pods. The container named consumer is the container of
    the operator; other containers are added."""


class TopicBacklog(KubernetesModel):
    """TopicBacklog is the backlog of one topic or partition."""

    name: Annotated[str, Field(max_length=1024)]
    """name is the name of the topic or partition."""
    entries: Annotated[int, Field(ge=0, le=2**53)] = 0
    """entries is the number of entries in the backlog."""
    consumers: Count = 0
    """consumers is the number of consumers that are connected to it."""


class Backlog(KubernetesModel):
    """Backlog is the backlog of the subscription as the broker reports it. Numbers are rounded."""

    entries: Annotated[int, Field(ge=0, le=2**53)] = 0
    """entries is the number of entries. An entry is a message or a batch of messages."""
    messages_estimate: Annotated[int, Field(ge=0, le=2**53)] = 0
    """messagesEstimate is the number of messages, estimated from the recent size of batches."""
    bytes: Annotated[int, Field(ge=0, le=2**53)] = 0
    """bytes is the size of the backlog in bytes."""
    delayed: Annotated[int, Field(ge=0, le=2**53)] = 0
    """delayed is the number of messages that are not due yet."""
    unacknowledged: Annotated[int, Field(ge=0, le=2**53)] = 0
    """unacknowledged is the number of messages that were delivered and not acknowledged yet."""
    rate_in: Annotated[int, Field(ge=0, le=2**53)] = 0
    """rateIn is the number of messages published per second."""
    rate_out: Annotated[int, Field(ge=0, le=2**53)] = 0
    """rateOut is the number of messages delivered per second."""
    rate_redelivered: Annotated[int, Field(ge=0, le=2**53)] = 0
    """rateRedelivered is the number of messages redelivered per second."""
    partitions: Count = 0
    """partitions is the number of partitions, 0 for a topic without partitions."""
    topics: Annotated[list[TopicBacklog], ListMap("name"), Field(max_length=20)] | None = None
    """topics are the topics and partitions with the largest backlog, if there are several."""


class ScalingStatus(KubernetesModel):
    """ScalingStatus is the last decision of the engine Native."""

    desired_replicas: Count = 0
    """desiredReplicas is the desired number of consumers."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """reason is the target that determined the number."""
    limited_by: Annotated[str, Field(max_length=64)] = ""
    """limitedBy is the limit that was applied to the number."""
