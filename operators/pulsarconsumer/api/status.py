"""The status of a PulsarConsumer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from libs.common.crd import (
    Conditions,
    Count,
    KubernetesModel,
    ListMap,
    ObservedGeneration,
    Selector,
    Timestamp,
)
from operators.pulsarconsumer.api.scaling import Backlog, ScalingStatus


class SeekStatus(KubernetesModel):
    """SeekStatus tells of the last seek."""

    id: Annotated[str, Field(max_length=63)]
    """id is that of spec.subscription.seek."""
    target_time: Timestamp
    """targetTime is where the subscription is moved to; noted before it is moved."""
    outcome: Literal["Pending", "Done", "Failed"]
    """outcome is Pending, Done or Failed."""


class RetryStatus(KubernetesModel):
    """RetryStatus describes the messages that wait for their next attempt."""

    topic: Annotated[str, Field(max_length=1024)]
    """topic is the retry topic."""
    backlog: Annotated[int, Field(ge=0, le=2**53)] = 0
    """backlog is the number of messages in it."""
    delayed: Annotated[int, Field(ge=0, le=2**53)] = 0
    """delayed is the number of these messages that are not due yet. While no consumer is connected,
    messages that become due stay in this number."""


class DeadLetterStatus(KubernetesModel):
    """DeadLetterStatus tells of the messages that failed in every try."""

    topic: Annotated[str, Field(max_length=1024)]
    """topic is where they are."""
    backlog: Annotated[int, Field(ge=0, le=2**53)] = 0
    """backlog is how many entries wait there, in the subscription that has most."""


class SubscriptionStatus(KubernetesModel):
    """SubscriptionStatus names a subscription of a topic."""

    topic: Annotated[str, Field(max_length=1024)]
    """topic is the full name of the topic."""
    name: Annotated[str, Field(max_length=255)]
    """name is the name of the subscription."""


class AbandonedSubscription(SubscriptionStatus):
    """AbandonedSubscription is a subscription that an earlier spec named and this spec does not.

    It keeps every message that is published to its topic until somebody deletes it.
    """

    backlog: Annotated[int, Field(ge=0, le=2**53)] = 0
    """backlog is the number of entries that wait in it, at the last poll."""


MAX_SUBSCRIPTIONS = 64
"""Most subscriptions of a status: 50 topics, the retry topic, and some to spare."""


class PulsarConsumerStatus(KubernetesModel):
    """PulsarConsumerStatus is what the operator observed."""

    conditions: Conditions = []
    """conditions tell how the consumers are doing."""
    observed_generation: ObservedGeneration = 0
    """observedGeneration is the generation of the spec that this status is about."""
    server: Annotated[str, Field(max_length=2048)] = ""
    """server is spec.serverAddress."""
    topic: Annotated[str, Field(max_length=1024)] = ""
    """topic is spec.topic, spec.topicPattern, or the first of spec.topics with the number of the
    others, such as "orders and 2 more"."""
    subscription: Annotated[str, Field(max_length=255)] = ""
    """subscription is spec.subscriptionName."""
    replicas: Count = 0
    """replicas is the number of consumers that exist."""
    ready_replicas: Count = 0
    """readyReplicas is the number of consumers that are ready."""
    ready: Annotated[str, Field(max_length=16)] = ""
    """ready is the number of ready consumers and the number that is wanted, such as "2/2"."""
    updated_replicas: Count = 0
    """updatedReplicas is the number of consumers of the present spec."""
    selector: Selector = ""
    """selector is the label selector of the pods as text, for autoscalers."""
    admin_address: Annotated[str, Field(max_length=2048)] = ""
    """adminAddress is where the broker is asked."""
    backlog: Backlog | None = None
    """backlog is what waits in the subscription."""
    oldest_message_time: Timestamp | None = None
    """oldestMessageTime is when the oldest message that waits was published."""
    connected_consumers: Count = 0
    """connectedConsumers is the number of consumers that the broker has, of any origin."""
    retry: RetryStatus | None = None
    """retry describes the messages that wait for their next attempt in the retry topic."""
    dead_letter: DeadLetterStatus | None = None
    """deadLetter tells of the messages that failed in every try."""
    subscriptions: (
        Annotated[
            list[SubscriptionStatus], ListMap("topic", "name"), Field(max_length=MAX_SUBSCRIPTIONS)
        ]
        | None
    ) = None
    """subscriptions are the subscriptions of this spec that the broker has."""
    abandoned_subscriptions: (
        Annotated[
            list[AbandonedSubscription],
            ListMap("topic", "name"),
            Field(max_length=MAX_SUBSCRIPTIONS),
        ]
        | None
    ) = None
    """abandonedSubscriptions are subscriptions that an earlier spec named and this spec does not.
    With spec.subscription.deletionPolicy Delete, the operator deletes them."""
    autoscaling: ScalingStatus | None = None
    """autoscaling is what the engine Native decided."""
    last_seek: SeekStatus | None = None
    """lastSeek tells of the last seek."""
