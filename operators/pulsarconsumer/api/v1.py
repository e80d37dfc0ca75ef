"""PulsarConsumer v1: the kind, its conditions and reasons.

`serverAddress`, `topic`, `subscriptionName` and `replicas` are the fields that the kind always had;
a manifest of these alone means what it always meant. All others are additions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    CustomResource,
    KubernetesModel,
    ListSet,
    PrinterColumn,
    Rule,
    Scale,
    Waive,
    kind_of,
)
from libs.common.kinds import Kind
from operators.pulsarconsumer.api.connection import (
    UNSTORED,
    Authentication,
    HttpAddress,
    ServerAddress,
    SubscriptionName,
    TopicName,
    TopicPattern,
    TransportSecurity,
)
from operators.pulsarconsumer.api.consuming import (
    Consumption,
    DeadLetter,
    Drain,
    Encryption,
    Handler,
    MessageLog,
    MessageSchema,
    Output,
    Retry,
    Subscription,
)
from operators.pulsarconsumer.api.scaling import (
    Autoscaling,
    ConsumerTemplate,
    DisruptionBudget,
    Metrics,
    Replicas,
)
from operators.pulsarconsumer.api.status import PulsarConsumerStatus

GROUP: Final = "consumer.pulsarconsumer.krvarma.com"
"""API group, as the kind always had it."""


class ConditionType(StrEnum):
    """Conditions of a PulsarConsumer."""

    READY = "Ready"
    """Ready is True when as many consumers are ready as there are to be, all of the present spec.

    It says nothing of the broker: a consumer that cannot reach it is not ready by itself."""
    AVAILABLE = "Available"
    """Available is True when at least one consumer is ready, or none is asked for."""
    PROGRESSING = "Progressing"
    """Progressing is True while consumers are being started, replaced or ended."""
    BROKER_REACHABLE = "BrokerReachable"
    """BrokerReachable is True when the broker's admin API answered the last look at it."""
    SUBSCRIPTION_READY = "SubscriptionReady"
    """SubscriptionReady is True when the broker knows the subscription."""
    AUTHENTICATION_VALID = "AuthenticationValid"
    """AuthenticationValid is False when the broker refused the credentials, or they are not to be
    had."""
    SCALING_ACTIVE = "ScalingActive"
    """ScalingActive is True while the number of consumers follows the backlog; shown with
    spec.autoscaling."""
    PAUSED = "Paused"
    """Paused is True while spec.paused keeps all consumers from running; shown then."""
    SUBSCRIPTIONS_ABANDONED = "SubscriptionsAbandoned"
    """SubscriptionsAbandoned is True while the broker has subscriptions that an earlier spec named
    and this spec does not; shown then."""
    TERMINATING = "Terminating"
    """Terminating is True while a deletion waits; the reason says for what."""


