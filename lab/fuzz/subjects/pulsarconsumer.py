"""PulsarConsumer, fuzzed."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from lab.fuzz.subject import NAMESPACE, FuzzSubject
from libs.common.kinds import DEPLOYMENT, SECRET, Manifest, build_object
from libs.common.ownership import build_owner_reference
from libs.common.plan import Apply
from libs.common.testing.fakeapi import FakeApi
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.app.settings.load import load_settings
from operators.pulsarconsumer.conformance_test import TestEndingConsumerConformance, run_deployments
from operators.pulsarconsumer.naming import CONTAINER
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.reconcile import OPTIONAL_KINDS, plan_consumer
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.samples import build_spec

_PASS: Final = "let-me-in"  # noqa: S105 a token of the stand-in
_SOON: Final = 5.0
"""Seconds; what failed at the broker is tried again later than that, a response comes sooner."""


def render(manifest: Manifest) -> list[Manifest]:
    """Render the children in a cluster that has every kind; the app must accept its settings.

    Raises:
        SettingsInvalid: The operator runs pods whose app would exit with status 2.
    """
    plan = plan_consumer(
        PulsarConsumer.parse(manifest),
        Observed(served=frozenset(OPTIONAL_KINDS)),
        image="consumer",
        owner=build_owner_reference(PULSAR_CONSUMER, manifest),
    )
    made = [step.manifest for batch in plan.batches for step in batch if isinstance(step, Apply)]
    for child in made:
        if child["kind"] == DEPLOYMENT.kind:
            check_settings(child)
    return sorted(made, key=lambda child: child["kind"] != DEPLOYMENT.kind)


def check_settings(deployment: Manifest) -> None:
    """Load the settings of the app as the pods would.

    Raises:
        SettingsInvalid: The app would exit with status 2.
    """
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (env,) = [each["env"] for each in containers if each["name"] == CONTAINER]
    load_settings({each["name"]: str(each.get("value", "pod")) for each in env})


def build_initial_objects() -> list[Manifest]:
    """Build the Secrets that the valid object names."""
    return [_build_secret("login", "token", _PASS), _build_secret("ca", "ca.crt", "unused")]


def _build_secret(name: str, key: str, value: str) -> Manifest:
    return build_object(
        SECRET, name, NAMESPACE, data={key: base64.b64encode(value.encode()).decode()}
    )


@contextmanager
def run_broker(_: FakeApi) -> Iterator[Mapping[str, Any]]:
    """Run a recorded admin API, to which every generated spec is redirected."""
    with RecordedBroker() as broker:
        broker.topics = {"my-topic": RecordedTopic(subscriptions={"my-subscription": 150})}
        broker.token = _PASS
        yield {"adminAddress": broker.address}


SUBJECTS: Final = (
    FuzzSubject(
        "pulsarconsumer",
        PulsarConsumer,
        build_spec(
            authentication={
                "type": "Token",
                "token": {"secretKeyRef": {"name": "login", "key": "token"}},
            },
            tls={"trustedCASecretRef": {"name": "ca", "key": "ca.crt"}},
            podDisruptionBudget={"minAvailable": 1},
            metrics={"podMonitor": {"labels": {"release": "prometheus"}}},
            deadLetter={"maxRedeliveries": 3},
        ),
        render,
        passthrough=("spec.template",),
        alternatives=(
            "spec.authentication.oauth2.",
            "spec.authentication.serviceAccountToken.",
            "spec.adminAuthentication.oauth2.",
            "spec.adminAuthentication.serviceAccountToken.",
        ),
        pinned=(build_spec(),),  # What the kind always had.
        live=replace(
            TestEndingConsumerConformance.subject,
            objects=tuple,
            initial_objects=build_initial_objects,
            drive=run_deployments,
            settings={
                "allow_loopback_brokers": True,
                "poll_seconds": 3600,
                # On a busy machine a response may be late, which would change the status.
                "broker_patience_seconds": 5,
            },
            horizon=_SOON,
        ),
        ruled=("spec.authentication.", "spec.adminAuthentication."),
        run_external=run_broker,
    ),
)
