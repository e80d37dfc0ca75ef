"""Namespaces that a label selector chooses come and go at run time."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import pytest
from structlog.testing import capture_logs

from libs.common.client import Client
from libs.common.kinds import CONFIG_MAP, NAMESPACE, Key, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.common.testing.widget import CONDITIONS, FINALIZER, OPERATOR, WIDGET, build_widget


@pytest.fixture
def api(fake_api: FakeApi) -> FakeApi:
    fake_api.register(WIDGET, CONDITIONS)
    for name, labels in (("a", {"tenant": "yes"}), ("b", {"tenant": "yes"}), ("c", {})):
        fake_api.create(build_object(NAMESPACE, name, metadata={"labels": labels}))
        fake_api.create(build_widget("w", name))
    return fake_api


CRD_OF_WIDGETS = build_crd(WIDGET, CONDITIONS, ())


def build_harness(api: FakeApi, **settings: Any) -> OperatorHarness:
    options = {"watch_namespace_selector": "tenant=yes", **settings}
    return OperatorHarness(OPERATOR, api.config, **options)


def label(api: FakeApi, namespace: str, value: str | None) -> None:
    api.patch(NAMESPACE, Key("", namespace), {"metadata": {"labels": {"tenant": value}}})


def count_children(api: FakeApi, namespace: str) -> int:
    return len(api.objects(CONFIG_MAP, namespace))


async def test_only_selected_namespaces_are_listed_and_reconciled(api: FakeApi) -> None:
    async with build_harness(api) as harness:
        await harness.eventually(lambda: count_children(api, "a") == count_children(api, "b") == 2)
        await harness.converged()

    assert count_children(api, "c") == 0
    paths = {each.path for each in api.requests if each.plural == CONFIG_MAP.plural}
    assert CONFIG_MAP.path() not in paths, "a list of all namespaces"


async def test_namespace_is_reconciled_once_it_has_the_label(api: FakeApi) -> None:
    async with build_harness(api) as harness:
        label(api, "c", "yes")
        await harness.eventually(lambda: count_children(api, "c") == 2)
        assert harness.metric("operator_cache_scope_up", watched_namespace="c") == 1

        api.create(build_object(NAMESPACE, "d", metadata={"labels": {"tenant": "yes"}}))
        api.create(build_widget("w", "d"))
        await harness.eventually(lambda: count_children(api, "d") == 2)


async def test_namespace_without_its_label_is_left_alone(api: FakeApi) -> None:
    async with build_harness(api) as harness:
        await harness.converged()
        label(api, "b", None)
        await harness.eventually(
            lambda: harness.metric("operator_cache_scope_up", watched_namespace="b") == 0
        )
        children = api.objects(CONFIG_MAP, "b")
        api.create(build_widget("late", "b"))
        api.create(build_widget("late", "a"))
        await harness.eventually(lambda: count_children(api, "a") == 4)

        assert api.objects(CONFIG_MAP, "b") == children, "neither more nor less"
        assert FINALIZER in api.get(WIDGET, Key("b", "w"))["metadata"]["finalizers"]


async def test_operator_without_any_selected_namespace_waits_for_one(api: FakeApi) -> None:
    for name in ("a", "b"):
        label(api, name, None)
    async with build_harness(api) as harness:
        assert count_children(api, "a") == 0
        label(api, "a", "yes")
        await harness.eventually(lambda: count_children(api, "a") == 2)


async def test_namespace_that_is_being_deleted_is_finished(api: FakeApi) -> None:
    async with build_harness(api) as harness:
        await harness.converged()
        api.delete(NAMESPACE, Key("", "b"))
        await harness.eventually(lambda: not api.objects(WIDGET, "b"))


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have room for two namespaces with two kinds each."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (105, 105))


async def test_namespaces_beyond_the_limit_of_open_files_are_left_out_and_named(
    api: FakeApi, few_files: None
) -> None:
    """Without a limit, no watch works any more: each is refused with "Too many open files"."""
    with capture_logs() as logs:
        async with build_harness(api) as harness:
            await harness.converged()
            label(api, "c", "yes")
            wanted = {"event": "Cannot watch all selected namespaces", "left_out": 1}
            await harness.eventually(lambda: any(wanted.items() <= each.items() for each in logs))
            api.create(build_widget("late", "b"))
            await harness.eventually(lambda: count_children(api, "b") == 4)
            assert count_children(api, "c") == 0
            (reason,) = {each["reason"] for each in logs if "left_out" in each}
            assert reason == (
                "3 namespaces with 2 watched kinds need 106 open files, but the limit is 105; "
                "raise it (ulimit -n), watch fewer namespaces, or watch the whole cluster"
            )

            label(api, "a", None)
            api.patch(NAMESPACE, Key("", "c"), {"metadata": {"labels": {"other": "x"}}})
            await harness.eventually(lambda: count_children(api, "c") == 2)


async def test_list_of_namespaces_beyond_the_limit_of_open_files_is_refused(
    api: FakeApi, few_files: None
) -> None:
    harness = OperatorHarness(OPERATOR, api.config, watch_namespaces=("a", "b", "c"))
    with capture_logs() as logs:
        assert not await harness.manager.run(asyncio.Event())
    assert any("need 106 open files" in each.get("reason", "") for each in logs)
    assert not api.requests.select("list", WIDGET)
    await harness.client.close()


def test_selector_that_cannot_be_parsed_and_two_ways_to_choose_are_refused() -> None:
    with pytest.raises(ValueError, match="Cannot parse the selector"):
        OPERATOR.settings(watch_namespace_selector="a in b")
    with pytest.raises(ValueError, match="are mutually exclusive"):
        OPERATOR.settings(watch_namespace_selector="a=b", watch_namespaces=("x",))


async def test_excluded_namespaces_are_neither_read_nor_reconciled(api: FakeApi) -> None:
    settings: dict[str, Any] = {
        "watch_namespaces": ("*",),
        "watch_excluded_namespaces": ("c", "kube-system"),
    }
    async with OperatorHarness(OPERATOR, api.config, **settings) as harness:
        await harness.converged()
        assert count_children(api, "a") == count_children(api, "b") == 2
        mark = api.mark()
        api.create(build_widget("late", "c"))
        api.create(build_widget("late", "a"))
        await harness.converged()
        await harness.restart()
        await harness.converged()

    assert count_children(api, "c") == 0
    assert FINALIZER not in api.get(WIDGET, Key("c", "late"))["metadata"].get("finalizers", [])
    reads = [each for each in list(api.requests)[mark:] if each.verb in ("list", "watch")]
    read = {each.plural: each.query.get("fieldSelector", "") for each in reads}
    wanted = "metadata.namespace!=c,metadata.namespace!=kube-system"
    assert wanted in read[WIDGET.plural]
    assert wanted in read[CONFIG_MAP.plural]


def test_namespaces_can_be_excluded_only_from_the_whole_cluster() -> None:
    with pytest.raises(ValueError, match="watch_namespace_selector"):
        OPERATOR.settings(watch_excluded_namespaces=("x",), watch_namespaces=("a",))
    with pytest.raises(ValueError, match="watch_excluded_namespaces"):
        OPERATOR.settings(watch_excluded_namespaces=("*",), watch_namespaces=("*",))
    settings = OPERATOR.settings(watch_excluded_namespaces=("y", "x"), watch_namespaces=("*",))
    assert settings.excluded_fields == "metadata.namespace!=x,metadata.namespace!=y"


@pytest.mark.apiserver
async def test_api_server_leaves_out_excluded_namespaces(
    kube_client: Client, kube_namespace: str
) -> None:
    await serve(kube_client, CRD_OF_WIDGETS)
    place = kube_namespace
    await kube_client.create(WIDGET, build_widget("w", place))
    await kube_client.create(CONFIG_MAP, build_object(CONFIG_MAP, "c", place))
    for kind in (WIDGET, CONFIG_MAP):
        every = (await kube_client.list(kind)).items
        rest = (await kube_client.list(kind, field_selector=f"metadata.namespace!={place}")).items
        assert place in {each["metadata"]["namespace"] for each in every}
        assert place not in {each["metadata"]["namespace"] for each in rest}