class Reason(StrEnum):
    """Reasons of the conditions and events of a PulsarConsumer."""

    ALL_READY = "AllReady"
    """AllReady means that every consumer that was asked for is ready."""
    IDLE = "Idle"
    """Idle means that there are no consumers, as there are to be none."""
    STARTING = "Starting"
    """Starting means that consumers are not ready yet."""
    UPDATING = "Updating"
    """Updating means that consumers of an older spec are being replaced."""
    SCALING_DOWN = "ScalingDown"
    """ScalingDown means that surplus consumers are ending."""
    SETTLED = "Settled"
    """Settled means that the Deployment is as it is to be."""
    WAITING_FOR_SUBSCRIPTION = "WaitingForSubscription"
    """WaitingForSubscription means that the operator has yet to make the subscription."""
    NOT_APPLIED = "NotApplied"
    """NotApplied means that the API server refused an object; the message says which and why."""
    NO_CONSUMER_READY = "NoConsumerReady"
    """NoConsumerReady means that there are to be consumers and none is ready."""
    DEPLOYED = "Deployed"
    """Deployed means that objects were created or changed."""
    ANSWERED = "Answered"
    """Answered means that the broker answered."""
    NOT_ASKED = "NotAsked"
    """NotAsked means that the broker is not asked, or not yet."""
    UNREACHABLE = "Unreachable"
    """Unreachable means that the admin API gave no answer; see spec.adminAddress."""
    REFUSED_ADDRESS = "RefusedAddress"
    """RefusedAddress means that the operator does not talk to such addresses."""
    REDIRECT_REFUSED = "RedirectRefused"
    """RedirectRefused means that the broker names a host that credentials are not given to."""
    BROKER_ERROR = "BrokerError"
    """BrokerError means that the broker answered with an error."""
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    """AuthenticationFailed means that the broker does not accept the credentials."""
    AUTHORIZATION_FAILED = "AuthorizationFailed"
    """AuthorizationFailed means that the broker knows who asks, and does not allow it."""
    SECRET_MISSING = "SecretMissing"  # noqa: S105 a reason, no password
    """SecretMissing means that a Secret or a key of it does not exist."""
    EXISTS = "Exists"
    """Exists means that the broker knows the subscription."""
    MISSING = "Missing"
    """Missing means that the broker does not know the subscription; a consumer makes it."""
    CREATED = "Created"
    """Created means that the operator made the subscription."""
    FOLLOWING_BACKLOG = "FollowingBacklog"
    """FollowingBacklog means that the number of consumers follows what waits."""
    BROKER_NOT_ASKED = "BrokerNotAsked"
    """BrokerNotAsked means that nothing is known of the backlog, and the number is kept."""
    FALLBACK = "Fallback"
    """Fallback means that the broker could not be asked often enough to fall back."""
    SUBSCRIPTION_BLOCKED = "SubscriptionBlocked"
    """SubscriptionBlocked means that consumers hold too many messages; more would not help."""
    DELEGATED = "Delegated"
    """Delegated means that an object of KEDA or a HorizontalPodAutoscaler decides."""
    ENGINE_SILENT = "EngineSilent"
    """EngineSilent means that KEDA, or the controller of HorizontalPodAutoscalers, has not reported
    on its object yet; if that lasts, it does not run."""
    ENGINE_FAILING = "EngineFailing"
    """EngineFailing means that KEDA, or the controller of HorizontalPodAutoscalers, reports that it
    cannot scale; the message has its words."""
    ENGINE_MISSING = "EngineMissing"
    """EngineMissing means that the cluster does not have what spec.autoscaling.engine names."""
    SCALED = "Scaled"
    """Scaled tells of a new number of consumers."""
    PAUSED = "Paused"
    """Paused means that spec.paused asks for it."""
    SEEKING = "Seeking"
    """Seeking means that the subscription is being moved."""
    SEEK_DONE = "SeekDone"
    """SeekDone means that the subscription was moved."""
    SEEK_FAILED = "SeekFailed"
    """SeekFailed means that the broker refused to move the subscription; a new id tries again."""
    ENDING_CONSUMERS = "EndingConsumers"
    """EndingConsumers means that a deletion waits for the consumers to end."""
    DELETING_SUBSCRIPTION = "DeletingSubscription"
    """DeletingSubscription means that a deletion waits for the broker to delete the
    subscription."""
    SPEC_CHANGED = "SpecChanged"
    """SpecChanged means that a change of topics, subscriptionName or retry left subscriptions
    behind, which keep a backlog that nobody consumes."""
    TOPIC_MISSING = "TopicMissing"
    """TopicMissing means that a topic does not exist and the broker does not create topics."""
    REPLICAS_IGNORED = "ReplicasIgnored"
    """ReplicasIgnored means that spec.replicas was changed although the engine Native sets the
    number of consumers."""
    SUBSCRIPTION_DELETED = "SubscriptionDeleted"
    """SubscriptionDeleted means that the broker deleted the subscription."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the consumers cannot run the spec, or that it cannot be read; the
    message names the field. Pods of the spec before keep running."""


