"""PulsarConsumer v1: the kind.

`serverAddress`, `topic`, `subscriptionName` and `replicas` are the original fields of the kind; a
manifest with only these keeps its meaning. All other fields are additions.
"""

from __future__ import annotations

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
from operators.pulsarconsumer.api.reasons import ConditionType, Reason
from operators.pulsarconsumer.api.scaling import (
    Autoscaling,
    ConsumerTemplate,
    DisruptionBudget,
    Metrics,
    Replicas,
)
from operators.pulsarconsumer.api.status import PulsarConsumerStatus

GROUP: Final = "consumer.pulsarconsumer.krvarma.com"
"""API group of the kind, unchanged since its first version."""


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
            "autoscaling by backlog needs topic or topics: the backlog of a topicPattern is not"
            " read",
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
            "(has(self.adminAuthentication) ? self.adminAuthentication.type != 'OAuth2' : "
            "!has(self.authentication) || self.authentication.type != 'OAuth2')",
            "engine KEDA cannot log in by OAuth2 key files; use engine Native",
            field_path=".autoscaling",
        ),
        Rule(
            "!has(self.autoscaling) || self.autoscaling.engine != 'KEDA' || "
            "!has(self.tls) || !has(self.tls.trustedCASecretRef) || has(self.authentication) || "
            "has(self.adminAuthentication) || "
            "(has(self.adminAddress) && self.adminAddress.startsWith('http:'))",
            "engine KEDA reads tls.trustedCASecretRef only with an authentication; "
            "use engine Native",
            field_path=".autoscaling",
        ),
        Rule(
            "!has(self.adminAuthentication) || "
            "self.adminAuthentication.type != 'ServiceAccountToken'",
            "adminAuthentication cannot be a ServiceAccountToken: only pods of consumers have it",
            field_path=".adminAuthentication",
        ),
        Rule(
            "!has(self.authentication) || self.authentication.type != 'ServiceAccountToken' || "
            "has(self.adminAuthentication) || "
            "((!has(self.autoscaling) || self.autoscaling.engine == 'HPA') && "
            "(!has(self.subscription) || (self.subscription.create == 'Consumer' && "
            "self.subscription.deletionPolicy == 'Retain' && !has(self.subscription.seek))))",
            "adminAuthentication is required with a ServiceAccountToken for autoscaling by backlog,"
            " and to create, delete or seek subscriptions: the operator has no such token",
            field_path=".adminAuthentication",
            reason="FieldValueRequired",
        ),
        Rule(
            "!has(self.autoscaling) || self.autoscaling.engine == 'HPA' || "
            "((!has(self.topic) || !self.topic.startsWith('non-persistent:')) && "
            "(!has(self.topics) || !self.topics.exists(t, t.startsWith('non-persistent:'))))",
            "autoscaling by backlog needs persistent topics: non-persistent topics have no backlog",
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
            "encryption.publicKeySecretRef is required with deadLetter and with retry by"
            " RetryTopic; otherwise their copies would not be encrypted",
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
    """PulsarConsumerSpec is the desired state of a PulsarConsumer."""

    server_address: ServerAddress
    """serverAddress is the service URL of the broker, such as pulsar://pulsar:6650."""
    topic: TopicName | None = None
    """topic is the topic to consume."""
    topics: Annotated[list[TopicName], ListSet(), Field(min_length=1, max_length=50)] | None = None
    """topics are the topics to consume, instead of topic."""
    topic_pattern: TopicPattern | None = None
    """topicPattern is a regular expression: all topics that match it are consumed, instead of
    topic."""
    subscription_name: SubscriptionName
    """subscriptionName is the subscription that all consumers share."""
    replicas: Replicas | None = None
    """replicas is the number of consumers. With autoscaling, it is the initial number."""
    admin_address: HttpAddress | None = None
    """adminAddress is the URL of the broker's admin API (Pulsar's webServiceUrl, KEDA's adminURL).
    A host of one word is a Service in the namespace of the PulsarConsumer. Defaults to the first
    host of serverAddress, on port 8080 or, for pulsar+ssl, 8443."""
    listener_name: Annotated[str, Field(pattern=r"^[-._A-Za-z0-9]+$", max_length=253)] | None = None
    """listenerName is the advertised listener of the brokers that consumers connect to
    (listenerName of Pulsar's clients). Defaults to the default listener of the brokers."""
    authentication: Authentication | None = None
    """authentication configures the credentials of the consumers and, without adminAuthentication,
    of the operator. Defaults to none."""
    admin_authentication: Authentication | None = None
    """adminAuthentication configures the credentials for the broker's admin API, which the operator
    calls, or KEDA with engine KEDA. Consumers cannot read them. Defaults to authentication, except
    for type ServiceAccountToken: then the admin API is not called."""
    tls: TransportSecurity | None = None
    """tls configures how the certificate of the broker is verified."""
    subscription: Annotated[Subscription, UNSTORED] = Subscription()
    """subscription configures how the subscription is created, shared and deleted."""
    consumption: Annotated[Consumption, UNSTORED] = Consumption()
    """consumption limits how many messages are received and handled at a time."""
    retry: Retry | None = None
    """retry configures further attempts at messages that failed. By default, a consumer keeps such
    a message in memory until its next attempt."""
    dead_letter: DeadLetter | None = None
    """deadLetter moves messages that failed in every attempt to a dead-letter topic. By default,
    they are retried indefinitely."""
    message_schema: Annotated[MessageSchema | None, Field(alias="schema")] = None
    """schema is the schema of the messages. Defaults to bytes."""
    encryption: Encryption | None = None
    """encryption configures the keys of end-to-end encryption."""
    message_log: Annotated[MessageLog, UNSTORED] = MessageLog()
    """messageLog configures what consumers log for each message."""
    handler: Handler | None = None
    """handler is a Python function or class, as module:name. By default, consumers log the
    messages."""
    output: Output | None = None
    """output publishes what the handler returns. By default, the return value is ignored."""
    autoscaling: Autoscaling | None = None
    """autoscaling adjusts the number of consumers. By default, replicas sets it."""
    paused: Annotated[bool, UNSTORED, Waive("no-booleans", "same switch as in a Deployment")] = (
        False
    )
    """paused stops all consumers. Messages wait in the subscription. Defaults to false."""
    drain: Annotated[Drain, UNSTORED] = Drain()
    """drain configures how a consumer stops."""
    metrics: Annotated[Metrics, UNSTORED] = Metrics()
    """metrics configures the port of metrics and the PodMonitor."""
    pod_disruption_budget: DisruptionBudget | None = None
    """podDisruptionBudget limits how many consumers a node drain evicts at a time."""
    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")] | None = None
    """image is the image of the consumers. Defaults to the image in the operator's settings."""
    template: Annotated[ConsumerTemplate, UNSTORED] = ConsumerTemplate()
    """template is merged into the pod template that the operator builds."""


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
        PrinterColumn(
            "Oldest",
            "date",
            ".status.oldestMessageTime",
            "Age of the oldest message that waits.",
            1,
        ),
        AGE,
    ),
    conditions=ConditionType,
    reasons=Reason,
):
    """PulsarConsumer runs a number of consumers of a Pulsar topic."""

    spec: PulsarConsumerSpec
    """spec is the desired state."""
    status: PulsarConsumerStatus | None = None
    """status is the observed state."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that the spec names; empty with a pattern."""
        if self.spec.topics is not None:
            return tuple(self.spec.topics)
        return () if self.spec.topic is None else (self.spec.topic,)

    @property
    def admin_login(self) -> Authentication | None:
        """Credentials for the admin API; None for none."""
        return self.spec.admin_authentication or self.spec.authentication

    @property
    def can_call_admin(self) -> bool:
        """Whether the operator has what the spec names to log in to the admin API."""
        login = self.admin_login
        return login is None or login.service_account_token is None


PULSAR_CONSUMER: Final[Kind] = kind_of(PulsarConsumer)
"""The kind as a value, for the client and the generator."""
