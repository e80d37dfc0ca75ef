"""Choose the node on which a new root disk must be usable.

CDI fills a disk before a machine uses it. If its storage belongs to one node or zone, the machine
can only run there, so the disk must be where the machine may run and where its other disks are. The
scheduler chooses for the pod of the importer, which knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.common.errors import Forbidden
from libs.common.kinds import NODE, PV, PVC, Key, Manifest, key_of
from libs.common.labels import matches_selector
from libs.common.naming import short_hash
from libs.common.reading import holds_at, map_at, maps_at, text_at, text_map_at
from libs.common.runtime import Context
from operators.compute.api.instance import Instance
from operators.compute.instance.observed import Observed
from operators.compute.instance.watches import claim_of


async def find_place(ctx: Context, instance: Instance, observed: Observed) -> str:
    """Return the node on which a new root disk must be usable; empty for any.

    The present node of the machine has precedence. The free capacity of nodes is not known.
    """
    spec, run = map_at(ctx.primary, "spec"), observed.run
    claims = {claim_of(volume) for volume in maps_at(spec, "volumes")}
    claims |= {text_at(directive, "attach") for directive in maps_at(spec, "directives")} - {""}
    selector = instance.spec.placement.node_selector
    if not (claims or selector):
        return ""
    volumes = [await _find_volume(ctx, claim) for claim in sorted(claims)]
    fits = [
        node
        for node in ctx.list(NODE)
        if matches_selector({"matchLabels": selector}, text_map_at(node, "metadata", "labels"))
        and all(_can_use(node, volume) for volume in volumes)
    ]
    present = "" if run is None else run.view.node_name
    if not fits or present in {key_of(node).name for node in fits}:
        return present
    names = {key_of(node).name: _is_reserved(node) for node in fits}
    return min(names, key=lambda name: (names[name], short_hash(f"{ctx.uid} {name}")))


async def _find_volume(ctx: Context, claim: str) -> Manifest:
    held = ctx.get(PVC, Key(ctx.key.namespace, claim)) or {}
    name = text_at(held, "spec", "volumeName")
    try:
        return (await ctx.live_get(PV, Key("", name)) if name else None) or {}
    except Forbidden:
        # The administrator provides a ClusterRole of an earlier version.
        return {}


def _can_use(node: Mapping[str, Any], volume: Mapping[str, Any]) -> bool:
    required = map_at(volume, "spec", "nodeAffinity", "required")
    labels = text_map_at(node, "metadata", "labels")
    try:
        return not required or any(
            matches_selector(term, labels) for term in maps_at(required, "nodeSelectorTerms")
        )
    except ValueError:
        return False  # It compares numbers, which no storage does.


def _is_reserved(node: Mapping[str, Any]) -> bool:
    """Return whether a node takes no machines, as far as is known."""
    effects = {text_at(taint, "effect") for taint in maps_at(node, "spec", "taints")}
    usable = text_map_at(node, "metadata", "labels").get("kubevirt.io/schedulable") == "true"
    return not (usable and holds_at(node, "Ready")) or bool(effects - {"PreferNoSchedule"})