class PulsarConsumerSpec(
    KubernetesModel,
    rules=(
        Rule(
            "[has(self.topic), has(self.topics), has(self.topicPattern)].exists_one(x, x)",
            "exactly one of topic, topics and topicPattern must be set",
            field_path=".topic",
        ),
        Rule(
            "has(self.replicas) || (has(self.autoscaling) && self.autoscaling.engine == 'Native')",
            "replicas is required unless autoscaling has the engine Native",
            field_path=".replicas",
            reason="FieldValueRequired",
        ),
        Rule(
            "!has(self.topicPattern) || !has(self.autoscaling) || self.autoscaling.engine == 'HPA'",
            "autoscaling by backlog needs topic or topics: no backlog is asked for a topicPattern",
            field_path=".autoscaling",
        ),
        Rule(
            "!has(self.topicPattern) || !has(self.subscription) || "
            "(self.subscription.create == 'Consumer' && "
            "self.subscription.deletionPolicy == 'Retain' && !has(self.subscription.seek))",
            "with topicPattern the operator cannot create, delete or seek the subscription",
            field_path=".subscription",
        ),
        Rule(
            "!has(self.subscription) || self.subscription.type != 'Exclusive' || "
            "!has(self.replicas) || self.replicas <= 1",
            "replicas must be at most 1 for a subscription of type Exclusive",
            field_path=".replicas",
        ),
        Rule(
            "!has(self.autoscaling) || self.autoscaling.engine != 'KEDA' || "
            "!has(self.authentication) || self.authentication.type != 'OAuth2'",
            "engine KEDA cannot log in by OAuth2 key files; use engine Native",
            field_path=".autoscaling",
        ),
        Rule(
            "!has(self.autoscaling) || self.autoscaling.engine != 'KEDA' || "
            "!has(self.tls) || !has(self.tls.trustedCASecretRef) || has(self.authentication) || "
            "(has(self.adminAddress) && self.adminAddress.startsWith('http:'))",
            "engine KEDA looks at tls.trustedCASecretRef only with an authentication; "
            "use engine Native",
            field_path=".autoscaling",
        ),
        Rule(
            "!has(self.autoscaling) || self.autoscaling.engine == 'HPA' || "
            "((!has(self.topic) || !self.topic.startsWith('non-persistent:')) && "
            "(!has(self.topics) || !self.topics.exists(t, t.startsWith('non-persistent:'))))",
            "autoscaling by backlog needs persistent topics: others have no backlog",
            field_path=".autoscaling",
        ),
        Rule(
            "!has(self.subscription) || (self.subscription.create == 'Consumer' && "
            "self.subscription.deletionPolicy == 'Retain' && !has(self.subscription.seek)) || "
            "((!has(self.topic) || !self.topic.startsWith('non-persistent:')) && "
            "(!has(self.topics) || !self.topics.exists(t, t.startsWith('non-persistent:'))))",
            "the operator can create, delete or seek subscriptions of persistent topics only",
            field_path=".subscription",
        ),
        Rule(
            "!has(self.encryption) || has(self.encryption.publicKeySecretRef) || "
            "(!has(self.deadLetter) && (!has(self.retry) || self.retry.strategy != 'RetryTopic'))",
            "encryption.publicKeySecretRef is needed with deadLetter and with retry by RetryTopic, "
            "whose copies would not be encrypted",
            field_path=".encryption",
        ),
        Rule(
            "!has(self.consumption) || !has(self.consumption.batch) || "
            "self.consumption.batch.delivery != 'Whole' || "
            "has(self.handler) || has(self.image)",
            "consumption.batch.delivery Whole needs a handler, or an image of your own",
            field_path=".handler",
        ),
        Rule(
            "!has(self.output) || has(self.handler) || has(self.image)",
            "output needs a handler, or an image of your own",
            field_path=".handler",
        ),
        Rule(
            "!has(self.subscription) || self.subscription.readCompacted == 'Disabled' || "
            "self.subscription.type in ['Exclusive', 'Failover']",
            "readCompacted needs a subscription of type Exclusive or Failover",
            field_path=".subscription",
        ),
    ),
):
    """PulsarConsumerSpec is what a user asks for."""

    server_address: ServerAddress
    """serverAddress is the service URL of the broker, such as pulsar://pulsar:6650."""
    topic: TopicName | None = None
    """topic is the topic to consume."""
    topics: Annotated[list[TopicName], ListSet(), Field(min_length=1, max_length=50)] | None = None
    """topics are the topics to consume, in place of topic."""
    topic_pattern: TopicPattern | None = None
    """topicPattern consumes all topics that match it, in place of topic."""
    subscription_name: SubscriptionName
    """subscriptionName is the subscription that all consumers share."""
    replicas: Replicas | None = None
    """replicas is the number of consumers; with autoscaling, what it begins with."""
    admin_address: HttpAddress | None = None
    """adminAddress is the URL of the broker's admin API (Pulsar's webServiceUrl, KEDA's adminURL).
    A host of one word is a Service in the namespace of the PulsarConsumer. Defaults to the first
    host of serverAddress, on port 8080 or, for pulsar+ssl, 8443."""
    listener_name: Annotated[str, Field(pattern=r"^[-._A-Za-z0-9]+$", max_length=253)] | None = None
    """listenerName is the advertised listener of the brokers that consumers connect to
    (listenerName of Pulsar's clients). Defaults to the default listener of the brokers."""
    authentication: Authentication | None = None
    """authentication tells how to log in (default: not at all)."""
    tls: TransportSecurity | None = None
    """tls tells how the certificate of the broker is checked."""
    subscription: Annotated[Subscription, UNSTORED] = Subscription()
    """subscription tells how the subscription is made, shared and disposed of."""
    consumption: Annotated[Consumption, UNSTORED] = Consumption()
    """consumption bounds how fast messages are taken."""
    retry: Retry | None = None
    """retry tells how a message is tried again (default: handed back to the broker)."""
    dead_letter: DeadLetter | None = None
    """deadLetter keeps messages that failed in every try (default: they are tried for ever)."""
    message_schema: Annotated[MessageSchema | None, Field(alias="schema")] = None
    """schema tells how messages are read (default: as bytes)."""
    encryption: Encryption | None = None
    """encryption decrypts messages that were encrypted end to end."""
    message_log: Annotated[MessageLog, UNSTORED] = MessageLog()
    """messageLog tells what is logged of each message."""
    handler: Handler | None = None
    """handler is a Python function of your image, as module:function (default: logs messages)."""
    output: Output | None = None
    """output publishes what the handler returns. By default it is ignored."""
    autoscaling: Autoscaling | None = None
    """autoscaling chooses the number of consumers (default: replicas does)."""
    paused: Annotated[
        bool, UNSTORED, Waive("no-booleans", "the same switch as that of a Deployment")
    ] = False
    """paused ends all consumers; what comes in waits in the subscription."""
    drain: Annotated[Drain, UNSTORED] = Drain()
    """drain tells how a consumer ends."""
    metrics: Annotated[Metrics, UNSTORED] = Metrics()
    """metrics tells where consumers serve metrics and probes."""
    pod_disruption_budget: DisruptionBudget | None = None
    """podDisruptionBudget bounds how many consumers a drain of nodes takes at a time."""
    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")] | None = None
    """image is the image of the consumers (default: that of the operator's settings)."""
    template: Annotated[ConsumerTemplate, UNSTORED] = ConsumerTemplate()
    """template is laid over the pods that the operator builds."""


