"""The HTTPS server that an API server asks: subresources, discovery, admission reviews."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final, Self

import orjson
from aiohttp import web

from lab.kubevirt_sim.actions import NOT_ACCEPTABLE, Actions, build_discovery, build_failure
from lab.kubevirt_sim.admission import (
    Refusal,
    build_access_reviews,
    evaluate,
    find_foreign_source,
    refuse_clone,
)
from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import POD, Key, Kind, Manifest, key_of
from libs.common.reading import map_at, text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    SUBRESOURCES_GROUP,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)

GROUP_PATH: Final = f"/apis/{SUBRESOURCES_GROUP}/v1"
REVIEW_PATH: Final = "/validate"
_REVIEWED: Final = (POD, VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE_MIGRATION, DATA_VOLUME)
_ACCESS_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_JSON: Final = "application/json"


class ActionServer:
    """An HTTPS server of actions and reviews.

    Args:
        client: Connection with all rights.
        clock: Time source.
        host: Address to listen on.
        port: Port; 0 for a free one.
        tls: Certificate and key of the server.
    """

    def __init__(
        self, client: Client, clock: Clock, host: str, port: int, tls: ssl.SSLContext
    ) -> None:
        """Prepare; the server listens once entered as a context manager."""
        self._client = client
        self._actions = Actions(client, clock)
        self._host, self._tls = host, tls
        self.port = port
        app = web.Application()
        app.router.add_get("/healthz", _answer_healthy)
        app.router.add_get(GROUP_PATH, _answer_discovery)
        app.router.add_route(
            "*", GROUP_PATH + "/namespaces/{namespace}/{plural}/{name}/{action:.+}", self._act
        )
        app.router.add_post(REVIEW_PATH, self._review)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Start to listen."""
        await self._runner.setup()
        assert self._runner.server is not None, "setup makes it"
        self._listener = await asyncio.get_running_loop().create_server(
            self._runner.server, self._host, self.port, ssl=self._tls
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, and wait for the last connection.

        An API server asks all the time whether the group is served: connections that are still
        shaking hands are nobody's yet, and a site of aiohttp would leave them open.
        """
        if self._listener is None:
            return
        self._listener.close()
        await self._runner.cleanup()
        await asyncio.sleep(0)  # What was accepted last becomes a connection.
        self._listener.abort_clients()
        await self._listener.wait_closed()

    async def _act(self, request: web.Request) -> web.Response:
        place = request.match_info
        raw = await request.read()
        try:
            body = orjson.loads(raw) if raw.strip() else {}
        except orjson.JSONDecodeError:
            return _respond(400, build_failure(400, "the body is not JSON"))
        code, response = await self._actions.act(
            request.method,
            place["plural"],
            Key(place["namespace"], place["name"]),
            place["action"],
            body if isinstance(body, dict) else {},
            accept=request.headers.get("Accept", ""),
        )
        if code == web.HTTPNotAcceptable.status_code:
            return web.Response(status=code, text=NOT_ACCEPTABLE)
        return _respond(code, response)

    async def _review(self, request: web.Request) -> web.Response:
        review = orjson.loads(await request.read())
        asked = map_at(review, "request")
        try:
            refusal = await self._evaluate(asked)
            if refusal is not None and refusal.evacuate is not None and not asked.get("dryRun"):
                await self._mark(refusal.evacuate)
        except SlipwayError as err:
            refusal = Refusal(500, str(err))
        response: Manifest = {"uid": text_at(asked, "uid"), "allowed": refusal is None}
        if refusal is not None:
            # The API server says itself which webhook refused.
            text = refusal.text.partition("denied the request: ")[2] or refusal.text
            response["status"] = {**build_failure(refusal.code, text), "metadata": {}}
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }
        return _respond(200, review)

    async def _evaluate(self, asked: Any) -> Refusal | None:
        plural, group = text_at(asked, "resource", "resource"), text_at(asked, "resource", "group")
        kind = next(
            (each for each in _REVIEWED if (each.group, each.plural) == (group, plural)), None
        )
        if kind is None:
            return None
        key = Key(text_at(asked, "namespace"), text_at(asked, "name"))
        old = dict(map_at(asked, "oldObject")) or None
        user = map_at(asked, "userInfo")
        source = find_foreign_source(dict(map_at(asked, "object"))) if kind == DATA_VOLUME else None
        if source is not None and old is None and not await self._may_clone(source, user):
            return refuse_clone(source, user)
        migrations: list[Manifest] = []
        if kind == VIRTUAL_MACHINE_INSTANCE_MIGRATION:
            migrations = (await self._client.list(kind, key.namespace)).items
        known: dict[tuple[Kind, Key], Manifest | None] = {}
        while True:
            try:
                return evaluate(
                    kind,
                    text_at(asked, "subResource"),
                    dict(map_at(asked, "object")),
                    old,
                    key,
                    lambda *wanted: known[wanted],
                    lambda _: migrations,
                )
            except KeyError as err:
                # The rules are pure: what they want to see is fetched, and they are asked again.
                wanted = err.args[0]
                known[wanted] = await self._find(*wanted)

    async def _may_clone(self, source: Key, user: Mapping[str, Any]) -> bool:
        for review in build_access_reviews(source, user):
            response = await self._client.raw("POST", _ACCESS_PATH, review)
            if map_at(response, "status").get("allowed") is True:
                return True
        return False

    async def _find(self, kind: Kind, key: Key) -> Manifest | None:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None

    async def _mark(self, vmi: Manifest) -> None:
        change = {"status": {"evacuationNodeName": text_at(vmi, "status", "nodeName")}}
        await self._client.patch(VIRTUAL_MACHINE_INSTANCE, key_of(vmi), change)


async def _answer_healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _answer_discovery(_: web.Request) -> web.Response:
    return _respond(200, build_discovery())


def _respond(code: int, body: Manifest | None) -> web.Response:
    if body is None:
        return web.Response(status=code)
    return web.Response(body=orjson.dumps(body), status=code, content_type=_JSON)
