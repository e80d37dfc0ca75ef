"""Finalizers: patches that change exactly the version that was looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.client import Client
from libs.common.errors import Invalid
from libs.common.finalizers import (
    build_add_patch,
    build_remove_patch,
    has_finalizer,
    is_forced,
)
from libs.common.kinds import CONFIG_MAP, Key, Manifest, build_object
from libs.common.labels import FORCE_FINALIZE
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.patches import apply_json_patch

OURS = "slipway.dev/finalizer"
KEY = Key("default", "a")
HELD = st.lists(st.sampled_from([OURS, "example.com/a", "example.com/b"]), unique=True)


def build_marked(finalizers: list[str] | None = None, **metadata: object) -> Manifest:
    held = {} if finalizers is None else {"finalizers": finalizers}
    return build_object(CONFIG_MAP, "a", "default", metadata={**held, **metadata})


def build_live(finalizers: list[str] | None = None, **metadata: object) -> Manifest:
    return build_marked(finalizers, uid="u", resourceVersion="5", **metadata)


@given(HELD)
def test_finalizer_is_added_and_taken_off_and_the_others_stay(held: list[str]) -> None:
    before = build_live(held)

    added = apply_json_patch(before, build_add_patch(before, OURS))
    removed = apply_json_patch(added, build_remove_patch(added, OURS))

    assert sorted(added["metadata"]["finalizers"]) == sorted({*held, OURS})
    assert removed["metadata"]["finalizers"] == [each for each in held if each != OURS]
    assert build_add_patch(added, OURS) == []
    assert build_remove_patch(removed, OURS) == []


def test_first_finalizer_is_added_where_there_was_no_list() -> None:
    before = build_live()

    assert has_finalizer(apply_json_patch(before, build_add_patch(before, OURS)), OURS)


def test_object_that_is_being_deleted_gets_none() -> None:
    assert build_add_patch(build_live(deletionTimestamp="2026-01-01T00:00:00Z"), OURS) == []


@pytest.mark.parametrize(("value", "forced"), [("true", True), ("false", False), ("", False)])
def test_only_true_forces(value: str, forced: bool) -> None:
    assert is_forced(build_marked(annotations={FORCE_FINALIZE: value})) is forced
    assert not is_forced(build_marked())


async def test_server_refuses_the_patch_of_a_stale_look(
    fake_api: FakeApi, fake_client: Client
) -> None:
    stale = fake_api.create(build_marked(["example.com/a"]))
    fake_api.patch(CONFIG_MAP, KEY, {"metadata": {"finalizers": ["example.com/b"]}})

    with pytest.raises(Invalid):
        await fake_client.patch(CONFIG_MAP, KEY, build_add_patch(stale, OURS))

    assert fake_api.get(CONFIG_MAP, KEY)["metadata"]["finalizers"] == ["example.com/b"]


async def test_server_rejects_a_patch_for_another_uid(
    fake_api: FakeApi, fake_client: Client
) -> None:
    first = fake_api.create(build_marked())
    fake_api.vanish(CONFIG_MAP, KEY)
    second = fake_api.create(build_marked())
    mixed = {**first, "metadata": {**second["metadata"], "uid": first["metadata"]["uid"]}}

    with pytest.raises(Invalid):
        await fake_client.patch(CONFIG_MAP, KEY, build_add_patch(mixed, OURS))
