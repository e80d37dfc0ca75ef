"""Applies the manifests of an addon through the API of a cluster that was made."""

from __future__ import annotations

from typing import Final

from libs.common.client import Client
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest, build_object
from operators.clusters.addons import AddonStep, BadAddon, read_manifests
from operators.clusters.naming import OPERATOR

RECORD: Final = Key("kube-system", "slipway-addons")
"""ConfigMap of the cluster that was made: digest of the content that was applied, by addon."""


async def read_record(client: Client) -> dict[str, str]:
    """Return which content of which addon was applied."""
    try:
        held = await client.get(CONFIG_MAP, RECORD)
    except NotFound:
        return {}
    return {str(name): str(digest) for name, digest in (held.get("data") or {}).items()}


async def apply_addon(client: Client, step: AddonStep) -> str:
    """Apply an addon; returns what kept it from being applied, empty for nothing.

    Every object is tried, whatever becomes of the others: a network plugin works without the
    monitoring that its manifests bring along.
    """
    try:
        manifests = read_manifests(step.data)
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
    # Each addon owns its own key: one that leaves the spec is not forgotten by the others.
    record = build_object(CONFIG_MAP, RECORD.name, RECORD.namespace)
    record["data"] = {step.name: step.digest}
    await client.apply(CONFIG_MAP, record, field_manager=f"{OPERATOR}-addon-{step.name}")
    return ""


async def _apply(client: Client, kinds: dict[str, dict[str, Kind]], manifest: Manifest) -> None:
    version = manifest["apiVersion"]
    if manifest["kind"] not in kinds.get(version, {}):
        # Asked again for a kind that is not known yet: its definition may have come with the addon.
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
    await client.apply(kind, manifest, field_manager=OPERATOR)


async def _list_kinds(client: Client, version: str) -> dict[str, Kind]:
    group, _, name = version.rpartition("/")
    try:
        response = await client.raw("GET", Kind(group, name, "", "").base_path)
    except NotFound:
        return {}
    return {
        each["kind"]: Kind(group, name, each["kind"], each["name"], bool(each.get("namespaced")))
        for each in response.get("resources") or ()
        if "/" not in each["name"]
    }
