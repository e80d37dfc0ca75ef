"""Admission and aggregated APIs of the fake server: what clients get to see of them."""

from __future__ import annotations

import pytest

from libs.common.client import Client
from libs.common.errors import ApiError, Forbidden, TooManyRequests, UnknownOutcome
from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest
from libs.common.testing.fakeapi import FakeApi, Request, Review, StatusError

ACTIONS = "/apis/actions.example.com/v1/namespaces/default/things/a/restart"


def build_map(**data: str) -> Manifest:
    metadata = {"name": "a", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_write_that_a_webhook_refuses_is_not_stored(
    fake_api: FakeApi, fake_client: Client
) -> None:
    def refuse_bad(review: Review) -> None:
        if review.new.get("data") == {"is": "bad"}:
            raise StatusError(403, "Forbidden", f"{review.operation} {review.key} denied")

    fake_api.admit(refuse_bad)
    with pytest.raises(Forbidden, match="CREATE default/a denied"):
        await fake_client.create(CONFIG_MAP, build_map(**{"is": "bad"}))
    await fake_client.create(CONFIG_MAP, build_map(**{"is": "good"}))
    with pytest.raises(Forbidden, match="UPDATE default/a denied"):
        await fake_client.patch(CONFIG_MAP, Key("default", "a"), {"data": {"is": "bad"}})

    assert fake_api.get(CONFIG_MAP, ("default", "a"))["data"] == {"is": "good"}


async def test_eviction_is_asked_about_too(fake_api: FakeApi, fake_client: Client) -> None:
    def hold(review: Review) -> None:
        if review.subresource == "eviction":
            raise StatusError(429, "TooManyRequests", "not now", retry_after=0)

    fake_api.admit(hold)
    metadata = {"name": "a", "namespace": "default"}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    fake_api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}

    with pytest.raises(TooManyRequests):
        await fake_client.raw("POST", POD.path("default", "a", "eviction"), body)

    assert fake_api.find(POD, ("default", "a")) is not None


async def test_requests_for_another_group_go_to_its_server(
    fake_api: FakeApi, fake_client: Client
) -> None:
    asked: list[Request] = []

    async def act(request: Request) -> tuple[int, Manifest | None]:
        asked.append(request)
        return (202, None) if len(asked) == 1 else (409, {"kind": "Status", "reason": "Conflict"})

    fake_api.aggregate("actions.example.com", "v1", act)
    await fake_client.raw("PUT", ACTIONS, {"now": True})
    with pytest.raises(ApiError):
        await fake_client.raw("PUT", ACTIONS)

    assert (asked[0].key, asked[0].subresource) == (Key("default", "a"), "restart")
    assert asked[0].body == {"now": True}


async def test_answer_of_another_server_can_be_lost(fake_api: FakeApi, fake_client: Client) -> None:
    """It has acted by then, which the client cannot know."""
    done: list[str] = []

    async def act(request: Request) -> tuple[int, Manifest | None]:
        done.append(request.key.name)
        return 202, None

    fake_api.aggregate("actions.example.com", "v1", act)
    fake_api.fail("PUT", lost_response=True, where=lambda request: request.path == ACTIONS)

    with pytest.raises(UnknownOutcome):
        await fake_client.raw("PUT", ACTIONS)
    assert done == ["a"]
