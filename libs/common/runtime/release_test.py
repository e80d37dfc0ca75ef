"""Release: everything is let go, nothing else is changed, and again is no harm."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.errors import ApiError, Forbidden
from libs.common.kinds import LEASE, Key, Kind, Manifest, build_object
from libs.common.runtime.release import release
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until
from libs.common.testing.widget import FINALIZER, WIDGET, Settings, build_widget

THEIRS = "example.com/theirs"
GADGET = Kind("test.slipway.dev", "v1", "Gadget", "gadgets")
LEASE_KEY = Key("default", "widget")


def build_settings(**options: object) -> Settings:
    defaults = {"renew_deadline_seconds": 0.05, "retry_period_seconds": 0.01}
    return Settings.model_validate({**defaults, **options})


def held(name: str = "w", namespace: str = "default", *finalizers: str) -> Manifest:
    widget = build_widget(name, namespace)
    widget["metadata"]["finalizers"] = list(finalizers or (FINALIZER, THEIRS))
    return widget


def lease(holder: str) -> Manifest:
    return build_object(
        LEASE,
        "widget",
        "default",
        spec={"holderIdentity": holder, "leaseTransitions": 4, "leaseDurationSeconds": 15},
    )


async def let_go(api: FakeApi, *kinds: Kind, **options: object) -> int:
    targets = [(kind, FINALIZER) for kind in kinds or (WIDGET,)]
    return await release("widget", build_settings(**options), api.config, targets)


@pytest.fixture
def api(fake_api: FakeApi) -> FakeApi:
    fake_api.register(WIDGET)
    return fake_api


def finalizers(api: FakeApi, name: str = "w", namespace: str = "default") -> list[str]:
    return list(api.get(WIDGET, (namespace, name))["metadata"].get("finalizers") or ())


async def test_only_our_finalizer_is_taken_off_and_again_is_no_harm(api: FakeApi) -> None:
    api.create(held())
    api.create(held("other", "default", THEIRS))

    assert await let_go(api) == 1
    assert await let_go(api) == 0

    assert finalizers(api) == finalizers(api, "other") == [THEIRS]


async def test_namespaces_that_are_not_watched_are_left_alone(api: FakeApi) -> None:
    api.create(held())
    api.create(held("w", "elsewhere"))

    await let_go(api)
    assert finalizers(api, "w", "elsewhere") == [FINALIZER, THEIRS]

    assert await let_go(api, watch_namespaces=("*",), watch_excluded_namespaces=("elsewhere",)) == 0
    assert await let_go(api, watch_namespaces=("*",)) == 1


async def test_kind_that_is_gone_has_nothing_to_release(api: FakeApi) -> None:
    api.create(held())

    assert await let_go(api, GADGET, WIDGET) == 1


async def test_object_that_goes_meanwhile_does_not_hide_the_others(api: FakeApi) -> None:
    """The first is written and then deleted by others while it is being released."""
    for name in ("a", "b", "c"):
        api.create(held(name))
    api.fail("patch", WIDGET, status=409, name="a")
    api.fail("get", WIDGET, status=404, name="a", times=None)

    assert await let_go(api) == 2

    assert finalizers(api, "b") == finalizers(api, "c") == [THEIRS]


async def test_object_that_others_write_is_tried_again(api: FakeApi) -> None:
    api.create(held())
    api.fail("patch", WIDGET, status=422, times=2)

    assert await let_go(api) == 1


async def test_object_that_others_write_all_the_time_is_told(api: FakeApi) -> None:
    api.create(held())
    api.fail("patch", WIDGET, status=409, times=None)

    with pytest.raises(ApiError, match="run the command again"):
        await let_go(api)


async def test_refusal_is_told(api: FakeApi) -> None:
    api.create(held())
    api.fail("patch", WIDGET, status=403, times=None)

    with pytest.raises(Forbidden):
        await let_go(api)


async def test_lease_is_held_before_the_first_finalizer_goes(api: FakeApi) -> None:
    api.create(held())
    api.create(lease("somebody"))

    await let_go(api)

    assert [each.kind for each in api.writes()] == [LEASE, WIDGET]
    spec = api.get(LEASE, LEASE_KEY)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("release", 5)


async def test_leader_has_the_time_of_its_deadline_to_stop(api: FakeApi) -> None:
    api.create(held())
    api.create(lease("somebody"))
    loop = asyncio.get_running_loop()
    started = loop.time()

    await let_go(api, renew_deadline_seconds=0.2)

    assert loop.time() - started >= 0.2


async def test_lease_that_nobody_holds_is_not_waited_for(api: FakeApi) -> None:
    api.create(held())
    api.create(lease(""))

    task = asyncio.create_task(let_go(api, renew_deadline_seconds=14))
    await until(task.done, "the release does not wait")

    assert api.get(LEASE, LEASE_KEY)["spec"]["holderIdentity"] == "release"


async def test_lease_that_is_renewed_in_between_is_taken_all_the_same(api: FakeApi) -> None:
    api.create(held())
    api.create(lease("somebody"))
    api.fail("update", LEASE, status=409, times=3)

    await let_go(api)

    assert api.get(LEASE, LEASE_KEY)["spec"]["holderIdentity"] == "release"


async def test_without_election_no_lease_is_touched(api: FakeApi) -> None:
    api.create(held())
    api.create(lease("somebody"))

    await let_go(api, leader_elect=False)

    assert [each for each in api.requests if each.kind == LEASE] == []
