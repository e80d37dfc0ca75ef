"""Objects for KEDA are what the schemas of a real KEDA take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.common.client import Client
from libs.common.kinds import Key
from libs.common.testing.serving import serve
from operators.pulsarconsumer.api.scaling import Autoscaling
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.resources.scalers import (
    SCALED_OBJECT,
    build_autoscaler,
    build_scaled_object,
    build_trigger_authentication,
)
from operators.pulsarconsumer.samples import UID, build_consumer, parse_consumer

SCHEMAS = sorted((Path(__file__).parent / "keda").glob("*.yaml"))
OWNER = {
    "apiVersion": "consumer.pulsarconsumer.krvarma.com/v1",
    "kind": "PulsarConsumer",
    "name": "orders",
    "uid": UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
SECRET = {"name": "own", "key": "value"}
TRUST = {"tls": {"trustedCASecretRef": SECRET}}
LOGINS: dict[str, tuple[dict[str, Any], str, set[str]]] = {
    "nobody": ({}, "", set()),
    "token": (
        {"authentication": {"type": "Token", "token": {"secretKeyRef": SECRET}}},
        "bearer",
        {"bearerToken"},
    ),
    "token and own certificates": (
        {"authentication": {"type": "Token", "token": {"secretKeyRef": SECRET}}, **TRUST},
        "bearer",
        {"bearerToken", "ca"},
    ),
    "basic": (
        {"authentication": {"type": "Basic", "basic": {"secretName": "own"}}},
        "basic",
        {"username", "password"},
    ),
    "separate": (
        {
            "authentication": {"type": "TLS", "tls": {"secretName": "other"}},
            "adminAuthentication": {"type": "Token", "token": {"secretKeyRef": SECRET}},
        },
        "bearer",
        {"bearerToken"},
    ),
    "mtls": (
        {"authentication": {"type": "TLS", "tls": {"secretName": "own"}}, **TRUST},
        "tls",
        {"cert", "key", "ca"},
    ),
}
"""What is asked for, KEDA's mode, and the parameters that its scaler reads in that mode."""


@pytest.mark.parametrize("name", LOGINS)
def test_scaler_of_keda_finds_its_parameters_by_their_names(name: str) -> None:
    spec, mode, parameters = LOGINS[name]
    consumer = parse_consumer(**spec)

    built = build_scaled_object(
        consumer, Autoscaling(), OWNER, admin_address="https://p:8443", partitions={}
    )
    access = build_trigger_authentication(consumer, OWNER)

    (trigger,) = built["spec"]["triggers"]
    assert trigger["metadata"].get("authModes", "") == mode
    assert ("authenticationRef" in trigger) == (access is not None) == bool(parameters)
    references = access["spec"]["secretTargetRef"] if access else []
    assert {reference["parameter"] for reference in references} == parameters
    # The scaler takes texts alone.
    assert all(isinstance(value, str) for value in trigger["metadata"].values())


def test_retry_topic_has_a_trigger_of_its_own() -> None:
    built = build_scaled_object(
        parse_consumer(),
        Autoscaling(),
        OWNER,
        admin_address="https://p:8443",
        partitions={},
        retries="persistent://public/default/again",
    )

    topics = [trigger["metadata"]["topic"] for trigger in built["spec"]["triggers"]]
    assert topics == ["persistent://public/default/my-topic", "persistent://public/default/again"]


@pytest.mark.parametrize("replicas", [0, 2])
def test_keda_never_removes_consumers_because_it_cannot_read_the_backlog(replicas: int) -> None:
    """KEDA scales to zero then if `fallback.replicas` is 0, whatever the behavior is."""
    scaling = Autoscaling.model_validate({"fallback": {"replicas": replicas}})

    built = build_scaled_object(
        parse_consumer(), scaling, OWNER, admin_address="https://p:8443", partitions={}
    )

    fallback = {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"}
    assert built["spec"].get("fallback") == (fallback if replicas else None)


@pytest.fixture
async def client(kube_client: Client) -> Client:
    """Serve the kinds of KEDA on a real API server."""
    await serve(kube_client, *(yaml.safe_load(path.read_text()) for path in SCHEMAS))
    return kube_client


@pytest.mark.apiserver
async def test_real_schemas_take_each_object_to_the_last_field(
    client: Client, kube_namespace: str
) -> None:
    behavior = {"scaleUp": {"maxStep": 2}, "scaleDown": {"stabilizationSeconds": 3600}}
    for number, (spec, _, parameters) in enumerate(LOGINS.values()):
        manifest = build_consumer(f"c{number}", topic=None, topics=["a", "b"], **spec)
        manifest["metadata"]["namespace"] = kube_namespace
        consumer = PulsarConsumer.parse(manifest)
        scaling = Autoscaling.model_validate({"minReplicas": 1, "behavior": behavior})
        built = [
            build_scaled_object(
                consumer, scaling, OWNER, admin_address="https://p:8443", partitions={"a": 3}
            ),
            build_autoscaler(consumer, scaling, OWNER),
        ]
        if access := build_trigger_authentication(consumer, OWNER):
            built.append(access)
        for child in built:
            plural = f"{child['kind'].lower()}s"
            path = f"/apis/{child['apiVersion']}/namespaces/{kube_namespace}/{plural}"
            # A field that the schema does not know is an error, not left out.
            await client.raw("POST", f"{path}?fieldValidation=Strict", child)
        held = await client.get(SCALED_OBJECT, Key(kube_namespace, consumer.metadata.name))
        assert held["spec"] == built[0]["spec"]
        assert len(built) == (3 if parameters else 2)
