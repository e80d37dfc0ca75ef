"""Queries of pools, claims and the ledger in an API server, for tests over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from libs.common.client import Client
from libs.common.client_requests import ObjectList
from libs.common.conditions import find_condition
from libs.common.kinds import Key, Kind, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.outcome import writes_of_the_operator
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.samples import build_claim

POOL = Key("", "public")
"""The pool of most tests."""


def claim_of(name: str) -> Key:
    """Return the key of a claim."""
    return Key("default", name)


def address(api: FakeApi, name: str) -> str:
    """Return the address in the status of a claim; empty for none."""
    claim = api.get(IP_CLAIM, claim_of(name))
    return str((claim.get("status") or {}).get("address", ""))


def reason(api: FakeApi, name: str, condition: str = "Ready") -> str:
    """Return the reason of a condition of a claim; empty for none."""
    found = find_condition(api.get(IP_CLAIM, claim_of(name)), condition)
    return str(found["reason"]) if found else ""


def position(api: FakeApi, name: str) -> Any:
    """Return the position of a claim in the queue; None for none."""
    return (api.get(IP_CLAIM, claim_of(name)).get("status") or {}).get("queuePosition")


def capacity(api: FakeApi, name: str = "public") -> Any:
    """Return the capacity of a pool."""
    return api.get(IP_POOL, Key("", name))["status"]["capacity"]


def ledger(api: FakeApi) -> dict[str, str]:
    """Return the claim of each allocated address."""
    return {
        each["spec"]["address"]: each["spec"]["claimRef"]["name"]
        for each in api.objects(IP_ALLOCATION)
    }


def reassign(api: FakeApi, entry: str, claim: str) -> None:
    """Assign an entry of the ledger to a new claim, as a restored backup can do.

    Args:
        api: The API server; the operator is stopped.
        entry: Name of the IPAllocation.
        claim: Name of the new claim, which is created.
    """
    spec = api.get(IP_ALLOCATION, Key("", entry))["spec"]
    api.vanish(IP_ALLOCATION, Key("", entry))
    created = api.create(build_claim(claim))["metadata"]
    owner = {"namespace": "default", "name": claim, "uid": created["uid"]}
    api.create(build_object(IP_ALLOCATION, entry, spec={**spec, "claimRef": owner}))


def condition_of(manifest: Manifest, condition_type: str) -> str:
    """Return the status of a condition; empty for none."""
    found = find_condition(manifest, condition_type)
    return str(found["status"]) if found else ""


def writes(api: FakeApi, mark: int) -> list[str]:
    """Return the writes of the operator since a mark that changed something."""
    return sorted(
        f"{each.verb} {each.kind.kind if each.kind else ''} {each.subresource}".rstrip()
        for each in writes_of_the_operator(api, mark)
    )


@contextmanager
def return_first(kind: Kind, outdated: list[Manifest]) -> Iterator[list[ObjectList]]:
    """Let the next lists of a kind by a label return outdated objects.

    There are two of them: after the first one, the event of the new status may trigger another
    reconcile.

    Yields:
        The outdated lists that were not returned yet.
    """
    left = [ObjectList(outdated, "1")] * 2
    list_current = Client.list

    async def list_objects(self: Client, what: Kind, *args: Any, **options: Any) -> ObjectList:
        if what == kind and options.get("label_selector") and left:
            return left.pop()
        return await list_current(self, what, *args, **options)

    with patch.object(Client, "list", list_objects):
        yield left
