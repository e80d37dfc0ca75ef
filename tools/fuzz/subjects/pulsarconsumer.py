"""PulsarConsumer, fuzzed."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import DEPLOYMENT, Manifest
from libs.common.ownership import build_owner_reference
from libs.common.plan import Apply
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.reconcile import OPTIONAL_KINDS, plan_consumer
from operators.pulsarconsumer.samples import build_spec
from tools.fuzz.subject import FuzzSubject


def render(manifest: Manifest) -> list[Manifest]:
    """Make the Deployment and what goes with it, in a cluster that has everything."""
    plan = plan_consumer(
        PulsarConsumer.parse(manifest),
        Observed(served=frozenset(OPTIONAL_KINDS)),
        image="consumer",
        owner=build_owner_reference(PULSAR_CONSUMER, manifest),
    )
    made = [step.manifest for batch in plan.batches for step in batch if isinstance(step, Apply)]
    return sorted(made, key=lambda child: child["kind"] != DEPLOYMENT.kind)


SUBJECTS: Final = (
    FuzzSubject(
        "pulsarconsumer",
        PulsarConsumer,
        build_spec(
            authentication={
                "type": "Token",
                "token": {"secretKeyRef": {"name": "login", "key": "token"}},
            },
            tls={"trustedCaSecretRef": {"name": "ca", "key": "ca.crt"}},
            podDisruptionBudget={"minAvailable": 1},
            metrics={"podMonitor": {"labels": {"release": "prometheus"}}},
            deadLetter={"maxRedeliveries": 3},
        ),
        render,
        passthrough=("spec.template",),
        alternatives=("spec.authentication.oauth2.",),
        pinned=(build_spec(),),  # What the kind always had.
    ),
)
