"""Each value of each field: a real API server, the built-in one and our types must agree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from lab.fuzz.children import kind_of_child
from lab.fuzz.subject import NAMESPACE, Case, FuzzSubject, load_subjects
from libs.common.client import Client
from libs.common.crd import ParseError
from libs.common.errors import (
    ApiError,
    BadRequest,
    Invalid,
    TerminalError,
)
from libs.common.kinds import Manifest
from libs.common.testing.serving import serve

pytestmark = pytest.mark.apiserver
SUBJECTS = load_subjects()
_AT_ONCE: Final = 16
_SHARE: Final = 5
"""One of so many values is offered for a field that has the schema of another one."""
_WORDS: Final = ("description", "default", "message")


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
async def test_server_model_and_types_agree_on_each_value(
    subject: FuzzSubject, kube_client: Client
) -> None:
    await serve(kube_client, subject.crd)
    turns = asyncio.Semaphore(_AT_ONCE)

    async def evaluate(case: Case) -> list[str]:
        async with turns:
            return [f"{case}: {line}" for line in await find_problems(kube_client, subject, case)]

    found = await asyncio.gather(*map(evaluate, choose_cases(subject)))
    problems = [line for lines in found for line in lines]
    assert not problems, f"{len(problems)} disagreements:\n" + "\n".join(problems[:40])


def choose_cases(subject: FuzzSubject) -> list[Case]:
    """Choose all values for one field of each schema, and a share of them for its likes.

    To the API server such fields are the same. The pure core gets all values of all fields.
    """
    fields: dict[str, list[str]] = {}
    chosen = []
    for number, case in enumerate(subject.cases()):
        likes = fields.setdefault(json.dumps(_bare(case.field.schema), sort_keys=True), [])
        if case.field.name not in likes:
            likes.append(case.field.name)
        if case.field.name == likes[0] or number % _SHARE == 0:
            chosen.append(case)
    return chosen


def _bare(schema: Any) -> Any:
    """Leave the words out of a schema."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _bare(held) for name, held in schema.items() if name not in _WORDS}


def rule_messages(schema: Mapping[str, Any]) -> list[str]:
    """Return the messages of all CEL rules of a schema."""
    rules = schema.get("x-kubernetes-validations") or ()
    found = [str(rule.get("message") or rule.get("rule")) for rule in rules]
    children: list[Any] = list((schema.get("properties") or {}).values())
    children += [schema.get("items"), schema.get("additionalProperties")]
    return found + [
        message
        for child in children
        if isinstance(child, Mapping)
        for message in rule_messages(child)
    ]


async def find_problems(client: Client, subject: FuzzSubject, case: Case) -> list[str]:
    """Compare the verdicts of both servers, and take what they accept further."""
    offenses = subject.find_offenses(case.manifest)
    try:
        accepted = await client.create(subject.kind, case.manifest, dry_run=True)
    except (Invalid, BadRequest) as err:
        messages = rule_messages(subject.root)
        by_rule = any(message in err.message for message in messages)
        return [] if offenses or by_rule else [f"only the server refuses it: {err.message}"]
    if offenses:
        return [f"the server accepts it in spite of: {'; '.join(offenses)}"]
    return await _check_accepted(client, subject, case, accepted)


async def _check_accepted(
    client: Client, subject: FuzzSubject, case: Case, accepted: Manifest
) -> list[str]:
    try:
        children = subject.render(accepted)
    except ParseError as err:
        paths = [each.path for each in err.errors]
        named = all(path.startswith("spec") for path in paths)
        return [] if named else [f"refused without naming a field: {err}"]
    except TerminalError as err:
        return [] if err.field else [f"refused without naming a field: {err}"]
    return await _check_children(client, subject, case, children)


async def _check_children(
    client: Client, subject: FuzzSubject, case: Case, children: Sequence[Manifest]
) -> list[str]:
    if case.field.name.startswith(subject.passthrough or ("//",)):
        return []
    found = []
    for child in children[:1]:
        kind = kind_of_child(child)
        if kind is None:
            continue
        try:
            await client.create(kind, child, dry_run=True)
        except ApiError as err:
            found.append(f"the server refuses the {kind.kind} made of it: {err.message}")
    return found


def test_subjects_live_where_children_are_tried() -> None:
    assert {subject.build()["metadata"].get("namespace") for subject in SUBJECTS} <= {
        NAMESPACE,
        None,
    }
