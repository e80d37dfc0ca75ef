"""A plain HTTP client, for tests of API servers: it hides nothing and retries nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
import orjson

from libs.common.kinds import Manifest

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_FRAME_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One response."""

    status: int
    body: Manifest
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """`Status.reason` of a refusal, else empty."""
        return str(self.body.get("reason", "")) if self.body.get("kind") == "Status" else ""

    @property
    def metadata(self) -> Manifest:
        """Metadata of the object."""
        metadata: Manifest = self.body["metadata"]
        return metadata

    @property
    def causes(self) -> list[tuple[str, str]]:
        """`(field, reason)` of each cause of a refusal."""
        found = (self.body.get("details") or {}).get("causes") or ()
        return [(c.get("field", ""), c.get("reason", "")) for c in found]


class WatchEvents:
    """The events of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        """Read from a response."""
        self.response = response

    async def next(self) -> tuple[str, Manifest]:
        """Return the type and object of the next event.

        Raises:
            EOFError: The stream ended.
        """
        async with asyncio.timeout(_FRAME_SECONDS):
            line = await self.response.content.readline()
        if not line:
            raise EOFError("the watch ended")
        event = orjson.loads(line)
        return event["type"], event["object"]

    async def names(self, count: int) -> list[str]:
        """Return the next events as `TYPE name`."""
        events = [await self.next() for _ in range(count)]
        return [f"{type_} {obj['metadata']['name']}" for type_, obj in events]


class RestClient:
    """A client that sends requests without interpreting them."""

    def __init__(self, url: str, *, token: str = "", tls: ssl.SSLContext | bool = True) -> None:
        """Talk to a server; without a context, certificates are checked as the system does."""
        self._url = url
        self._token = token
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        headers = {"User-Agent": "rest/1"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connector = aiohttp.TCPConnector(ssl=self._tls)
        self._session = aiohttp.ClientSession(self._url, headers=headers, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the session."""
        await self.session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        assert self._session is not None
        return self._session

    async def send(
        self, method: str, path: str, body: Any = None, *, content_type: str = "", **query: Any
    ) -> Reply:
        """Send one request.

        Args:
            method: HTTP method.
            path: Path of the object or collection.
            body: What is sent as JSON; bytes are sent as they are.
            content_type: Content type; JSON by default.
            query: Query parameters.
        """
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        headers = {"Content-Type": content_type or "application/json"}
        accept = query.pop("accept", "")
        if accept:
            headers["Accept"] = accept
        async with self.session.request(
            method, path, data=data, headers=headers, params=query
        ) as answer:
            raw = await answer.read()
            try:
                decoded = orjson.loads(raw)
            except orjson.JSONDecodeError:
                decoded = {"text": raw.decode()}
            return Reply(answer.status, decoded, dict(answer.headers))

    async def get(self, path: str, **query: Any) -> Reply:
        """Get an object or a collection."""
        return await self.send("GET", path, **query)

    async def create(self, path: str, body: Any, **query: Any) -> Reply:
        """Create an object in a collection."""
        return await self.send("POST", path, body, **query)

    async def replace(self, path: str, body: Any, **query: Any) -> Reply:
        """Replace an object."""
        return await self.send("PUT", path, body, **query)

    async def patch(
        self, path: str, body: Any, content_type: str = MERGE_PATCH, **query: Any
    ) -> Reply:
        """Patch an object."""
        return await self.send("PATCH", path, body, content_type=content_type, **query)

    async def apply(self, path: str, body: Any, manager: str, **query: Any) -> Reply:
        """Apply a configuration as a field manager."""
        return await self.patch(path, body, APPLY, fieldManager=manager, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        """Delete an object."""
        return await self.send("DELETE", path, body, **query)

    @asynccontextmanager
    async def watch(
        self, path: str, *, accept: str = "application/json", **query: Any
    ) -> AsyncIterator[WatchEvents]:
        """Watch a collection."""
        headers = {"Accept": accept}
        async with self.session.get(
            path, params={"watch": "true", **query}, headers=headers
        ) as response:
            yield WatchEvents(response)
