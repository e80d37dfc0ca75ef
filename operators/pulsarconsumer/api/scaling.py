"""Parts of the spec that say how many consumers there are, and how their pods look."""

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
"""Most consumers of one PulsarConsumer."""
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
"""A number of consumers."""
Window = Annotated[int, Field(ge=0, le=3600)]
"""A time of at most an hour, in seconds."""


class ScalingEngine(StrEnum):
    """ScalingEngine names who decides how many consumers there are."""

    NATIVE = "Native"
    """Native is this operator: by backlog, age and drain time, down to zero."""
    KEDA = "KEDA"
    """KEDA makes a ScaledObject; the cluster must have KEDA."""
    HPA = "HPA"
    """HPA makes a HorizontalPodAutoscaler by CPU."""


class DelayedMessages(StrEnum):
    """DelayedMessages says whether messages that are not due yet count as backlog."""

    IGNORE = "Ignore"
    COUNT = "Count"


class BacklogPrecision(StrEnum):
    """BacklogPrecision says how the broker counts."""

    ESTIMATE = "Estimate"
    """Estimate is cheap and may be off."""
    PRECISE = "Precise"
    """Precise makes the broker look at its ledgers."""


class PartitionLimit(StrEnum):
    """PartitionLimit says whether consumers that would idle are left out."""

    AUTO = "Auto"
    """Auto has at most one consumer of type Exclusive, and one a partition of type Failover."""
    NEVER = "Never"


class ScalingTargets(KubernetesModel):
    """ScalingTargets are what the number of consumers is chosen for; the highest number wins."""

    backlog_per_replica: Annotated[int, Field(ge=1, le=1_000_000_000)] = 100
    """backlogPerReplica is the backlog that one consumer is there for."""
    max_backlog_age_seconds: Annotated[int, Field(ge=1, le=604_800)] | None = None
    """maxBacklogAgeSeconds is how old the oldest message may be before consumers are added."""
    drain_time_seconds: Annotated[int, Field(ge=1, le=604_800)] | None = None
    """drainTimeSeconds is the time in which the backlog is to be gone, at the rate that consumers
    were seen to have."""
    cpu_utilization_percent: Annotated[int, Field(ge=1, le=1000)] = 80
    """cpuUtilizationPercent is the mean use of requested CPU to aim at; for engine HPA."""


class ScalingStep(KubernetesModel):
    """ScalingStep steadies changes in one direction."""

    stabilization_seconds: Window = 0
    """stabilizationSeconds is how long a need must have lasted; the least change in that time is
    made."""
    max_step: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    """maxStep is the most consumers that one look at the backlog adds or takes away."""


class ScalingBehavior(KubernetesModel):
    """ScalingBehavior steadies the number of consumers."""

    scale_up: ScalingStep = ScalingStep()
    """scaleUp steadies growth."""
    scale_down: ScalingStep = ScalingStep(stabilization_seconds=300)
    """scaleDown steadies shrinking."""


class ScalingFallback(KubernetesModel):
    """ScalingFallback is for when the broker cannot be asked."""

    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = 3
    """failureThreshold is how many looks in a row must fail."""
    replicas: Replicas = 1
    """replicas is how many consumers there are then at least; never fewer than there were."""


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
            "minReplicas must be at least 1 when engine is HPA, which cannot wake up from zero",
            field_path=".minReplicas",
        ),
    ),
):
    """Autoscaling chooses the number of consumers."""

    engine: ScalingEngine = ScalingEngine.NATIVE
    """engine is Native, KEDA or HPA."""
    min_replicas: Replicas = 0
    """minReplicas is the fewest consumers; 0 ends them all while nothing waits."""
    max_replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 10
    """maxReplicas is the most consumers."""
    targets: Annotated[ScalingTargets, UNSTORED] = ScalingTargets()
    """targets are what the number is chosen for."""
    activation_backlog: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    """activationBacklog is the backlog that does not yet wake consumers up from zero."""
    delayed_messages: DelayedMessages = DelayedMessages.IGNORE
    """delayedMessages says whether messages that are not due yet count."""
    backlog_precision: BacklogPrecision = BacklogPrecision.ESTIMATE
    """backlogPrecision says how the broker counts."""
    partition_limit: PartitionLimit = PartitionLimit.AUTO
    """partitionLimit leaves out consumers that would idle."""
    poll_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """pollSeconds is the time between two looks at the backlog."""
    cooldown_seconds: Window = 300
    """cooldownSeconds is how long nothing must have waited before the last consumer ends."""
    behavior: Annotated[ScalingBehavior, UNSTORED] = ScalingBehavior()
    """behavior steadies the number."""
    fallback: Annotated[ScalingFallback, UNSTORED] = ScalingFallback()
    """fallback is for when the broker cannot be asked."""


