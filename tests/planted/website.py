"""An operator on kopf: a Website has a page, a token with a random name, and an archive."""

from __future__ import annotations

import os
import random
import time
import uuid
from typing import Any

import kopf

from tests.planted.api import BUG, ApiError, call, owned_by


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Write no Events, which are of no interest here."""
    settings.posting.enabled = False


@kopf.on.create("websites")
@kopf.on.update("websites")
def reconcile(body: Any, patch: Any, **_: Any) -> None:
    """Create what is missing, then write the status."""
    try:
        _reconcile(dict(body), body["metadata"]["namespace"], patch)
    except ApiError as err:
        if BUG == "exits-on-conflict" and err.status == 409:
            os._exit(3)
        if BUG == "gives-up":
            raise kopf.PermanentError(str(err)) from err
        if BUG == "ignores-errors":
            return
        raise kopf.TemporaryError(str(err), delay=1) from err


if BUG != "status-in-patch":
    kopf.on.resume("websites")(reconcile)


@kopf.on.delete("websites")
def delete(body: Any, **_: Any) -> None:
    """Delete the archive, which no owner reference covers."""
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    try:
        call("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{name}-archive")
    except ApiError as err:
        if err.status != 404 and BUG != "orphans-archive":
            raise kopf.TemporaryError(str(err), delay=1) from err


def _reconcile(site: dict[str, Any], namespace: str, patch: Any) -> None:
    name, text = site["metadata"]["name"], site["spec"]["text"]
    own = f"/apis/{site['apiVersion']}/namespaces/{namespace}/websites/{name}/status"
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    status = {"phase": "Ready", "text": text}
    if BUG == "ready-first":
        if call("GET", own).get("status") == status:
            return
        call("PATCH", own, {"status": status})
    _write_page(maps, site, own)
    archive = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-archive"}}
    _create(maps, archive)
    _create_token(maps, site, own)
    if BUG == "races":
        time.sleep(random.random())
        status["phase"] = random.choice(["Ready", "Pending"])
    if BUG == "status-in-patch":
        patch.status.update(status)
    elif BUG != "ready-first":
        call("PATCH", own, {"status": status})


def _write_page(maps: str, site: dict[str, Any], own: str) -> None:
    name, data = site["metadata"]["name"], {"text": site["spec"]["text"]}
    page = owned_by(site, f"{name}-page", data=data)
    known = call("GET", own).get("status")
    if BUG == "destroys-first" and known:
        if known["text"] != data["text"]:
            call("GET", f"{maps}/{name}-page")
            call("DELETE", f"{maps}/{name}-page")
            call("POST", maps, page)
        return
    if not _create(maps, page):
        call("PATCH", f"{maps}/{name}-page", {"data": data})


def _create(maps: str, manifest: dict[str, Any]) -> bool:
    """Create an object; return whether it did not exist."""
    try:
        if BUG != "creates-blindly":
            call("GET", f"{maps}/{manifest['metadata']['name']}")
            return False
    except ApiError as err:
        if err.status != 404:
            raise
    try:
        call("POST", maps, manifest)
    except ApiError as err:
        if BUG == "creates-blindly" and err.status == 409:
            raise kopf.PermanentError("exists") from err
        raise
    return True


def _create_token(maps: str, site: dict[str, Any], own: str) -> None:
    name = site["metadata"]["name"]
    existing = call("GET", f"{maps}?labelSelector=owner%3D{name}")["items"]
    tokens = [each for each in existing if "-token-" in each["metadata"]["name"]]
    is_known = (call("GET", own).get("status") or {}).get("phase") == "Ready"
    if is_known if BUG == "duplicates" else tokens:
        return
    for _ in range(2):
        try:
            call("POST", maps, owned_by(site, f"{name}-token-{uuid.uuid4().hex[:8]}"))
        except ApiError:
            if BUG != "repeats-lost-create":
                raise
        else:
            return
