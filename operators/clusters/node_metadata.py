"""Labels and taints of a pool on its Nodes. Pure.

A kubelet sets them only when it creates its Node, and a Node is kept when its machine is rebuilt.
So the operator sets them itself. An annotation on the Node lists the keys that come from the pool,
so that a key that is removed from the pool is removed from the Node, and all other labels and
taints are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from operators.clusters.api.v1alpha1 import Pool, Taint
from operators.clusters.naming import POOL_LABEL
from operators.clusters.observed import Node

type TaintKey = tuple[str, str]
"""Key and effect, which identify a taint of a Node."""


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """A change of the labels and taints of a Node.

    Attributes:
        labels: Labels to set, by key; None removes one.
        taints: New list of all taints of the Node; None to keep the taints.
        managed: Value of the annotation with the keys that come from the pool.
    """

    labels: Mapping[str, str | None]
    taints: tuple[Mapping[str, Any], ...] | None
    managed: str


def plan_node_update(pool: Pool, node: Node) -> NodeUpdate | None:
    """Plan the change of the labels and taints of a Node; None if they match its pool."""
    labels = build_labels(pool)
    taints = {(taint.key, str(taint.effect)): taint for taint in pool.taints}
    managed = _render_managed(labels, taints)
    old_labels, old_taints = _read_managed(node.managed)
    changes: dict[str, str | None] = {
        key: value for key, value in labels.items() if node.labels.get(key) != value
    }
    changes |= {key: None for key in old_labels - set(labels) if key in node.labels}
    merged = _merge_taints(node, taints, old_taints)
    if not changes and merged == node.taints and managed == node.managed:
        return None
    return NodeUpdate(changes, None if merged == node.taints else merged, managed)


def build_labels(pool: Pool) -> dict[str, str]:
    """Return the labels of the Nodes of a pool."""
    return {**pool.labels, POOL_LABEL: pool.name}


def _merge_taints(
    node: Node, wanted: Mapping[TaintKey, Taint], old: frozenset[TaintKey]
) -> tuple[Mapping[str, Any], ...]:
    kept = []
    for taint in node.taints:
        key = (taint["key"], taint["effect"])
        if key in wanted:
            # Keep the existing taint as it is, because it may contain timeAdded.
            if taint.get("value", "") == wanted[key].value:
                kept.append(taint)
        elif key not in old:
            kept.append(taint)
    there = {(taint["key"], taint["effect"]) for taint in kept}
    added = [_render_taint(taint) for key, taint in wanted.items() if key not in there]
    return (*kept, *added)


def _render_taint(taint: Taint) -> dict[str, Any]:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": str(taint.effect)}


def _render_managed(labels: Mapping[str, str], taints: Mapping[TaintKey, Taint]) -> str:
    keys = {"labels": sorted(labels), "taints": sorted(map(list, taints))}
    return json.dumps(keys, separators=(",", ":"))


def _read_managed(text: str) -> tuple[frozenset[str], frozenset[TaintKey]]:
    """Parse the annotation; an invalid one counts as absent."""
    try:
        keys = orjson.loads(text or "{}")
        labels = frozenset(str(key) for key in keys.get("labels", ()))
        taints = frozenset((str(key), str(effect)) for key, effect in keys.get("taints", ()))
    except (ValueError, TypeError, AttributeError):
        return frozenset(), frozenset()
    return labels, taints
