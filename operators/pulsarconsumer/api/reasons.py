"""Conditions and reasons of a PulsarConsumer."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of a PulsarConsumer."""

    READY = "Ready"
    """Ready is True when all desired consumers are ready and run the current spec.

    A consumer is ready if it is connected to the broker."""
    AVAILABLE = "Available"
    """Available is True when at least one consumer is ready, or none is desired."""
    PROGRESSING = "Progressing"
    """Progressing is True while consumers are being started, replaced or stopped."""
    BROKER_REACHABLE = "BrokerReachable"
    """BrokerReachable is True when the broker's admin API responded to the last query."""
    SUBSCRIPTION_READY = "SubscriptionReady"
    """SubscriptionReady is True when the subscription exists on the broker."""
    AUTHENTICATION_VALID = "AuthenticationValid"
    """AuthenticationValid is False when the broker rejected the credentials, or a Secret is
    missing."""
    SCALING_ACTIVE = "ScalingActive"
    """ScalingActive is True while the number of consumers follows the backlog. It is present with
    spec.autoscaling only."""
    PAUSED = "Paused"
    """Paused is True while spec.paused is set. It is absent otherwise."""
    SUBSCRIPTIONS_ABANDONED = "SubscriptionsAbandoned"
    """SubscriptionsAbandoned is True while the broker has subscriptions that an earlier spec named
    and this spec does not. It is absent otherwise."""
    CONSUMPTION_BLOCKED = "ConsumptionBlocked"
    """ConsumptionBlocked is True while the broker delivers no more messages to consumers because
    they hold too many without acknowledging them. It is absent otherwise."""
    TOPICS_SHARED = "TopicsShared"
    """TopicsShared is True while another PulsarConsumer in the namespace has the same retry or
    dead-letter topic by mistake. It is absent otherwise."""
    TERMINATING = "Terminating"
    """Terminating is True while a deletion waits. The reason names the cause."""


