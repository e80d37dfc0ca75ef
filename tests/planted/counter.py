"""An operator without a framework: a Counter has as many ConfigMaps as it counts."""

from __future__ import annotations

import os
import sys
import time
import uuid
from typing import Any

from tests.planted.api import BUG, ApiError, call, owned_by, watch

_NAMESPACE = os.environ["POD_NAMESPACE"]
_MAPS = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"
_COUNTERS = "/apis/planted.slipway.dev/v1/counters"
"""Of all namespaces; the proxy shows those of the trial."""
_created: dict[str, int] = {}


def main() -> None:
    """List, then watch from there; list again when the watch says that it missed events."""
    version = ""
    while True:
        try:
            if not version:
                listing = call("GET", _COUNTERS)
                version = listing["metadata"]["resourceVersion"]
                for counter in listing["items"]:
                    # Lists leave these out of their items.
                    insist({"apiVersion": "planted.slipway.dev/v1", "kind": "Counter", **counter})
            version = follow(version)
        except ApiError:
            version = ""
            time.sleep(0.5)


def follow(version: str) -> str:
    """Watch until the stream ends; return the version to resume from, or nothing to list."""
    for event in watch(_COUNTERS, version):
        if event["type"] == "ERROR":
            if BUG == "exits-when-expired":
                sys.exit(1)
            if BUG == "skips-when-expired":
                newest: str = call("GET", _COUNTERS)["metadata"]["resourceVersion"]
                return newest
            return ""
        version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "DELETED":
            insist(event["object"])
    while BUG == "stops-when-cut":
        time.sleep(60)
    return version


def insist(counter: dict[str, Any]) -> None:
    """Reconcile until it succeeds."""
    while True:
        try:
            reconcile(counter)
        except ApiError as err:
            if err.status == 404 or BUG == "tries-once":
                return
            time.sleep(0.5)
        else:
            return


def reconcile(counter: dict[str, Any]) -> None:
    """Create and delete ConfigMaps until there are as many as there should be."""
    name, count = counter["metadata"]["name"], counter["spec"]["count"]
    if counter["metadata"].get("deletionTimestamp"):
        return
    if BUG == "remembers-in-memory":
        while _created.get(name, 0) < count:
            call("POST", _MAPS, owned_by(counter, f"{name}-{uuid.uuid4().hex[:8]}"))
            _created[name] = _created.get(name, 0) + 1
    else:
        items = call("GET", f"{_MAPS}?labelSelector=owner%3D{name}")["items"]
        names = {each["metadata"]["name"] for each in items}
        wanted = {f"{name}-{number}" for number in range(count)}
        for missing in sorted(wanted - names):
            call("POST", _MAPS, owned_by(counter, missing))
        for surplus in sorted(names - wanted):
            call("DELETE", f"{_MAPS}/{surplus}")
    own = f"/apis/{counter['apiVersion']}/namespaces/{_NAMESPACE}/counters/{name}/status"
    call("PATCH", own, {"status": {"count": count}})


if __name__ == "__main__":
    main()
