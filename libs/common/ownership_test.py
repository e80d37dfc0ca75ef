"""Owner references: by UID, and patches that an API server accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import CONFIG_MAP, REPLICA_SET, Manifest
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.ownership import (
    build_adopt_patch,
    build_owner_reference,
    build_release_patch,
    controller_of,
    controller_uid,
    is_controlled_by,
    is_former_child,
)
from libs.common.testing.fakeapi.patches import apply_json_patch

OWNER: Manifest = {"metadata": {"name": "web", "uid": "u1"}}
REFERENCE = build_owner_reference(REPLICA_SET, OWNER)


def build_child(*references: Manifest) -> Manifest:
    metadata: Manifest = {"name": "child", "uid": "c"}
    if references:
        metadata["ownerReferences"] = list(references)
    return {"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": metadata}


def reference(uid: str, *, controller: bool = False) -> Manifest:
    return {"apiVersion": "v1", "kind": "X", "name": uid, "uid": uid, "controller": controller}


def test_reference_blocks_the_deletion_of_the_owner() -> None:
    assert REFERENCE == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "u1",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_owner_of_the_same_name_but_another_uid_controls_nothing() -> None:
    child = build_child(REFERENCE)

    assert is_controlled_by(child, OWNER)
    assert not is_controlled_by(child, {"metadata": {"name": "web", "uid": "u2"}})
    assert not is_controlled_by(child, {"metadata": {"name": "web"}})
    assert not is_controlled_by(build_child(), {"metadata": {"name": "web"}})


def test_owner_that_does_not_control_is_no_controller() -> None:
    child = build_child(reference("friend"), reference("boss", controller=True))

    assert controller_uid(child) == "boss"
    assert (controller_of(child) or {})["uid"] == "boss"
    assert controller_of(build_child(reference("friend"))) is None
    assert controller_uid(build_child()) == ""


def test_only_orphans_are_adopted() -> None:
    with pytest.raises(ValueError, match="controlled by X boss"):
        build_adopt_patch(build_child(reference("boss", controller=True)), REFERENCE)


REFERENCES = st.lists(st.sampled_from(["a", "b", "u1"]), unique=True, max_size=3).map(
    lambda uids: [reference(uid) for uid in uids]
)


@given(REFERENCES)
def test_adoption_adds_and_release_takes_away_exactly_one_reference(held: list[Any]) -> None:
    child = build_child(*held)

    adopted = apply_json_patch(child, build_adopt_patch(child, REFERENCE))
    released = apply_json_patch(adopted, build_release_patch(adopted, "u1"))

    others = [each for each in held if each["uid"] != "u1"]
    assert adopted["metadata"]["ownerReferences"] == [*others, REFERENCE]
    assert released["metadata"].get("ownerReferences", []) == others
    assert build_release_patch(released, "u1") == []
    assert build_adopt_patch(adopted, REFERENCE) == build_adopt_patch(child, REFERENCE)


def label(manifest: Manifest, name: str = "web", operator: str = "demo") -> Manifest:
    manifest["metadata"]["labels"] = {MANAGED_BY: operator, INSTANCE: name}
    return manifest


FORMER = {**REFERENCE, "uid": "u0"}


@pytest.mark.parametrize(
    ("live", "former"),
    [
        (label(build_child()), True),
        (label(build_child(FORMER)), True),
        (label(build_child({**FORMER, "apiVersion": "apps/v1beta2"})), True),
        (label(build_child(REFERENCE)), False),
        (label(build_child({**FORMER, "name": "other"})), False),
        (label(build_child({**FORMER, "apiVersion": "other/v1"})), False),
        (label(build_child(FORMER, reference("friend"))), False),
        (label(build_child(), name="other"), False),
        (label(build_child(), operator="other"), False),
        (build_child(), False),
    ],
)
def test_former_child_has_our_labels_and_no_owner_that_can_exist(
    live: Manifest, former: bool
) -> None:
    assert is_former_child(live, label(build_child(REFERENCE))) is former


def test_former_child_that_is_being_deleted_is_left_alone() -> None:
    live = label(build_child())
    live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert not is_former_child(live, label(build_child(REFERENCE)))
