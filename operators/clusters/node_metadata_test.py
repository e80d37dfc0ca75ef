"""Labels and taints of a pool reach existing Nodes; labels and taints of other people stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.clusters.api.v1alpha1 import Pool
from operators.clusters.node_metadata import NodeUpdate, plan_node_update
from operators.clusters.observed import Node
from operators.clusters.samples import build_node

NAME = "edge-web-0"
POOL_KEY = "clusters.slipway.dev/pool"
GPU = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
THEIRS = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-03-01"}


def pool(**fields: Any) -> Pool:
    return Pool.model_validate({"name": "web", "count": 1, "size": "large", **fields})


def node(managed: str, *taints: dict[str, str], **labels: str) -> Node:
    found = Node.parse(build_node(NAME, labels={POOL_KEY: "web", **labels}))
    return replace(found, taints=taints, managed=managed)


def mark(asked: Pool, before: Node) -> NodeUpdate:
    """Return the change, which there has to be."""
    marks = plan_node_update(asked, before)
    assert marks is not None
    return marks


def test_node_that_has_just_joined_is_only_annotated() -> None:
    """Its kubelet has set the same labels; from now on it is known who they came from."""
    marks = mark(pool(labels={"tier": "web"}, taints=[GPU]), node("", GPU, tier="web"))

    assert marks == NodeUpdate(
        {}, None, f'{{"labels":["{POOL_KEY}","tier"],"taints":[["dedicated","NoSchedule"]]}}'
    )


def test_label_of_the_pool_is_set_and_changed() -> None:
    marks = mark(pool(labels={"tier": "api", "zone": "a"}), node("", tier="web"))

    assert marks.labels == {"tier": "api", "zone": "a"}


def test_label_that_leaves_the_pool_leaves_the_node_and_others_stay() -> None:
    before = node(f'{{"labels":["{POOL_KEY}","tier"],"taints":[]}}', tier="web", own="mine")

    assert mark(pool(), before).labels == {"tier": None}


def test_label_that_somebody_set_before_the_pool_named_any_stays() -> None:
    assert mark(pool(), node("", tier="web")).labels == {}


def test_pool_label_that_somebody_removed_comes_back() -> None:
    managed = f'{{"labels":["{POOL_KEY}"],"taints":[]}}'
    before = replace(node(managed), labels={})

    assert mark(pool(), before).labels == {POOL_KEY: "web"}


def test_taint_is_added_beside_those_of_others() -> None:
    marks = mark(pool(taints=[GPU]), node("", THEIRS))

    assert marks.taints == (THEIRS, GPU)


def test_taint_with_another_value_is_replaced() -> None:
    old = {**GPU, "value": "old"}

    assert mark(pool(taints=[GPU]), node("", old, THEIRS)).taints == (THEIRS, GPU)


def test_taint_that_leaves_the_pool_leaves_the_node() -> None:
    managed = f'{{"labels":["{POOL_KEY}"],"taints":[["dedicated","NoSchedule"]]}}'
    other_effect = {**GPU, "effect": "NoExecute"}

    assert mark(pool(), node(managed, GPU, other_effect)).taints == (other_effect,)


def test_taint_of_somebody_else_with_the_same_key_stays() -> None:
    assert mark(pool(), node("", GPU)).taints is None


@pytest.mark.parametrize("spoiled", ["{", "[]", '{"labels":3}', '{"taints":[["a"]]}', "null"])
def test_annotation_that_was_spoiled_is_written_again_and_removes_nothing(spoiled: str) -> None:
    marks = mark(pool(labels={"tier": "web"}), node(spoiled, GPU, tier="web", own="mine"))

    assert (marks.labels, marks.taints) == ({}, None)
    assert marks.managed == f'{{"labels":["{POOL_KEY}","tier"],"taints":[]}}'


def test_change_that_was_made_needs_no_other() -> None:
    asked = pool(labels={"tier": "api"}, taints=[GPU])
    marks = mark(asked, node("", THEIRS, tier="web"))
    assert marks.taints is not None
    after = node(marks.managed, *map(dict, marks.taints), tier="api")

    assert plan_node_update(asked, after) is None
