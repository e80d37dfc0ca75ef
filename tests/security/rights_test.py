"""Row 11: without one of its rights an operator waits and says so; it neither ends nor runs hot."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from lab.fuzz.subject import load_subjects
from libs.common.rbac import PolicyRule, event_rules, operator_namespace_rules
from libs.common.testing.conformance import Subject
from libs.common.testing.trial import Trial
from tests.security.trial import list_alone, list_makers

SUBJECTS = list_alone(load_subjects())
_SECONDS = 0.6
_MOST_REQUESTS = 60
"""Requests within that time; a hot loop makes hundreds."""

_AT_ONCE = 8
"""Operators that run side by side, each without another right: they wait most of the time."""

type Right = tuple[str, str]


def list_rights(subject: Subject) -> list[Right]:
    """List the rights by which an operator writes: resource and verb."""
    return [
        (resource, verb)
        for rule in subject.rules
        for resource in rule.resources
        for verb in rule.verbs
        if verb not in ("get", "list", "watch")
    ]


def name_subject(subject: Subject) -> str:
    """Name a subject by its operator and kind."""
    return f"{subject.operator.id}-{subject.primary.kind}"


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


@pytest.mark.parametrize("subject", SUBJECTS, ids=name_subject)
async def test_operator_without_a_permission_neither_exits_nor_busy_loops(subject: Subject) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def check(right: Right) -> list[str]:
        async with turns:
            return await find_problem(subject, right)

    found = await asyncio.gather(*map(check, list_rights(subject)))

    assert [line for lines in found for line in lines] == []


async def find_problem(subject: Subject, right: Right) -> list[str]:
    """Run an operator without a right; returns what it does wrong, in words."""
    resource, verb = right
    trial = Trial.of(subject)
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
            problems = {
                "the process ended": bool(harness.exits),
                "the process gave up": not harness.manager.working.is_set(),
                f"{len(denied)} refused requests": len(denied) >= _MOST_REQUESTS,
            }
    return [f"without {verb} {resource}: {what}" for what, is_so in problems.items() if is_so]


@pytest.mark.parametrize("subject", list_makers(load_subjects()), ids=name_subject)
async def test_operator_continues_when_the_permission_is_restored(subject: Subject) -> None:
    trial = Trial.of(subject)
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
