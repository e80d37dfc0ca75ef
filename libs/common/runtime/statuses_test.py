"""What of a status is written: nothing that is empty, and nothing of before that is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.errors import Invalid, NotFound
from libs.common.kinds import CRD, Key, Kind, Manifest, build_object
from libs.common.runtime import Context, Result
from libs.common.runtime.statuses import drop_empty
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd
from libs.common.testing.script import Script, running
from libs.common.testing.widget import WIDGET, build_widget

_WAIT_SECONDS: Final = 20.0
THING = Kind("statuses.example.com", "v1", "Thing", "things")
TEXTS: Manifest = {"type": "array", "items": {"type": "string"}}
NAMED: Manifest = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}},
}
SCHEMA: Manifest = {
    "type": "object",
    "properties": {
        "status": {
            "type": "object",
            "properties": {
                "atomic": {**TEXTS, "x-kubernetes-list-type": "atomic"},
                "set": {**TEXTS, "x-kubernetes-list-type": "set"},
                "map": {
                    "type": "array",
                    "items": NAMED,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "below": {"type": "object", "properties": {"list": TEXTS}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "count": {"type": "integer"},
            },
        }
    },
}
FULL: Manifest = {
    "atomic": ["a"],
    "set": ["a"],
    "map": [{"name": "a"}],
    "below": {"list": ["a"]},
    "labels": {"a": "b"},
    "count": 1,
}
EMPTY: Manifest = {
    "atomic": [],
    "set": [],
    "map": [],
    "below": {"list": []},
    "labels": {},
    "count": 0,
}


def test_empty_lists_and_maps_are_left_out_and_nothing_else() -> None:
    status = {**EMPTY, "text": "", "flag": False, "items": [{"name": "a", "held": []}]}

    assert drop_empty(status) == {
        "count": 0,
        "text": "",
        "flag": False,
        "items": [{"name": "a"}],
    }


async def test_list_that_was_shown_goes_when_it_is_empty(fake_api: FakeApi) -> None:
    async def show(context: Context) -> Result | None:
        names = context.primary["spec"]["text"].split()
        await context.apply_status({"count": len(names), "names": names})
        return None

    async with running(fake_api, Script(show)) as harness:
        fake_api.create(build_widget(text="a b"))
        await harness.settled()
        assert fake_api.get(WIDGET, Key("default", "w"))["status"]["names"] == ["a", "b"]
        fake_api.patch(WIDGET, Key("default", "w"), {"spec": {"text": ""}})
        await harness.settled()

        assert fake_api.get(WIDGET, Key("default", "w"))["status"] == {"count": 0}


@pytest.mark.apiserver
async def test_api_server_takes_away_what_is_left_out(
    kube_client: Client, kube_namespace: str
) -> None:
    await kube_client.apply(CRD, build_crd(THING, SCHEMA, ("status",)), field_manager="test")
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            try:
                await kube_client.create(THING, build_object(THING, "a", kube_namespace))
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                break

    async def show(status: Manifest) -> Any:
        manifest = build_object(THING, "a", kube_namespace, status=status)
        answer = await kube_client.apply(
            THING, manifest, field_manager="things-status", subresource="status"
        )
        return answer["status"]

    assert await show(FULL) == FULL
    # Why empty maps must not be sent.
    with pytest.raises(Invalid, match="labels"):
        await show({**FULL, "labels": {}})
    assert await show(drop_empty(EMPTY)) == {"count": 0}
