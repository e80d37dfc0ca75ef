"""The permissions in a namespace stay until no object there needs the operator any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.kinds import EVENT, ROLE_BINDING, Key, build_object
from libs.common.runtime.release import BINDING_FINALIZER
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.widget import CONDITIONS, FINALIZER, OPERATOR, WIDGET, build_widget

NAME = "widgets-watched"
BINDING = Key("tenant", NAME)


@pytest.fixture
def api(fake_api: FakeApi) -> FakeApi:
    fake_api.register(WIDGET, CONDITIONS)
    fake_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}})
    role = {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": NAME}
    fake_api.create(build_object(ROLE_BINDING, NAME, "tenant", roleRef=role, subjects=[]))
    return fake_api


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    async with build_harness(api) as running:
        yield running


def build_harness(api: FakeApi, **settings: Any) -> OperatorHarness:
    options = {"watch_namespaces": ("tenant",), "role_binding": NAME, **settings}
    return OperatorHarness(OPERATOR, api.config, **options)


def list_finalizers(api: FakeApi, key: Key = BINDING) -> list[str]:
    """Return the finalizers of the RoleBinding."""
    found: list[str] = api.get(ROLE_BINDING, key)["metadata"].get("finalizers") or []
    return found


def list_writes(api: FakeApi) -> list[str]:
    """Return the plurals of what was patched, in order."""
    return [each.plural for each in api.requests if each.method == "PATCH"]


async def test_binding_is_held_before_the_first_object_and_let_go_after_the_last(
    api: FakeApi, harness: OperatorHarness
) -> None:
    assert list_finalizers(api) == []
    for name in ("a", "b"):
        api.create(build_widget(name, "tenant"))
    await harness.converged()
    assert list_writes(api)[0] == ROLE_BINDING.plural, "before any object has a finalizer"
    assert list_finalizers(api) == [BINDING_FINALIZER]

    api.delete(WIDGET, Key("tenant", "a"))
    await harness.converged()
    assert list_finalizers(api) == [BINDING_FINALIZER], "the other object has its finalizer"

    api.delete(WIDGET, Key("tenant", "b"))
    await harness.eventually(lambda: list_finalizers(api) == [])


async def test_finalizer_that_a_crash_left_on_the_binding_is_removed(api: FakeApi) -> None:
    patch = {"metadata": {"finalizers": [BINDING_FINALIZER, "example.com/other"]}}
    api.patch(ROLE_BINDING, BINDING, patch)
    async with build_harness(api) as harness:
        await harness.eventually(lambda: list_finalizers(api) == ["example.com/other"])


async def test_no_finalizer_is_added_to_an_object_once_the_binding_is_being_deleted(
    api: FakeApi,
) -> None:
    api.patch(ROLE_BINDING, BINDING, {"metadata": {"finalizers": ["example.com/other"]}})
    api.delete(ROLE_BINDING, BINDING)
    async with build_harness(api) as harness:
        api.create(build_widget("late", "tenant"))
        await harness.eventually(lambda: harness.failing)
        held = api.get(WIDGET, Key("tenant", "late"))["metadata"].get("finalizers") or []

    assert FINALIZER not in held


async def test_operator_works_without_the_binding_that_it_was_told_of(api: FakeApi) -> None:
    async with build_harness(api, role_binding="misspelled") as harness:
        api.create(build_widget("a", "tenant"))
        await harness.converged()

    assert FINALIZER in api.get(WIDGET, Key("tenant", "a"))["metadata"]["finalizers"]


async def test_binding_that_comes_after_the_first_object_is_held_for_the_next_one(
    api: FakeApi,
) -> None:
    binding = api.get(ROLE_BINDING, BINDING)
    api.delete(ROLE_BINDING, BINDING)
    async with build_harness(api) as harness:
        api.create(build_widget("a", "tenant"))
        await harness.converged()
        api.create(build_object(ROLE_BINDING, NAME, "tenant", roleRef=binding["roleRef"]))
        api.create(build_widget("b", "tenant"))
        await harness.converged()

        assert list_finalizers(api) == [BINDING_FINALIZER]


async def test_binding_that_was_removed_on_purpose_is_let_go_at_the_end(api: FakeApi) -> None:
    """An upgrade took the namespace off the list; the next process does not look there."""
    async with build_harness(api) as harness:
        api.create(build_widget("a", "tenant"))
        await harness.converged()
        api.delete(ROLE_BINDING, BINDING)
        assert list_finalizers(api) == [BINDING_FINALIZER]

    assert BINDING not in {
        Key(each["metadata"]["namespace"], each["metadata"]["name"])
        for each in api.objects(ROLE_BINDING)
    }


async def test_probe_for_a_deletion_of_the_own_namespace_stores_nothing(api: FakeApi) -> None:
    async with build_harness(api, role_binding="", pod_namespace="tenant") as harness:
        api.create(build_widget("a", "tenant"))
        await harness.converged()

    assert FINALIZER in api.get(WIDGET, Key("tenant", "a"))["metadata"]["finalizers"]
    assert not [each for each in api.objects(EVENT) if each["reason"] == "Probe"]
