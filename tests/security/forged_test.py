"""Row 18: marks that a user forges make an operator skip nothing."""

from __future__ import annotations

import json

import pytest

from lab.fuzz.subject import load_subjects
from libs.common.kinds import key_of
from libs.common.testing.conformance import NAMESPACE, Subject
from libs.common.testing.trial import Trial
from tests.security.trial import list_makers

SUBJECTS = list_makers(load_subjects())
_HANDLED = {"success": True, "purpose": "create", "started": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.operator.id)
async def test_forged_progress_and_hashes_do_not_stop_the_operator(subject: Subject) -> None:
    trial = Trial.of(subject)
    expected = await trial.run()
    async with trial.api() as api, trial.harness(api) as harness:
        for manifest in subject.objects():
            forged = {
                "kopf.zalando.org/last-handled-configuration": json.dumps(
                    {"spec": manifest.get("spec")}
                ),
                "kopf.zalando.org/create": json.dumps(_HANDLED),
                "kopf.zalando.org/touch-dummy": "1",
                "slipway.dev/applied-hash": "0123456789",
                "deployment.kubernetes.io/revision": "7",
            }
            metadata = {**manifest["metadata"], "annotations": forged}
            api.create({**manifest, "metadata": metadata})
        await trial.settle(api, harness)
        api.patch(subject.primary, trial.primary_key(), subject.change)
        await trial.settle(api, harness)
        children = {
            f"{kind.kind} {key_of(child)}"
            for kind in subject.children
            for child in api.objects(kind, NAMESPACE)
        }

    assert children == {
        name for name in expected.state if not name.startswith(f"{subject.primary.kind} ")
    }


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.operator.id)
async def test_pause_annotation_pauses(subject: Subject) -> None:
    """The negative case: annotations are read, and only those that are meant to be."""
    trial = Trial.of(subject)
    async with trial.api() as api, trial.harness(api) as harness:
        for manifest in subject.objects():
            metadata = {**manifest["metadata"], "annotations": {"slipway.dev/paused": "true"}}
            api.create({**manifest, "metadata": metadata})
        await harness.converged()

        assert all(api.objects(kind, NAMESPACE) == [] for kind in subject.children)
