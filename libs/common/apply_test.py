"""Whether an apply is needed, compared with what an API server stores."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.apply import build_desired, desired_hash, find_drift, is_applied, shows
from libs.common.client import Client
from libs.common.kinds import Key, Kind, Manifest, build_object
from libs.common.labels import APPLIED_HASH
from libs.common.testing.fakeapi import FakeApi

THING = Kind("test.slipway.dev", "v1", "Thing", "things")
_numbers = itertools.count()


def build_thing(name: str, spec: Manifest) -> Manifest:
    return build_object(THING, name, "default", spec=spec)


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({}, {"a": None, "b": "", "c": [], "d": {}}),
        ({"a": {"set": "by the server"}}, {"a": {}}),
        ({"requests": {"storage": "1Gi"}}, {"requests": {"storage": "1024Mi"}}),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "1000m"}}),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": 2}}),
        (
            {"containers": [{"name": "b"}, {"name": "a", "image": "x", "tty": False}]},
            {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
        ),
        ({"args": ["a", "b"]}, {"args": ["a", "b"]}),
    ],
)
def test_what_is_asked_for_is_there(live: Manifest, desired: Manifest) -> None:
    assert shows(live, desired)


@pytest.mark.parametrize(
    ("live", "desired", "path"),
    [
        ({"a": 1}, {"a": 2}, "a"),
        ({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}, "a.b"),
        ({"args": ["b", "a"]}, {"args": ["a", "b"]}, "args[0]"),
        ({"a": "kept"}, {"a": ""}, "a"),
        ({"a": ["kept"]}, {"a": []}, "a"),
        ({"a": 1}, {"a": True}, "a"),
        ({"a": "text"}, {"a": {"b": 1}}, "a"),
        ({"a": "ab"}, {"a": ["a", "b"]}, "a"),
        ({"requests": {"storage": "1Gi"}}, {"requests": {"storage": "2Gi"}}, "requests.storage"),
        ({"data": {"size": "1Gi"}}, {"data": {"size": "1024Mi"}}, "data.size"),
        (
            {"containers": [{"name": "a", "image": "x"}]},
            {"containers": [{"name": "a", "image": "y"}]},
            "containers[a].image",
        ),
        ({"containers": [{"name": "b"}]}, {"containers": [{"name": "a"}]}, "containers[a]"),
    ],
)
def test_what_differs_is_named(live: Manifest, desired: Manifest, path: str) -> None:
    assert path in find_drift(live, desired)


def test_what_is_sent_lacks_what_only_the_server_sets() -> None:
    manifest = build_thing("a", {"x": 1})
    manifest["metadata"] |= {"resourceVersion": "7", "managedFields": [], "generation": 2}
    manifest["status"] = {"ready": True}

    desired = build_desired(manifest)

    assert desired["metadata"].keys() == {"name", "namespace", "annotations"}
    assert "status" not in desired
    assert manifest["metadata"]["resourceVersion"] == "7", "the argument is left alone"


def test_hash_follows_the_content_and_not_itself() -> None:
    once = build_desired(build_thing("a", {"x": 1, "y": 2}))

    assert build_desired(once) == once
    assert build_desired(build_thing("a", {"y": 2, "x": 1})) == once
    other = build_desired(build_thing("a", {"x": 1}))
    assert other["metadata"]["annotations"] != once["metadata"]["annotations"]
    assert desired_hash({"a": 1}) != desired_hash({"a": "1"})


def test_field_that_is_asked_for_no_longer_needs_an_apply() -> None:
    live = build_desired(build_thing("a", {"x": 1, "y": 2}))

    assert is_applied(live, live, "test")
    assert not is_applied(live, build_desired(build_thing("a", {"x": 1})), "test")


def test_annotations_of_others_do_not_matter() -> None:
    desired = build_desired(build_thing("a", {}))
    annotations = {**desired["metadata"]["annotations"], "theirs": "x"}
    live = {**desired, "metadata": {**desired["metadata"], "annotations": annotations}}

    assert is_applied(live, desired, "test")
    assert desired["metadata"]["annotations"].keys() == {APPLIED_HASH}


SCALARS = st.sampled_from(["", "x", "y", 0, 1, True, False])
NAMES = st.sampled_from(["a", "b", "c"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
SPECS = st.dictionaries(NAMES, VALUES, max_size=3)


def drop_empty(value: Any) -> Any:
    """Drop empty members, which the server drops or keeps as it likes."""
    if isinstance(value, dict):
        cleaned = {name: drop_empty(member) for name, member in value.items()}
        return {name: member for name, member in cleaned.items() if member not in ("", [], {})}
    return value


def typed(value: Any) -> Any:
    """Make true and 1 differ in a comparison."""
    if isinstance(value, dict):
        return {name: typed(member) for name, member in value.items()}
    if isinstance(value, list):
        return [typed(member) for member in value]
    return (type(value).__name__, value)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(live=SPECS, desired=SPECS)
async def test_server_and_comparison_agree(
    fake_api: FakeApi, fake_client: Client, live: Manifest, desired: Manifest
) -> None:
    """After an apply nothing drifts, and if nothing drifts, an apply changes nothing."""
    if fake_api.registry.find(THING.group, THING.version, THING.plural) is None:
        fake_api.register(THING)
    name = f"t{next(_numbers)}"
    before = fake_api.create(build_thing(name, live))
    drift = find_drift(before["spec"], desired)

    after = await fake_client.apply(THING, build_thing(name, desired), field_manager="me")

    assert find_drift(after["spec"], desired) == []
    if not drift:
        assert typed(drop_empty(after["spec"])) == typed(drop_empty(before["spec"]))
    assert fake_api.get(THING, Key("default", name))["spec"] == after["spec"]