class PulsarConsumer(
    CustomResource,
    group=GROUP,
    version="v1",
    plural="pulsarconsumers",
    short_names=("pcon",),
    categories=("slipway",),
    scale=Scale(
        spec_replicas=".spec.replicas",
        status_replicas=".status.replicas",
        label_selector=".status.selector",
    ),
    columns=(
        PrinterColumn("Server", "string", ".status.server"),
        PrinterColumn("Topic", "string", ".status.topic"),
        PrinterColumn("Subscription", "string", ".status.subscription"),
        PrinterColumn("Replicas", "integer", ".status.replicas"),
        PrinterColumn("Ready", "string", ".status.ready"),
        PrinterColumn("Backlog", "integer", ".status.backlog.entries"),
        PrinterColumn("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "", 1),
        PrinterColumn("Oldest", "date", ".status.oldestMessageTime", "Age of what waits.", 1),
        AGE,
    ),
    conditions=ConditionType,
    reasons=Reason,
):
    """PulsarConsumer runs a number of consumers of a Pulsar topic."""

    spec: PulsarConsumerSpec
    """spec is what a user asks for."""
    status: PulsarConsumerStatus | None = None
    """status is what the operator observed."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are named; none with a pattern."""
        if self.spec.topics is not None:
            return tuple(self.spec.topics)
        return () if self.spec.topic is None else (self.spec.topic,)


PULSAR_CONSUMER: Final[Kind] = kind_of(PulsarConsumer)
"""The kind as data."""
