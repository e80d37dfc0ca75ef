"""A client with a limit reads no more than that from a server that others control."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable

import orjson
import pytest
from aiohttp import web

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import SlipwayError, UnknownOutcome, Unreachable
from libs.common.kinds import CONFIG_MAP, NODE, Key, build_object
from libs.common.transport_answers_test import serving

LIMIT = 100_000
KEY = Key("default", "a")

type Answer = Callable[[web.BaseRequest], web.Response]


def answer_with(body: bytes, **headers: str) -> Answer:
    """Build a server that returns the same body for each request."""
    return lambda _: web.Response(
        body=body, headers={"Content-Type": "application/json", **headers}
    )


def pages(_: web.BaseRequest) -> web.Response:
    """Return a page of a list that never ends."""
    node = build_object(NODE, "n", spec={"providerID": "x" * 1_000})
    return web.Response(body=orjson.dumps({"items": [node], "metadata": {"continue": "more"}}))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answer_with(b'{"a": "%s"}' % (b"x" * LIMIT)), id="long"),
        pytest.param(
            answer_with(
                gzip.compress(b'{"a": "%s"}' % (b"x" * 10_000_000)), **{"Content-Encoding": "gzip"}
            ),
            id="compressed",
        ),
        pytest.param(answer_with(b'{"items": [%s{}]}' % (b"{}," * 20_000)), id="many values"),
        pytest.param(pages, id="pages without end"),
    ],
)
async def test_response_over_the_limit_counts_as_no_response(answer: Answer) -> None:
    async with (
        serving(answer) as url,
        Client(ConnectionConfig(url), read_limit=LIMIT) as client,
    ):
        with pytest.raises(Unreachable, match=f"more than {LIMIT} bytes"):
            await client.list(NODE)


async def test_write_with_a_response_over_the_limit_has_an_unknown_outcome() -> None:
    answer = answer_with(b'{"a": "%s"}' % (b"x" * LIMIT))
    async with serving(answer) as url, Client(ConnectionConfig(url), read_limit=LIMIT) as client:
        with pytest.raises(UnknownOutcome, match="more than"):
            await client.patch(CONFIG_MAP, KEY, {"data": {"a": "b"}})


async def test_limit_holds_for_each_request_and_not_for_all_of_them() -> None:
    answer = answer_with(b'{"kind": "ConfigMap", "a": "%s"}' % (b"x" * (LIMIT - 100)))
    async with serving(answer) as url, Client(ConnectionConfig(url), read_limit=LIMIT) as client:
        for _ in range(3):
            assert (await client.get(CONFIG_MAP, KEY))["kind"] == "ConfigMap"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"3",
        b"[" * 100_000,
        b'{"items": 3, "metadata": 4}',
        b'{"items": [3, null, []], "metadata": {"continue": 7}}',
    ],
)
async def test_list_of_another_shape_is_no_error_of_the_program(body: bytes) -> None:
    async with serving(answer_with(body)) as url, Client(ConnectionConfig(url)) as client:
        with contextlib.suppress(SlipwayError):
            assert (await client.list(NODE)).items == []
