"""The status of a PulsarConsumer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from libs.common.crd import (
    Conditions,
    Count,
    KubernetesModel,
    ListMap,
    ObjectStatus,
    Selector,
    Timestamp,
)
from operators.pulsarconsumer.api.scaling import Backlog, ScalingStatus


class SeekStatus(KubernetesModel):
    """SeekStatus describes the last seek."""

    id: Annotated[str, Field(max_length=63)]
    """id is the id of spec.subscription.seek."""
    target_time: Timestamp
    """targetTime is the publish time to which the subscription is moved."""
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
    """DeadLetterStatus describes the messages that failed in every attempt."""

    topic: Annotated[str, Field(max_length=1024)]
    """topic is the dead-letter topic."""
    backlog: Annotated[int, Field(ge=0, le=2**53)] = 0
    """backlog is the largest number of entries that a subscription of the topic has."""


class SubscriptionStatus(KubernetesModel):
    """SubscriptionStatus names a subscription of a topic."""

    topic: Annotated[str, Field(max_length=1024)]
    """topic is the full name of the topic."""
    name: Annotated[str, Field(max_length=255)]
    """name is the name of the subscription."""


class AbandonedSubscription(SubscriptionStatus):
    """AbandonedSubscription is a subscription that an earlier spec named and this spec does not.

    It keeps every message that is published to its topic until it is deleted.
    """

    backlog: Annotated[int, Field(ge=0, le=2**53)] = 0
    """backlog is the number of entries that wait in it, at the last poll."""


MAX_SUBSCRIPTIONS = 64
"""Maximum number of subscriptions in a status: 50 topics, the retry topic, and a reserve."""


class PulsarConsumerStatus(ObjectStatus):
    """PulsarConsumerStatus is the observed state."""

    conditions: Conditions = []
    """conditions describe the state of the consumers."""
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
    """ready is the number of ready consumers and the desired number, such as "2/2"."""
    updated_replicas: Count = 0
    """updatedReplicas is the number of consumers that run the current spec."""
    selector: Selector = ""
    """selector is the label selector of the pods as text, for autoscalers."""
    admin_address: Annotated[str, Field(max_length=2048)] = ""
    """adminAddress is the URL of the admin API that the operator queries."""
    backlog: Backlog | None = None
    """backlog is the backlog of the subscription."""
    oldest_message_time: Timestamp | None = None
    """oldestMessageTime is the publish time of the oldest message in the backlog."""
    connected_consumers: Count = 0
    """connectedConsumers is the number of consumers connected to the subscription, including
    consumers of others."""
    retry: RetryStatus | None = None
    """retry describes the messages that wait for their next attempt in the retry topic."""
    dead_letter: DeadLetterStatus | None = None
    """deadLetter describes the messages that failed in every attempt."""
    subscriptions: (
        Annotated[
            list[SubscriptionStatus], ListMap("topic", "name"), Field(max_length=MAX_SUBSCRIPTIONS)
        ]
        | None
    ) = None
    """subscriptions are the subscriptions of this spec that exist on the broker."""
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
    """autoscaling is the last decision of the engine Native."""
    last_seek: SeekStatus | None = None
    """lastSeek describes the last seek."""
