"""What an Instance costs the API server while it boots: reads of Secrets, writes of its status."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from libs.common.kinds import SECRET, Manifest
from libs.common.testing.fakeapi import FakeApi
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.conftest import Cloud


def list_statuses(api: FakeApi, kind: Any) -> list[Manifest]:
    """Collect each version of the status of the objects of a kind from now on."""
    found: list[Manifest] = []

    def note(change: Any) -> None:
        status = change.record.obj.get("status")
        if change.table == (kind.group, kind.plural) and status and status not in found[-1:]:
            found.append(status)

    api.store.listeners.append(note)
    return found


def strip_messages(value: Any) -> Any:
    """Leave the messages out, which are for people."""
    if isinstance(value, dict):
        return {name: strip_messages(part) for name, part in value.items() if name != "message"}
    return [strip_messages(part) for part in value] if isinstance(value, list) else value


def find_echoes(statuses: list[Manifest]) -> Iterator[tuple[str, str]]:
    """Find the writes of a status that changed nothing but messages."""
    for before, after in pairwise(statuses):
        if strip_messages(before) == strip_messages(after):
            yield before.get("message", ""), after.get("message", "")


async def test_secrets_are_read_for_a_start_and_not_with_every_reconciliation(cloud: Cloud) -> None:
    """Secrets are not watched, so each look at one is a request; one did 13 of them per start."""
    assert cloud.api.objects(SECRET), "the Instance has a Secret with its first settings"
    booted = len(cloud.api.requests.select("get", SECRET))
    cloud.api.patch(INSTANCE, ("default", "web"), {"metadata": {"labels": {"a": "b"}}})
    cloud.api.patch(INSTANCE, ("default", "web"), {"spec": {"terminationGracePeriodSeconds": 60}})
    await cloud.converged()

    # One for the first write, one for the run that mounts it.
    assert booted <= 2
    assert len(cloud.api.requests.select("get", SECRET)) == booted


async def test_status_is_not_written_for_a_message_alone(cloud: Cloud) -> None:
    """A start passes five phases of the instance; none is worth a write by itself."""
    statuses = list_statuses(cloud.api, INSTANCE)
    assert (await cloud.operate("Reboot"))["phase"] == "Succeeded"
    await cloud.running()
    await cloud.converged()

    assert statuses
    assert list(find_echoes(statuses)) == []


async def test_operation_shows_no_conflict_that_is_over_with_the_next_look(cloud: Cloud) -> None:
    """A patch that tests the version it has seen loses now and then, which is nobody's concern."""
    statuses = list_statuses(cloud.api, OPERATION)
    for number, type_ in enumerate(("Reboot", "Rebuild", "Stop", "Start")):
        assert (await cloud.operate(type_, f"op-{number}"))["phase"] == "Succeeded"

    messages = [status.get("message", "") for status in statuses]
    assert not [text for text in messages if "422" in text or "409" in text or "PATCH" in text]
