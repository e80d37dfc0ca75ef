"""Queries of networks and firewalls in an API server, for tests over HTTP."""

from __future__ import annotations

from libs.common.conditions import find_condition
from libs.common.kinds import Key, Kind
from libs.common.testing.fakeapi import FakeApi


def condition(api: FakeApi, kind: Kind, key: Key, name: str) -> tuple[str, str]:
    """Return status and reason of a condition, which must exist."""
    found = find_condition(api.get(kind, key), name)
    assert found is not None, f"condition {name} does not exist"
    return found["status"], found["reason"]
