"""Queries of a PulsarConsumer and its Deployment in an API server, for tests over HTTP."""

from __future__ import annotations

from typing import Any

from libs.common.conditions import find_condition
from libs.common.kinds import DEPLOYMENT, Key, Manifest, key_of
from libs.common.testing.fakeapi import FakeApi
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.recorded_broker import RecordedBroker
from operators.pulsarconsumer.samples import build_manifest, build_rollout

ORDERS = Key("default", "orders")
"""The PulsarConsumer of these tests, and its Deployment."""


POLL = {"pollSeconds": 1}
"""Makes autoscaling poll each second."""


def build(broker: RecordedBroker, **spec: Any) -> Manifest:
    """Build a PulsarConsumer that uses the given broker."""
    return build_manifest(adminAddress=broker.address, **spec)


def run(api: FakeApi, ready: int | None = None) -> None:
    """Set the status of the Deployment, as its controller does."""
    for deployment in api.objects(DEPLOYMENT):
        api.patch_status(DEPLOYMENT, key_of(deployment), build_rollout(deployment, ready))


def wanted(api: FakeApi) -> int | None:
    """Return the number of pods that the Deployment should have."""
    deployment = api.find(DEPLOYMENT, ORDERS)
    return None if deployment is None else int(deployment["spec"]["replicas"])


def condition(api: FakeApi, name: str) -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = find_condition(api.get(PULSAR_CONSUMER, ORDERS), name) or {}
    return str(found.get("status")), str(found.get("reason"))


def status(api: FakeApi) -> Manifest:
    """Return its status."""
    return dict(api.get(PULSAR_CONSUMER, ORDERS).get("status") or {})


def template(api: FakeApi) -> Manifest:
    """Return the pod template of its Deployment."""
    return dict(api.get(DEPLOYMENT, ORDERS)["spec"]["template"])
