"""The contract between operator and app: what the one renders, the other understands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.alias_generators import to_camel

from libs.common.crd import KubernetesModel
from libs.common.plan import Apply
from operators.pulsarconsumer.api.consuming import (
    BatchReceive,
    Consumption,
    Drain,
    MessageLog,
    Retry,
)
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.app.settings.load import load_settings
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.reconcile import plan_consumer
from operators.pulsarconsumer.resources.environment import PREFIX, render_variables
from operators.pulsarconsumer.resources.validation import find_fault
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
                "issuerURL": "https://issuer.example.com",
                "audience": "urn:a",
                "scope": "b",
                "credentialsSecretRef": KEY,
            },
        }
    },
    "basic": {"authentication": {"type": "Basic", "basic": {"secretName": "own"}}},
    "service account": {
        "authentication": {
            "type": "ServiceAccountToken",
            "serviceAccountToken": {"audience": "pulsar"},
        }
    },
    "mtls": {
        "serverAddress": "pulsar+ssl://pulsar:6651",
        "authentication": {"type": "TLS", "tls": {"secretName": "own"}},
        "tls": {
            "trustedCASecretRef": KEY,
            "hostnameVerification": "Disabled",
            "certificateVerification": "Disabled",
        },
    },
    "several": {"topic": None, "topics": ["a", "persistent://t/n/b"]},
    "pattern": {"topic": None, "topicPattern": "persistent://t/n/a-.*"},
    "names without a domain": {
        "topic": None,
        "topics": ["shop/eu/orders", "b"],
        "retry": {"strategy": "RetryTopic"},
    },
    "pattern without a domain": {"topic": None, "topicPattern": "shop/eu/orders-.*"},
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
            "strategy": "RetryTopic",
            "maxAttempts": 3,
            "initialDelaySeconds": 2,
            "maxDelaySeconds": 20,
            "multiplier": "1.25",
            "topic": "again",
            "rejectOn": ["ValueError", "shop.errors.InvalidOrder"],
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
        "listenerName": "internal",
        "handler": "shop.orders:handle",
        "output": {"topic": "booked"},
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


FACTORS = (1, 10, "1", "1.5", "9.99", "10.00")


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

    loaded = load(consumer)

    assert loaded.server == consumer.spec.server_address
    known = {field.upper() for field in type(loaded).model_fields}
    assert set(render_variables(consumer)) <= known, "a variable that the app does not know"


names = st.sampled_from(
    ["a", "t/n/a", "persistent://t/n/a", "persistent://t/n/b", "non-persistent://t/n/a"]
)
patterns = st.sampled_from(
    ["t/n/a-.*", "persistent://t/n/.*", "persistent://t/n/a-.*", "persistent://t/n/(("]
)
servers = st.sampled_from(["pulsar://p:6650", "pulsar+ssl://p:6651", "http://p:8080", "https://p"])


def section(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=fields)


@settings(max_examples=150, deadline=None)
@given(
    server=servers,
    topics=st.one_of(
        st.builds(lambda name: {"topic": name}, names),
        st.builds(lambda name: {"topic": None, "topics": [name, "x"]}, names),
        st.builds(lambda pattern: {"topic": None, "topicPattern": pattern}, patterns),
    ),
    spec=section(
        retry=section(
            strategy=st.sampled_from(["RetryTopic", "NegativeAck"]),
            topic=names,
            initialDelaySeconds=st.integers(0, 700),
        ),
        deadLetter=section(topic=names),
        authentication=st.just({"type": "TLS", "tls": {"secretName": "own"}}),
        consumption=section(
            ackTimeoutSeconds=st.sampled_from([0, 10, 86_400]),
            handlerTimeoutSeconds=st.sampled_from([0, 1]),
            batch=section(delivery=st.sampled_from(["Single", "Whole"])),
        ),
        handler=st.just("shop.orders:handle"),
    ),
)
def test_no_pod_is_made_that_would_refuse_to_start(
    server: str, topics: dict[str, Any], spec: dict[str, Any]
) -> None:
    consumer = parse_consumer(serverAddress=server, **topics, **spec)

    plan = plan_consumer(consumer, Observed(), image="app:1", owner={})

    made = [
        step.manifest
        for batch in plan.batches
        for step in batch
        if isinstance(step, Apply) and step.manifest["kind"] == "Deployment"
    ]
    assert bool(made) != bool(plan.fault)
    for deployment in made:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        environ = {each["name"]: each.get("value", "pod") for each in container["env"]}
        assert load_settings(environ).server == server


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"authentication": {"type": "TLS", "tls": {"secretName": "own"}}},
            "spec.authentication.type TLS needs",
        ),
        ({"deadLetter": {"topic": "my-topic"}}, "spec.deadLetter.topic persistent"),
        (
            {"handler": "a:b", "output": {"topic": "my-topic"}},
            "spec.output.topic persistent://public/default/my-topic is consumed itself",
        ),
        (
            {"handler": "a:b", "output": {"topic": "dead"}, "deadLetter": {"topic": "dead"}},
            "spec.deadLetter.topic and spec.output.topic are both",
        ),
        (
            {"topic": None, "topicPattern": "persistent://t/n/(("},
            "spec.topicPattern is not a regular",
        ),
    ],
)
def test_fault_names_the_field(spec: dict[str, Any], expected: str) -> None:
    assert expected in find_fault(parse_consumer(**spec))


def test_image_may_set_the_handler_itself() -> None:
    batch = {"batch": {"delivery": "Whole"}}

    assert not find_fault(parse_consumer(image="shop:1", consumption=batch, output={"topic": "o"}))
    assert "spec.consumption.batch.delivery" in find_fault(parse_consumer(consumption=batch))


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


@pytest.mark.parametrize("factor", FACTORS)
def test_app_takes_each_factor_that_the_api_takes(factor: int | str) -> None:
    assert load(parse_consumer(retry={"multiplier": factor})).retry_multiplier == float(factor)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_app_understands_the_examples(path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    manifest["metadata"] |= {"namespace": "default", "uid": UID}

    assert load(PulsarConsumer.parse(manifest)).subscription_name