class Reason(StrEnum):
    """Reasons of the conditions and events of a PulsarConsumer."""

    ALL_READY = "AllReady"
    """AllReady means that every desired consumer is ready."""
    IDLE = "Idle"
    """Idle means that no consumers run, because none are desired."""
    STARTING = "Starting"
    """Starting means that consumers are not ready yet."""
    UPDATING = "Updating"
    """Updating means that consumers of an older spec are being replaced."""
    SCALING_DOWN = "ScalingDown"
    """ScalingDown means that surplus consumers are stopping."""
    SETTLED = "Settled"
    """Settled means that the Deployment is in sync with the spec."""
    WAITING_FOR_SUBSCRIPTION = "WaitingForSubscription"
    """WaitingForSubscription means that the operator has not created the subscription yet."""
    NOT_APPLIED = "NotApplied"
    """NotApplied means that the API server rejected an object. The message names the object and the
    cause."""
    NO_CONSUMER_READY = "NoConsumerReady"
    """NoConsumerReady means that consumers are desired and none is ready."""
    DEPLOYED = "Deployed"
    """Deployed means that objects were created or changed."""
    ANSWERED = "Answered"
    """Answered means that the broker responded."""
    NOT_ASKED = "NotAsked"
    """NotAsked means that the broker was not queried yet, or is never queried for this spec."""
    UNREACHABLE = "Unreachable"
    """Unreachable means that the admin API did not respond; check spec.adminAddress."""
    REFUSED_ADDRESS = "RefusedAddress"
    """RefusedAddress means that spec.adminAddress is an address of the operator's own pod or node,
    which it does not connect to."""
    REDIRECT_REFUSED = "RedirectRefused"
    """RedirectRefused means that the broker redirected to a host outside its domain, to which the
    operator does not send credentials; set spec.adminAddress."""
    BROKER_ERROR = "BrokerError"
    """BrokerError means that the broker responded with an error."""
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    """AuthenticationFailed means that the broker rejected the credentials."""
    AUTHORIZATION_FAILED = "AuthorizationFailed"
    """AuthorizationFailed means that the broker accepted the credentials but denied access."""
    SECRET_MISSING = "SecretMissing"  # noqa: S105 a reason, no password
    """SecretMissing means that a Secret, or a key in it, does not exist."""
    EXISTS = "Exists"
    """Exists means that the subscription exists on the broker."""
    MISSING = "Missing"
    """Missing means that the subscription does not exist yet. The first consumer creates it."""
    CREATED = "Created"
    """Created means that the operator created the subscription."""
    FOLLOWING_BACKLOG = "FollowingBacklog"
    """FollowingBacklog means that the number of consumers follows the backlog."""
    BROKER_NOT_ASKED = "BrokerNotAsked"
    """BrokerNotAsked means that the backlog is unknown, and the number of consumers is kept."""
    FALLBACK = "Fallback"
    """Fallback means that so many queries of the broker failed that autoscaling.fallback
    applies."""
    SUBSCRIPTION_BLOCKED = "SubscriptionBlocked"
    """SubscriptionBlocked means that the broker stopped the delivery because of too many
    unacknowledged messages. More consumers would not help."""
    DELEGATED = "Delegated"
    """Delegated means that a ScaledObject or a HorizontalPodAutoscaler sets the number."""
    ENGINE_SILENT = "EngineSilent"
    """EngineSilent means that KEDA, or the controller of HorizontalPodAutoscalers, has not reported
    on its object yet, or that KEDA does not react to messages. If that lasts, it does not run."""
    ENGINE_FAILING = "EngineFailing"
    """EngineFailing means that KEDA, or the controller of HorizontalPodAutoscalers, reports that it
    cannot scale, or is paused. The message contains its report."""
    ENGINE_MISSING = "EngineMissing"
    """EngineMissing means that the engine in spec.autoscaling.engine is not installed."""
    SCALED = "Scaled"
    """Scaled reports a new number of consumers."""
    PAUSED = "Paused"
    """Paused means that spec.paused is set."""
    SEEKING = "Seeking"
    """Seeking means that the consumers are stopped until the subscription was moved."""
    SEEK_DONE = "SeekDone"
    """SeekDone means that the subscription was moved."""
    SEEK_FAILED = "SeekFailed"
    """SeekFailed means that the broker refused to move the subscription, or that the seek was
    removed before it was done. Set a new id to try again."""
    ENDING_CONSUMERS = "EndingConsumers"
    """EndingConsumers means that a deletion waits for the consumers to stop."""
    DELETING_SUBSCRIPTION = "DeletingSubscription"
    """DeletingSubscription means that a deletion waits for the broker to delete the
    subscription."""
    SPEC_CHANGED = "SpecChanged"
    """SpecChanged means that a change of topics, subscriptionName or retry left subscriptions
    behind, which keep a backlog that nobody consumes."""
    UNACKNOWLEDGED_LIMIT = "UnacknowledgedLimit"
    """UnacknowledgedLimit means that consumers have reached a limit of the broker for
    unacknowledged messages: maxUnackedMessagesPerConsumer or maxUnackedMessagesPerSubscription."""
    NAMES_CLASH = "NamesClash"
    """NamesClash means that two PulsarConsumers use one topic for their copies. The message names
    the topic, the other PulsarConsumer and the field."""
    TOPIC_MISSING = "TopicMissing"
    """TopicMissing means that a topic does not exist and the broker does not create topics."""
    REPLICAS_IGNORED = "ReplicasIgnored"
    """ReplicasIgnored means that spec.replicas was changed although the engine Native sets the
    number of consumers."""
    SUBSCRIPTION_DELETED = "SubscriptionDeleted"
    """SubscriptionDeleted means that the broker deleted the subscription."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that consumers cannot run with this spec. The message names the field. Pods
    of the previous spec continue to run."""