class PodMonitor(KubernetesModel):
    """PodMonitor lets Prometheus find the consumers; the cluster must have its operator."""

    labels: LabelMap = {}
    """labels are those by which Prometheus picks PodMonitors."""
    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """intervalSeconds is the time between scrapes."""


class Metrics(KubernetesModel):
    """Metrics tells where consumers serve metrics and probes."""

    port: Annotated[int, Field(ge=1024, le=65535)] = 8080
    """port serves metrics and probes."""
    pod_monitor: PodMonitor | None = None
    """podMonitor makes a PodMonitor."""


class DisruptionBudget(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.minAvailable) != has(self.maxUnavailable)",
            "podDisruptionBudget needs exactly one of minAvailable and maxUnavailable",
        ),
    ),
):
    """DisruptionBudget bounds how many consumers a drain of nodes takes at a time."""

    min_available: IntOrString | None = None
    """minAvailable is how many consumers, or which percentage, must stay."""
    max_unavailable: IntOrString | None = None
    """maxUnavailable is how many consumers, or which percentage, may be missing."""


class ConsumerTemplate(KubernetesModel):
    """ConsumerTemplate is laid over the pods that the operator builds."""

    metadata: TemplateMeta = TemplateMeta()
    """metadata holds further labels and annotations of the pods."""
    spec: RawObject = {}
    """spec is laid over the spec of the pods; the container named consumer is that of the operator,
    others run beside it."""


class TopicBacklog(KubernetesModel):
    """TopicBacklog is what waits in one topic, or in one partition of it."""

    name: Annotated[str, Field(max_length=1024)]
    """name is the name of the topic or partition."""
    entries: Annotated[int, Field(ge=0, le=2**53)] = 0
    """entries is the number of entries that wait in it."""
    consumers: Count = 0
    """consumers is the number of consumers that are connected to it."""


class Backlog(KubernetesModel):
    """Backlog is what waits in the subscription, as the broker told; numbers are rounded."""

    entries: Annotated[int, Field(ge=0, le=2**53)] = 0
    """entries is the number of entries that wait; an entry is a message or a batch of them."""
    messages_estimate: Annotated[int, Field(ge=0, le=2**53)] = 0
    """messagesEstimate is the number of messages that wait, by the size of batches lately seen."""
    bytes: Annotated[int, Field(ge=0, le=2**53)] = 0
    """bytes is the size of what waits."""
    delayed: Annotated[int, Field(ge=0, le=2**53)] = 0
    """delayed is the number of messages that are not due yet."""
    unacknowledged: Annotated[int, Field(ge=0, le=2**53)] = 0
    """unacknowledged is the number of messages that consumers hold."""
    rate_in: Annotated[int, Field(ge=0, le=2**53)] = 0
    """rateIn is the number of messages that come in a second."""
    rate_out: Annotated[int, Field(ge=0, le=2**53)] = 0
    """rateOut is the number of messages that go to consumers in a second."""
    rate_redelivered: Annotated[int, Field(ge=0, le=2**53)] = 0
    """rateRedelivered is the number of messages delivered again in a second."""
    partitions: Count = 0
    """partitions is the number of partitions; 0 for a topic that has none."""
    topics: Annotated[list[TopicBacklog], ListMap("name"), Field(max_length=20)] | None = None
    """topics are the topics and partitions in which most waits, where there are several."""


class ScalingStatus(KubernetesModel):
    """ScalingStatus is what the engine Native decided."""

    desired_replicas: Count = 0
    """desiredReplicas is the number of consumers that was chosen."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """reason is what the number was chosen for."""
    limited_by: Annotated[str, Field(max_length=64)] = ""
    """limitedBy is what kept the number from being higher or lower."""
