"""The contract between operator and app: what the one renders, the other understands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.alias_generators import to_camel

from libs.common.crd import KubernetesModel
from operators.pulsarconsumer.api.consuming import (
    BatchReceive,
    Consumption,
    Drain,
    MessageLog,
    Retry,
)
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.app.settings.load import load_settings
from operators.pulsarconsumer.resources.environment import PREFIX, render_variables
from operators.pulsarconsumer.samples import UID, parse_consumer

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.yaml"))
KEY = {"name": "own", "key": "value"}

EVERYTHING: dict[str, dict[str, Any]] = {
    "kept": {},
    "token": {"authentication": {"type": "Token", "token": {"secretKeyRef": KEY}}},
    "oauth2": {
        "authentication": {
            "type": "OAuth2",
            "oauth2": {
                "issuerUrl": "https://issuer.example.com",
                "audience": "urn:a",
                "scope": "b",
                "credentialsSecretRef": KEY,
            },
        }
    },
    "basic": {"authentication": {"type": "Basic", "basic": {"secretName": "own"}}},
    "mtls": {
        "serverAddress": "pulsar+ssl://pulsar:6651",
        "authentication": {"type": "TLS", "tls": {"secretName": "own"}},
        "tls": {
            "trustedCaSecretRef": KEY,
            "hostnameVerification": "Disabled",
            "certificateVerification": "Disabled",
        },
    },
    "several": {"topic": None, "topics": ["a", "persistent://t/n/b"]},
    "pattern": {"topic": None, "topicPattern": "persistent://t/n/a-.*"},
    "failover": {
        "subscription": {
            "type": "Failover",
            "initialPosition": "Earliest",
            "readCompacted": "Enabled",
            "replicateState": "Enabled",
        }
    },
    "key shared": {"subscription": {"type": "KeyShared", "keyOrder": "Relaxed"}},
    "consumption": {
        "consumption": {
            "receiverQueueSize": 10,
            "maxInFlight": 4,
            "ackTimeoutSeconds": 30,
            "rateLimitPerSecond": 100,
            "handlerTimeoutSeconds": 60,
            "batchIndexAck": "Enabled",
        }
    },
    "batch": {
        "consumption": {"batch": {"delivery": "Whole", "maxMessages": 10}},
        "handler": "shop.orders:handle",
    },
    "failures": {
        "retry": {
            "maxAttempts": 3,
            "initialDelaySeconds": 2,
            "maxDelaySeconds": 20,
            "multiplier": 3,
            "topic": "again",
        },
        "deadLetter": {"topic": "dead", "subscriptionName": "review"},
    },
    "avro": {"schema": {"type": "Avro", "configMapKeyRef": KEY, "onMismatch": "Skip"}},
    "encryption": {
        "encryption": {
            "privateKeySecretRef": KEY,
            "publicKeySecretRef": KEY,
            "onDecryptFailure": "Discard",
        }
    },
    "log": {
        "messageLog": {
            "format": "Text",
            "payload": "Truncated",
            "maxPayloadBytes": 10,
            "redactProperties": ["card"],
            "samplePercent": 10,
        }
    },
    "rest": {
        "handler": "shop.orders:handle",
        "drain": {"timeoutSeconds": 5},
        "metrics": {"port": 9090},
    },
}


BOUNDED: dict[str, type[KubernetesModel]] = {
    "consumption": Consumption,
    "consumption.batch": BatchReceive,
    "retry": Retry,
    "messageLog": MessageLog,
    "drain": Drain,
}


def build_bounds() -> Iterator[tuple[str, str, int]]:
    """Yield the least and the most of each number that the API takes."""
    for path, model in BOUNDED.items():
        for name, field in model.model_fields.items():
            for limit in field.metadata:
                for word in ("ge", "le"):
                    if (bound := getattr(limit, word, None)) is not None:
                        yield path, field.alias or to_camel(name), bound


def load(consumer: PulsarConsumer) -> Any:
    variables = render_variables(consumer)
    return load_settings({f"{PREFIX}{name}": value for name, value in variables.items()})


@pytest.mark.parametrize("name", EVERYTHING)
def test_app_understands_what_is_rendered(name: str) -> None:
    consumer = parse_consumer(**EVERYTHING[name])

    settings = load(consumer)

    assert settings.server == consumer.spec.server_address
    known = {field.upper() for field in type(settings).model_fields}
    assert set(render_variables(consumer)) <= known, "a variable that the app does not know"


@pytest.mark.parametrize(("path", "field", "bound"), [*build_bounds()])
def test_app_takes_each_number_that_the_api_takes(path: str, field: str, bound: int) -> None:
    values: dict[str, Any] = {field: bound}
    if field == "initialDelaySeconds":
        values["maxDelaySeconds"] = bound
    elif field == "maxDelaySeconds":
        values["initialDelaySeconds"] = 0
    section, _, inner = path.partition(".")

    spec: dict[str, Any] = {section: {inner: values} if inner else values}
    assert load(parse_consumer(**spec))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_app_understands_the_examples(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    manifest["metadata"] |= {"namespace": "default", "uid": UID}

    assert load(PulsarConsumer.parse(manifest)).subscription_name
