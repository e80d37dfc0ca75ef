"""Permissions that follow from what controllers declare."""

from __future__ import annotations

from libs.common.kinds import CONFIG_MAP, NODE, POD, SECRET, Kind
from libs.common.rbac import grant, render_rules
from libs.common.runtime import Context, Controller, Result
from libs.common.runtime.permissions import derive_rules

BOAT = Kind("sea.example.com", "v1", "Boat", "boats")


async def nothing(ctx: Context) -> Result | None:
    return None


def granted(*controllers: Controller) -> dict[str, list[str]]:
    rules = render_rules(derive_rules(controllers))
    return {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}


def test_primary_is_read_and_its_status_written() -> None:
    assert granted(Controller("boat", BOAT, nothing)) == {
        "boats": ["get", "list", "watch"],
        "boats/status": ["get", "patch"],
    }


def test_status_without_subresource_is_a_patch_of_the_primary() -> None:
    assert granted(Controller("boat", BOAT, nothing, status_subresource=False)) == {
        "boats": ["get", "list", "watch", "patch"],
    }


def test_finalizer_needs_a_patch_of_the_primary() -> None:
    controller = Controller("boat", BOAT, nothing, finalize=nothing, finalizer="sea.example.com/x")

    assert granted(controller)["boats"] == ["get", "list", "watch", "patch"]


def test_owner_of_children_may_block_its_deletion() -> None:
    controller = Controller("boat", BOAT, nothing).owns(POD, writes=("create", "delete"))

    assert granted(controller)["pods"] == ["get", "list", "watch", "create", "delete"]
    assert granted(controller)["boats/finalizers"] == ["update"]


def test_owner_of_children_that_do_not_block_its_deletion_needs_no_permission_for_it() -> None:
    controller = Controller("boat", BOAT, nothing, blocks_deletion=False).owns(POD)

    assert "boats/finalizers" not in granted(controller)


def test_kind_that_is_only_watched_is_only_read() -> None:
    controller = Controller("boat", BOAT, nothing).watches(CONFIG_MAP, lambda *_: ()).reads(NODE)

    assert granted(controller)["configmaps"] == ["get", "list", "watch"]
    assert granted(controller)["nodes"] == ["get", "list", "watch"]
    assert "boats/finalizers" not in granted(controller)
    (nodes,) = [rule for rule in derive_rules([controller]) if "nodes" in rule.resources]
    assert nodes.cluster_scoped


def test_writes_of_all_watches_of_a_kind_are_granted_with_their_reason() -> None:
    controller = (
        Controller("boat", BOAT, nothing)
        .watches(POD, lambda *_: ())
        .owns(POD, writes=("delete",), why="sink boats")
    )

    (rule,) = [rule for rule in derive_rules([controller]) if rule.resources == ("pods",)]
    assert rule.verbs == ("get", "list", "watch", "delete")
    assert rule.why == "sink boats"


def test_kind_that_one_controller_reads_and_another_writes_has_one_rule() -> None:
    reader = Controller("captain", POD, nothing).reads(CONFIG_MAP)
    writer = Controller("boat", BOAT, nothing).owns(CONFIG_MAP, writes=("create",), why="log")

    rules = derive_rules([reader, writer])

    (rule,) = [rule for rule in rules if rule.resources == ("configmaps",)]
    assert (rule.verbs, rule.why) == (("get", "list", "watch", "create"), "log")


def test_further_permissions_are_added() -> None:
    further = grant(SECRET, "get", why="read a password")

    assert derive_rules([Controller("boat", BOAT, nothing)], [further])[-1] == further
