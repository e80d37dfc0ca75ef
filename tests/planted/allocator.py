"""An operator without a framework: a Ticket gets the lowest free number, and returns it."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.planted.api import BUG, ApiError, call, watch

_NAMESPACE = os.environ["POD_NAMESPACE"]
_MAPS = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"
_TICKETS = f"/apis/planted.slipway.dev/v1/namespaces/{_NAMESPACE}/tickets"
_FINALIZER = "planted.slipway.dev/number"


def main() -> None:
    """List, then watch from there; list again when the watch says that it missed events."""
    version = ""
    while True:
        try:
            if not version:
                listing = call("GET", _TICKETS)
                version = listing["metadata"]["resourceVersion"]
                for ticket in listing["items"]:
                    if BUG != "skips-terminating" or not is_deleted(ticket):
                        insist(ticket)
            version = follow(version)
        except ApiError:
            version = ""
            time.sleep(0.5)


def follow(version: str) -> str:
    """Watch until the stream ends; return the version to resume from, or nothing to list."""
    for event in watch(_TICKETS, version):
        if event["type"] == "ERROR":
            return ""
        version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "DELETED":
            insist(event["object"])
    return version


def insist(ticket: dict[str, Any]) -> None:
    """Reconcile until it succeeds, or the object no longer exists."""
    while True:
        try:
            # The event may be older than the last write.
            live = call("GET", f"{_TICKETS}/{ticket['metadata']['name']}")
            reconcile(live)
        except ApiError as err:
            if err.status == 404 or (BUG == "swallows-conflicts" and err.status == 409):
                return
            time.sleep(0.5)
        else:
            return


def reconcile(ticket: dict[str, Any]) -> None:
    """Record a number for the ticket, or delete the record of a ticket that is being deleted."""
    own = f"{_TICKETS}/{ticket['metadata']['name']}"
    if is_deleted(ticket):
        release(ticket, own)
        return
    if not ticket["metadata"].get("finalizers"):
        call("PATCH", own, {"metadata": {"finalizers": [_FINALIZER]}})
    number, is_new = find_number(ticket), False
    if number is None:
        number, is_new = take_number(ticket), True
    if BUG != "reports-once" or is_new:
        call("PATCH", f"{own}/status", {"status": {"number": number}})


def release(ticket: dict[str, Any], own: str) -> None:
    """Delete the record, then the finalizer."""
    number = find_number(ticket)
    steps = [("PATCH", own, {"metadata": {"finalizers": None}})]
    if number is not None:
        steps.insert(0, ("DELETE", f"{_MAPS}/number-{number}", {}))
    if BUG == "releases-too-late":
        steps.reverse()
    for step in steps:
        call(*step)


def find_number(ticket: dict[str, Any]) -> int | None:
    """Return the recorded number of a ticket."""
    if BUG == "trusts-status":
        number: int | None = ticket.get("status", {}).get("number")
        return number
    uid = ticket["metadata"]["uid"]
    for record in call("GET", _MAPS)["items"]:
        if record.get("data", {}).get("ticket") == uid:
            return int(record["metadata"]["name"].removeprefix("number-"))
    return None


def take_number(ticket: dict[str, Any]) -> int:
    """Record the lowest free number; the name of the record is the lock."""
    number = 0
    while True:
        record = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"number-{number}"},
            "data": {"ticket": ticket["metadata"]["uid"]},
        }
        try:
            call("POST", _MAPS, record)
        except ApiError as err:
            if err.status != 409 and BUG != "takes-any-error-for-taken":
                raise
            number += 1
        else:
            return number


def is_deleted(ticket: dict[str, Any]) -> bool:
    """Return whether a ticket is being deleted."""
    return "deletionTimestamp" in ticket["metadata"]


if __name__ == "__main__":
    main()
