"""Row 11: without one of its rights an operator waits and says so; it neither ends nor runs hot."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from libs.common.rbac import PolicyRule, event_rules, operator_namespace_rules
from libs.common.testing.conformance import Subject
from tests.security.trial import build_trial
from tools.fuzz.subject import load_subjects

SUBJECTS = [subject.live for subject in load_subjects() if subject.live is not None]
_SECONDS = 0.6
_MOST_REQUESTS = 60
"""Requests within that time; a hot loop makes hundreds."""

type Right = tuple[Subject, str, str]


def list_rights() -> list[Right]:
    """List the rights by which operators write."""
    return [
        (subject, resource, verb)
        for subject in SUBJECTS
        for rule in subject.rules
        for resource in rule.resources
        for verb in rule.verbs
        if verb not in ("get", "list", "watch")
    ]


def take_away(rules: tuple[PolicyRule, ...], resource: str, verb: str) -> list[PolicyRule]:
    """Return the rules without one right."""
    return [
        (
            replace(rule, verbs=tuple(each for each in rule.verbs if each != verb))
            if resource in rule.resources
            else rule
        )
        for rule in rules
    ]


@pytest.mark.parametrize(
    "right", list_rights(), ids=lambda right: f"{right[0].operator.id}-{right[2]}-{right[1]}"
)
async def test_operator_without_a_right_neither_ends_nor_runs_hot(right: Right) -> None:
    subject, resource, verb = right
    trial = build_trial(subject)
    rules = take_away(tuple(subject.rules), resource, verb)
    async with trial.api() as api:
        api.allow((*rules, *event_rules(), *operator_namespace_rules(subject.operator.id)))
        async with trial.harness(api, backoff_base_seconds=0.05) as harness:
            for manifest in subject.objects():
                api.create(manifest)
            await asyncio.sleep(_SECONDS)  # Time itself is what is asked about.
            subject.drive(api)
            await asyncio.sleep(_SECONDS)
            denied = [each for each in api.requests if each.status == 403]
            assert harness.exits == [], "the process ended"
            assert harness.manager.working.is_set(), "the process gave up"
            assert len(denied) < _MOST_REQUESTS, f"{len(denied)} refused requests"


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.operator.id)
async def test_operator_goes_on_when_it_gets_the_right_back(subject: Subject) -> None:
    trial = build_trial(subject)
    framework = (*event_rules(), *operator_namespace_rules(subject.operator.id))
    async with trial.api() as api:
        api.allow(
            (*take_away(tuple(subject.rules), subject.children[0].plural, "create"), *framework)
        )
        async with trial.harness(api) as harness:
            for manifest in subject.objects():
                api.create(manifest)
            await harness.eventually(lambda: any(each.status == 403 for each in api.requests))
            assert api.objects(subject.children[0]) == []

            api.allow((*subject.rules, *framework))
            await trial.settle(api, harness)

        assert api.objects(subject.children[0]) != []
