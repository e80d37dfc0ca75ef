"""Environment of the consumers: the contract with the app, or with any image in its place.

Values that equal the defaults of the app are omitted, so that a new default in a newer version of
the operator does not replace pods whose spec does not set the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from libs.common.crd import KubernetesModel
from libs.common.kinds import Manifest
from operators.pulsarconsumer.api.connection import Authentication, AuthenticationType, Switch
from operators.pulsarconsumer.api.consuming import BatchDelivery, KeyOrder, RetryStrategy
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.resources.files import (
    AUTH_DIRECTORY,
    CA_FILE,
    CLIENT_TLS_DIRECTORY,
    ENCRYPTION_DIRECTORY,
    JOURNAL_DIRECTORY,
    SCHEMA_FILE,
)

PREFIX: Final = "PULSAR_CONSUMER_"
"""Prefix of each variable. It is not PULSAR_, because a Service named pulsar would add variables
with that prefix."""

type Variables = Iterator[tuple[str, str]]


def build_environment(consumer: PulsarConsumer) -> list[Manifest]:
    """Build the environment of the container that consumes, in a stable order."""
    name_of_pod = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return [
        {"name": f"{PREFIX}NAME", "valueFrom": name_of_pod},
        *(
            {"name": f"{PREFIX}{name}", "value": value}
            for name, value in render_variables(consumer).items()
        ),
    ]


def render_variables(consumer: PulsarConsumer) -> dict[str, str]:
    """Render the variables without their prefix."""
    return dict(_walk(consumer))


def _walk(consumer: PulsarConsumer) -> Variables:
    spec = consumer.spec
    yield "SERVER", spec.server_address
    if spec.listener_name is not None:
        yield "LISTENER_NAME", spec.listener_name
    if spec.topic is not None:
        yield "TOPIC", spec.topic
    elif spec.topics is not None:
        yield "TOPICS", ",".join(spec.topics)
    elif spec.topic_pattern is not None:
        # The client accepts only patterns of full names.
        domain = "" if "://" in spec.topic_pattern else "persistent://"
        yield "TOPIC_PATTERN", f"{domain}{spec.topic_pattern}"
    yield "SUBSCRIPTION_NAME", spec.subscription_name
    yield from _subscription(consumer)
    if spec.authentication is not None:
        yield from _authentication(spec.authentication)
    yield from _security(consumer)
    yield from _consumption(consumer)
    yield from _failures(consumer)
    yield from _payload(consumer)
    if spec.handler is not None:
        yield "HANDLER", spec.handler
    if spec.output is not None:
        yield "OUTPUT_TOPIC", spec.output.topic
    yield from _changed(spec.drain, {"timeout_seconds": "DRAIN_TIMEOUT_SECONDS"})
    yield "JOURNAL_FOLDER", JOURNAL_DIRECTORY
    if spec.metrics.port != type(spec.metrics)().port:
        yield "METRICS_PORT", str(spec.metrics.port)


def _changed(model: KubernetesModel, names: Mapping[str, str]) -> Variables:
    """Yield the fields of a model that differ from their defaults."""
    for field, name in names.items():
        value = getattr(model, field)
        if value != type(model).model_fields[field].default:
            yield name, _render(value)


def _render(value: object) -> str:
    if isinstance(value, Switch):
        return "true" if value is Switch.ENABLED else "false"
    return str(value)


def _subscription(consumer: PulsarConsumer) -> Variables:
    subscription = consumer.spec.subscription
    names = {
        "type": "SUBSCRIPTION_TYPE",
        "initial_position": "INITIAL_POSITION",
        "read_compacted": "READ_COMPACTED",
        "replicate_state": "REPLICATE_SUBSCRIPTION_STATE",
    }
    yield from _changed(subscription, names)
    if subscription.key_order is KeyOrder.RELAXED:
        yield "KEY_SHARED_ALLOW_OUT_OF_ORDER", "true"


def _authentication(login: Authentication) -> Variables:
    by_service_account = login.service_account_token is not None
    # For the broker, the token of a ServiceAccount is like any other token.
    yield "AUTH_TYPE", str(AuthenticationType.TOKEN if by_service_account else login.type)
    if login.token is not None or by_service_account:
        yield "TOKEN_FILE", f"{AUTH_DIRECTORY}/token"
    if login.oauth2 is not None:
        yield "OAUTH2_CREDENTIALS_FILE", f"{AUTH_DIRECTORY}/credentials.json"
        yield "OAUTH2_ISSUER_URL", login.oauth2.issuer_url
        yield from _changed(login.oauth2, {"audience": "OAUTH2_AUDIENCE", "scope": "OAUTH2_SCOPE"})
    if login.basic is not None:
        yield "BASIC_USERNAME_FILE", f"{AUTH_DIRECTORY}/username"
        yield "BASIC_PASSWORD_FILE", f"{AUTH_DIRECTORY}/password"
    if login.tls is not None:
        yield "TLS_CERTIFICATE_FILE", f"{CLIENT_TLS_DIRECTORY}/tls.crt"
        yield "TLS_KEY_FILE", f"{CLIENT_TLS_DIRECTORY}/tls.key"


def _security(consumer: PulsarConsumer) -> Variables:
    tls = consumer.spec.tls
    if tls is None:
        return
    if tls.trusted_ca_secret_ref is not None:
        yield "TLS_TRUSTED_CA_FILE", CA_FILE
    yield from _changed(tls, {"hostname_verification": "TLS_VERIFY_HOSTNAME"})
    if tls.certificate_verification is Switch.DISABLED:
        yield "TLS_ALLOW_INSECURE", "true"


def _consumption(consumer: PulsarConsumer) -> Variables:
    consumption = consumer.spec.consumption
    names = {
        "receiver_queue_size": "RECEIVER_QUEUE_SIZE",
        "max_in_flight": "MAX_IN_FLIGHT",
        "ack_timeout_seconds": "ACK_TIMEOUT_SECONDS",
        "rate_limit_per_second": "RATE_LIMIT_PER_SECOND",
        "handler_timeout_seconds": "HANDLER_TIMEOUT_SECONDS",
        "batch_index_ack": "BATCH_INDEX_ACK",
    }
    yield from _changed(consumption, names)
    if (batch := consumption.batch) is not None:
        yield "BATCH_MAX_MESSAGES", str(batch.max_messages)
        yield "BATCH_MAX_BYTES", str(batch.max_bytes)
        yield "BATCH_TIMEOUT_MILLISECONDS", str(batch.timeout_milliseconds)
        if batch.delivery is BatchDelivery.WHOLE:
            yield "HANDLER_BATCH", "true"


def _failures(consumer: PulsarConsumer) -> Variables:
    retry, dead = consumer.spec.retry, consumer.spec.dead_letter
    if retry is not None:
        if retry.strategy is RetryStrategy.RETRY_TOPIC:
            yield "RETRY_STRATEGY", str(retry.strategy)
        names = {
            "max_attempts": "RETRY_MAX_ATTEMPTS",
            "initial_delay_seconds": "RETRY_INITIAL_DELAY_SECONDS",
            "max_delay_seconds": "RETRY_MAX_DELAY_SECONDS",
            "multiplier": "RETRY_MULTIPLIER",
            "topic": "RETRY_TOPIC",
        }
        yield from _changed(retry, names)
        if retry.reject_on:
            yield "RETRY_REJECT_ON", ",".join(retry.reject_on)
    if dead is not None:
        yield "DEAD_LETTER", "Enabled"
        names = {"topic": "DEAD_LETTER_TOPIC", "subscription_name": "DEAD_LETTER_SUBSCRIPTION"}
        yield from _changed(dead, names)


def _payload(consumer: PulsarConsumer) -> Variables:
    schema, encryption, log = (
        consumer.spec.message_schema,
        consumer.spec.encryption,
        consumer.spec.message_log,
    )
    if schema is not None:
        yield "SCHEMA_TYPE", str(schema.type)
        if schema.config_map_key_ref is not None:
            yield "SCHEMA_FILE", SCHEMA_FILE
        yield from _changed(schema, {"on_mismatch": "SCHEMA_ON_MISMATCH"})
    if encryption is not None:
        yield "ENCRYPTION_PRIVATE_KEY_FILE", f"{ENCRYPTION_DIRECTORY}/private.pem"
        if encryption.public_key_secret_ref is not None:
            yield "ENCRYPTION_PUBLIC_KEY_FILE", f"{ENCRYPTION_DIRECTORY}/public.pem"
        yield from _changed(encryption, {"on_decrypt_failure": "ENCRYPTION_ON_FAILURE"})
    names = {
        "format": "LOG_FORMAT",
        "payload": "LOG_PAYLOAD",
        "max_payload_bytes": "LOG_MAX_PAYLOAD_BYTES",
    }
    yield from _changed(log, names)
    if log.redact_properties:
        yield "LOG_REDACT_PROPERTIES", ",".join(log.redact_properties)
    if log.sample_percent is not None:
        yield "LOG_SAMPLE_RATIO", f"{log.sample_percent / 100:g}"
