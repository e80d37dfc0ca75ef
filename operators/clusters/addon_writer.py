"""Applies the manifests of an addon through the API of a managed cluster."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

from libs.common.client import Client
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object
from libs.common.reading import is_set_at, maps_at, text_at, text_map_at
from operators.clusters.addons import AddonStep, BadAddon, read_manifests
from operators.clusters.naming import OPERATOR_ID

_MOST_RECORDS: Final = 1_000
_LONGEST_RECORD: Final = 300
RECORD: Final = Key("kube-system", "slipway-addons")
"""ConfigMap in the managed cluster: digest of the applied content, by addon."""


async def read_record(client: Client) -> dict[str, str]:
    """Return the digest of the applied content, by addon."""
    try:
        held = await client.get(CONFIG_MAP, RECORD)
    except NotFound:
        return {}
    record = islice(text_map_at(held, "data").items(), _MOST_RECORDS)
    return {name: digest for name, digest in record if len(name) + len(digest) < _LONGEST_RECORD}


async def apply_addon(client: Client, step: AddonStep) -> str:
    """Apply an addon; return the error that prevented it, or an empty text.

    Each object is tried, even if others fail: for example, a network plugin works without the
    monitoring objects in its manifests.
    """
    try:
        # A large addon takes seconds.
        manifests = await asyncio.to_thread(read_manifests, step.data)
    except BadAddon as err:
        return str(err)
    kinds: dict[str, dict[str, Kind]] = {}
    problems = []
    for manifest in manifests:
        try:
            await _apply(client, kinds, manifest)
        except (SlipwayError, BadAddon) as err:
            name = f"{manifest['kind']} {manifest['metadata']['name']}"
            problems.append(f"{name}: {err}")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return f"{problems[0]}{more}"
    # Each addon has its own field manager and owns only its key, so that applying one addon does
    # not remove the records of the others.
    record = build_object(CONFIG_MAP, RECORD.name, RECORD.namespace)
    record["data"] = {step.name: step.digest}
    await client.apply(CONFIG_MAP, record, field_manager=f"{OPERATOR_ID}-addon-{step.name}")
    return ""


async def _apply(client: Client, kinds: dict[str, dict[str, Kind]], manifest: Manifest) -> None:
    version = manifest["apiVersion"]
    if manifest["kind"] not in kinds.get(version, {}):
        # Discover again if the kind is unknown: its CRD may be part of the addon.
        kinds[version] = await _list_kinds(client, version)
    kind = kinds[version].get(manifest["kind"])
    if kind is None:
        raise BadAddon(
            f"the API server of the cluster does not serve kind {manifest['kind']} in {version}"
        )
    if kind.namespaced:
        metadata = manifest["metadata"]
        metadata = {**metadata, "namespace": metadata.get("namespace") or "default"}
        manifest = {**manifest, "metadata": metadata}
    await client.apply(kind, manifest, field_manager=OPERATOR_ID)


async def _list_kinds(client: Client, version: str) -> dict[str, Kind]:
    group, _, name = version.rpartition("/")
    try:
        response = await client.raw("GET", Kind(group, name, "", "").base_path)
    except NotFound:
        return {}
    return {
        kind: Kind(group, name, kind, text_at(each, "name"), is_set_at(each, "namespaced"))
        for each in maps_at(response, "resources")
        if (kind := text_at(each, "kind")) and "/" not in text_at(each, "name")
    }
