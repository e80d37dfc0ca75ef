"""Tests of the store: the newer version wins, the dead stay dead, own writes are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest, build_object, key_of
from libs.common.labels import APPLIED_HASH
from libs.common.runtime.store import Store, strip_noise
from libs.common.testing.writing import fill_store

KEY = Key("default", "web")


def build_pod(name: str = "web", version: int = 1, uid: str = "u1", **metadata: Any) -> Manifest:
    return build_object(
        POD,
        name,
        metadata.pop("namespace", "default"),
        metadata={"uid": uid, "resourceVersion": str(version), **metadata},
    )


def owner(uid: str, *, controller: bool = True) -> dict[str, Any]:
    return {"uid": uid, "kind": "PodSet", "name": "web", "controller": controller}


def test_older_version_is_ignored() -> None:
    store = Store(POD)
    store.put(build_pod(version=5, labels={"a": "new"}))

    assert store.put(build_pod(version=4, labels={"a": "old"})) is None
    assert store.list()[0]["metadata"]["labels"] == {"a": "new"}


def test_version_that_changes_nothing_else_is_no_change() -> None:
    store = Store(POD)
    store.put(build_pod(version=1))

    assert store.put(build_pod(version=2)) is None
    held = store.get(KEY)
    assert held is not None
    assert held["metadata"]["resourceVersion"] == "2"


def test_own_write_is_read_and_its_event_is_no_change() -> None:
    store = Store(POD)
    response = build_pod(version=7, labels={"made": "here"})
    store.put(response)

    assert store.put(response) is None


def test_event_of_a_deleted_object_does_not_bring_it_back() -> None:
    store = Store(POD)
    store.put(build_pod(version=1))
    store.remove(KEY, "u1")

    assert store.put(build_pod(version=9)) is None
    assert len(store) == 0


def test_object_that_lost_its_label_and_got_it_back_is_seen_again() -> None:
    store = Store(POD)
    store.put(build_pod(version=1))
    store.remove(KEY, "u1", 5)

    assert store.put(build_pod(version=4)) is None
    assert store.put(build_pod(version=6)) is not None


def test_deletion_of_an_earlier_incarnation_leaves_the_present_one() -> None:
    store = Store(POD)
    store.put(build_pod(version=1, uid="u1"))
    store.put(build_pod(version=5, uid="u2"))

    assert store.remove(KEY, "u1", 3) is None
    assert store.get(KEY) is not None
    assert store.put(build_pod(version=2, uid="u1")) is None, "the dead stay dead"


def test_deletion_that_is_older_than_our_write_is_ignored() -> None:
    store = Store(POD)
    store.put(build_pod(version=9))

    assert store.remove(KEY, "u1", 5) is None
    assert len(store) == 1


def test_listing_drops_what_it_lacks_but_not_what_was_written_since() -> None:
    store = Store(POD)
    store.put(build_pod("old", version=3, uid="a"))
    store.put(build_pod("written", version=12, uid="b"))

    changes = fill_store(store, [build_pod("new", version=8, uid="c")], version=10)

    assert {change.key.name: change.new is None for change in changes} == {
        "new": False,
        "old": True,
    }
    assert sorted(key.name for key in store) == ["new", "written"]


def test_listing_of_one_namespace_leaves_the_others() -> None:
    store = Store(POD)
    store.put(build_pod("here", version=1, uid="a", namespace="one"))
    store.put(build_pod("there", version=1, uid="b", namespace="two"))

    fill_store(store, [], version=5, namespace="one")

    assert [key.namespace for key in store] == ["two"]


def test_children_are_found_by_the_uid_of_their_controller_alone() -> None:
    store = Store(POD)
    store.put(build_pod("mine", uid="a", ownerReferences=[owner("set-1")]))
    store.put(build_pod("namesake", uid="b", ownerReferences=[owner("set-0")]))
    store.put(build_pod("friend", uid="c", ownerReferences=[owner("set-1", controller=False)]))

    assert [pod["metadata"]["name"] for pod in store.owned_by("set-1")] == ["mine"]


def test_child_that_changes_its_owner_moves_in_the_index() -> None:
    store = Store(POD)
    store.put(build_pod(version=1, ownerReferences=[owner("one")]))
    store.put(build_pod(version=2, ownerReferences=[owner("two")]))

    assert store.owned_by("one") == []
    assert len(store.owned_by("two")) == 1


def test_index_follows_changes_and_deletions() -> None:
    store = Store(POD)
    store.put(build_pod(version=1, labels={"app": "x"}))
    store.add_index("app", lambda pod: (pod["metadata"].get("labels") or {}).values())
    assert len(store.indexed("app", "x")) == 1

    store.put(build_pod(version=2, labels={"app": "y"}))
    assert (len(store.indexed("app", "x")), len(store.indexed("app", "y"))) == (0, 1)

    store.remove(KEY, "u1", 3)
    assert store.indexed("app", "y") == []


def test_noise_is_not_kept() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "keep": "me"}

    kept = strip_noise(build_pod(managedFields=[{}], annotations=annotations))

    assert kept["metadata"]["annotations"] == {"keep": "me"}
    assert "managedFields" not in kept["metadata"]


EVENTS = st.lists(
    st.tuples(st.sampled_from(["create", "update", "delete"]), st.sampled_from(["a", "b"])),
    max_size=12,
)


@given(EVENTS, st.randoms(use_true_random=False), st.lists(st.integers(0, 11), max_size=6))
def test_any_order_and_repetition_of_old_events_leads_to_the_same_end(
    history: list[tuple[str, str]], rng: Any, repeats: list[int]
) -> None:
    """The truth in order, with any prefix of it told again at any time, ends in the truth."""
    alive, counter = dict[str, Manifest](), 0
    reported: list[tuple[str, Manifest]] = []
    for version, (action, name) in enumerate(history, start=1):
        if action == "create" and name not in alive:
            counter += 1
            alive[name] = build_pod(name, version, f"uid-{counter}")
            reported.append(("put", alive[name]))
        elif action == "update" and name in alive:
            uid = alive[name]["metadata"]["uid"]
            alive[name] = build_pod(name, version, uid, labels={"v": str(version)})
            reported.append(("put", alive[name]))
        elif action == "delete" and name in alive:
            gone = alive.pop(name)
            uid = gone["metadata"]["uid"]
            reported.append(("remove", build_pod(name, version, uid)))
    store = Store(POD)
    for position, (what, manifest) in enumerate(reported):
        _tell(store, what, manifest)
        if position in repeats and position:
            _tell(store, *reported[rng.randrange(position + 1)])

    assert {key.name: store.get(key) for key in store} == alive


def _tell(store: Store, what: str, manifest: Manifest) -> None:
    metadata = manifest["metadata"]
    if what == "put":
        store.put(manifest)
    else:
        key = Key(metadata["namespace"], metadata["name"])
        store.remove(key, metadata["uid"], int(metadata["resourceVersion"]))


def test_objects_without_uid_or_version_come_change_and_go() -> None:
    """Aggregated APIs such as metrics.k8s.io return neither."""
    store = Store(CONFIG_MAP)
    one, two = (build_object(CONFIG_MAP, name, "default") for name in ("one", "two"))
    fill_store(store, [one, two], 0)

    assert store.put({**one, "data": {"a": "b"}}) is not None
    assert [change.key.name for change in fill_store(store, [one], 0) if change.new is None] == [
        "two"
    ]
    assert store.remove(key_of(one), "") is not None
    assert store.put(one) is not None, "another object came"


@pytest.mark.parametrize(
    "entry",
    [None, "x", {}, {"fieldsV1": "x"}, {"fieldsV1": {"f:spec": "x"}}]
    + [{"fieldsV1": {"f:spec": {"f:containers": {key: {}}}}} for key in ("k:", "k:[1]", "k:{", "")],
)
def test_odd_managed_fields_are_dropped(entry: object) -> None:
    """A server of an aggregated API may send anything."""
    annotations = {APPLIED_HASH: "x"}
    kept = strip_noise(build_pod(managedFields=[entry], annotations=annotations))

    assert "managedFields" not in kept["metadata"]
