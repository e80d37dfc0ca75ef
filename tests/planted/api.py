"""A client of a few lines, over the plain HTTP of the fault proxy."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BUG = os.environ.get("BUG", "")


class ApiError(Exception):
    """A request that failed; status 0 if there was no response."""

    def __init__(self, status: int) -> None:
        """Keep the status."""
        super().__init__(f"status {status}")
        self.status = status


def call(method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Send a request and return the decoded response."""
    with _open(method, path, body, 30) as response:
        found: dict[str, Any] = json.load(response)
        return found


def watch(path: str, version: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a watch until it ends."""
    with _open("GET", f"{path}?watch=1&resourceVersion={version}", None, 3600) as response:
        try:
            for line in response:
                yield json.loads(line)
        except OSError:
            return


def owned_by(owner: dict[str, Any], name: str, **fields: Any) -> dict[str, Any]:
    """Build a ConfigMap that is deleted with its owner."""
    reference = {
        **{key: owner[key] for key in ("apiVersion", "kind")},
        **{key: owner["metadata"][key] for key in ("name", "uid")},
        "controller": True,
    }
    labels = {"owner": owner["metadata"]["name"]}
    metadata = {"name": name, "labels": labels, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


def _open(method: str, path: str, body: Any, seconds: float) -> Any:
    config = Path(os.environ["KUBECONFIG"]).read_text()
    server = next(line for line in config.splitlines() if line.strip().startswith("server:"))
    url = server.split()[1] + path
    merge = "application/merge-patch+json"
    headers = {"Content-Type": merge if method == "PATCH" else "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        return urllib.request.urlopen(request, timeout=seconds)
    except urllib.error.HTTPError as err:
        raise ApiError(err.code) from err
    except OSError as err:
        raise ApiError(0) from err
