"""A thin client of the admin REST API of Pulsar: statistics and subscriptions of topics.

Each request has a time-out, and each response a size limit. Redirects, with which a broker names
the broker that serves a topic, are followed explicitly: the path must stay the same, encryption
must not be lost, and credentials go to neighbors only (`broker/addresses.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import aiohttp
import orjson
from yarl import URL

from operators.pulsarconsumer.broker.addresses import AddressRefused, are_neighbors, check_literal
from operators.pulsarconsumer.broker.answers import read_bounded
from operators.pulsarconsumer.broker.connections import Connections
from operators.pulsarconsumer.broker.errors import (
    AdminAddressRefused,
    AdminBusy,
    AdminMisunderstood,
    AdminNotFound,
    AdminPrecondition,
    AdminRedirected,
    AdminUnreachable,
    error_of_status,
)
from operators.pulsarconsumer.broker.issuer import fetch_token, forget_token
from operators.pulsarconsumer.broker.login import NOBODY, Login
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.report import StatisticsDetail

type Json = Mapping[str, Any]

_REDIRECTS: Final = 3
_REDIRECTING: Final = frozenset({307, 308})
_FIRST_FAILURE: Final = 300
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_DENIED: Final = b"Unauthorized to validate"
"""Text of responses with status 401 to a known role that lacks a permission."""
_BODY_LIMIT: Final = 16 * 2**20
"""Maximum size of a response in bytes; a consumer takes about 900 bytes in each partition."""
_EARLIEST: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
_LATEST: Final = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}
_DETAILS: Final = ("subscriptionBacklogSize", "getEarliestTimeInBacklog")
"""Options of statistics that are expensive: the broker reads the ledgers of all subscriptions."""


class PulsarAdmin:
    """A client of one admin API.

    Args:
        address: URL without a path, or with the path of a proxy: `http://pulsar:8080`.
        login: Credentials.
        timeout: Maximum seconds of one request.
        allow_loopback: Whether connections to this machine itself are allowed.
        connections: Pool of connections; None for its own pool, which it closes itself.
        on_busy: Called with each temporary error before it is raised.
    """

    def __init__(
        self,
        address: str,
        login: Login = NOBODY,
        *,
        timeout: float = 5.0,
        allow_loopback: bool = False,
        connections: Connections | None = None,
        on_busy: Callable[[AdminBusy], None] = lambda _: None,
    ) -> None:
        """Initialize; the first request connects."""
        self._address = address.rstrip("/")
        self._login = login
        self._timeout = timeout
        self._allow_loopback = allow_loopback
        self._connections = connections
        self._on_busy = on_busy
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._authorization: str | None = None

    async def __aenter__(self) -> Self:
        """Lease connections.

        Raises:
            LoginInvalid: A certificate or key of the login is invalid.
        """
        connections = self._connections
        if connections is None:
            own = Connections(allow_loopback=self._allow_loopback)
            connections = await self._stack.enter_async_context(own)
        lease = connections.lease(self._address, self._login)
        self._session = await self._stack.enter_async_context(lease)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Return the connections to the pool."""
        await self._stack.aclose()

    # Queries and changes.

    async def count_partitions(self, topic: Topic) -> int:
        """Return the number of partitions of a topic; 0 for a topic without partitions.

        Raises:
            AdminNotFound: The topic does not exist.
            AdminError: The query failed.
        """
        response = await self._send("GET", f"{topic.path}/partitions")
        partitions = response.get("partitions")
        if not isinstance(partitions, int):
            raise AdminMisunderstood("partitions: not a number")
        return partitions

    async def read_statistics(
        self,
        topic: Topic,
        *,
        partitioned: bool = False,
        precise: bool = False,
        detailed: bool = False,
        extent: StatisticsDetail = StatisticsDetail.FULL,
    ) -> Json:
        """Return the raw statistics of a topic.

        Args:
            topic: The topic.
            partitioned: Whether it has partitions.
            precise: Whether the broker counts entries in its ledgers.
            detailed: Whether the size and the age of the backlog are read, which is expensive for
                the broker.
            extent: Extent of the statistics.

        Raises:
            AdminNotFound: The topic does not exist.
            AdminTooLong: The statistics exceed the limit; a smaller extent may not.
            AdminError: The query failed.
        """
        query = {"excludePublishers": "true", "getPreciseBacklog": _flag(precise)}
        query |= dict.fromkeys(_DETAILS, _flag(detailed))
        path = f"{topic.path}/{'partitioned-stats' if partitioned else 'stats'}"
        if partitioned:
            query["perPartition"] = _flag(extent is StatisticsDetail.FULL)
        if extent is StatisticsDetail.TOTALS:
            # Brokers before 3.1 ignore this parameter.
            query["excludeConsumers"] = "true"
        return await self._send("GET", path, query)

    async def create_subscription(
        self, topic: Topic, name: str, *, earliest: bool = False, replicated: bool = False
    ) -> None:
        """Create a subscription, and the topic if the broker creates topics automatically.

        Raises:
            AdminNotFound: The topic does not exist, and the broker does not create it.
            AdminConflict: The subscription exists.
            AdminError: It is not known whether it exists.
        """
        query = {"replicated": "true"} if replicated else {}
        position = _EARLIEST if earliest else _LATEST
        try:
            await self._send("PUT", _path(topic, name), query, position)
        except AdminPrecondition as err:
            # "Topic does not exist and cannot be auto-created" (4.0.7, PersistentTopicsBase).
            raise AdminNotFound(str(err)) from err

    async def create_topic(self, topic: Topic) -> None:
        """Create a topic without partitions.

        Raises:
            AdminConflict: The topic already exists.
            AdminError: It is unknown whether the topic exists.
        """
        # The body holds properties of the topic. Without one the broker responds with 415.
        await self._send("PUT", topic.path, body={})

    async def delete_subscription(self, topic: Topic, name: str) -> None:
        """Delete a subscription.

        Raises:
            AdminNotFound: The subscription does not exist.
            AdminConflict: Consumers are connected.
            AdminError: The subscription may still exist.
        """
        await self._send("DELETE", _path(topic, name))

    async def reset_cursor(self, topic: Topic, name: str, milliseconds: int) -> None:
        """Move a subscription to the first message published at a time or later.

        Args:
            topic: The topic.
            name: The subscription.
            milliseconds: Time since 1970; 0 means the first available message.

        Raises:
            AdminNotFound: The topic or subscription does not exist.
            AdminError: The position may be unchanged.
        """
        await self._send("POST", f"{_path(topic, name)}/resetcursor/{milliseconds}")

    # One request.

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Json:
        operation = f"{method} {path}"
        url = f"{self._address}/admin/v2{path}"
        data = None if body is None else orjson.dumps(body)
        origin = urlsplit(self._address)
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(_REDIRECTS + 1):
                    status, location, content = await self._exchange(method, url, query, data)
                    if status not in _REDIRECTING:
                        break
                    url = self._follow(location, origin.scheme, origin.hostname or "", path)
                    query = None
                else:
                    raise AdminRedirected(f"{operation}: more than {_REDIRECTS} redirects")
        except (AddressRefused, aiohttp.ClientError, TimeoutError, OSError) as err:
            raise _explain(operation, err) from err
        if status == _UNAUTHORIZED and _DENIED in content:
            status = _FORBIDDEN
        if status == _UNAUTHORIZED and self._login.key_file is not None:
            forget_token(self._login.key_file)
        if status >= _FIRST_FAILURE:
            error = error_of_status(status, operation, content)
            if isinstance(error, AdminBusy):
                self._on_busy(error)
            raise error
        return _parse(operation, content)

    async def _exchange(
        self, method: str, url: str, query: Mapping[str, str] | None, data: bytes | None
    ) -> tuple[int, str, bytes]:
        if self._session is None:
            raise AdminUnreachable("the session is not open; use `async with`")
        check_literal(urlsplit(url).hostname or "", allow_loopback=self._allow_loopback)
        headers = {"Accept": "application/json"}
        if authorization := await self._authorize():
            headers["Authorization"] = authorization
        if data is not None:
            headers["Content-Type"] = "application/json"
        async with self._session.request(
            method,
            URL(url, encoded=True),
            params=query,
            data=data,
            headers=headers,
            allow_redirects=False,
        ) as response:
            return (
                response.status,
                response.headers.get("Location", ""),
                await read_bounded(response, _BODY_LIMIT),
            )

    async def _authorize(self) -> str:
        if self._authorization is None:
            self._authorization = self._login.header()
            if self._login.key_file is not None and self._session is not None:
                token = await fetch_token(
                    self._session, self._login.key_file, allow_loopback=self._allow_loopback
                )
                self._authorization = f"Bearer {token}"
        return self._authorization

    def _follow(self, location: str, scheme: str, host: str, path: str) -> str:
        """Return the target of a redirect, if it may be followed."""
        target = urlsplit(location)
        where = f"the broker names {target.hostname or 'no host'}"
        if target.scheme not in ("http", "https") or not target.path.endswith(f"/admin/v2{path}"):
            raise AdminRedirected(f"{where} with another path")
        if scheme == "https" and target.scheme != "https":
            raise AdminRedirected(f"{where} without encryption")
        secret = self._login.header() or self._login.key_file or self._login.certificate
        if secret and not are_neighbors(host, target.hostname or ""):
            raise AdminRedirected(
                f"{where}, which is in another domain or namespace than {host}: no credentials are"
                " sent there"
            )
        return location


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _path(topic: Topic, subscription: str) -> str:
    # The broker decodes names of subscriptions twice, and names of topics once.
    name = quote(quote(subscription, safe=""), safe="")
    return f"{topic.path}/subscription/{name}"


def _explain(operation: str, err: BaseException) -> Exception:
    """Convert an error of the HTTP client to an AdminError."""
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, AddressRefused):
            return AdminAddressRefused(str(cause))
        cause = cause.__cause__ or cause.__context__
    if isinstance(err, TimeoutError):
        return AdminUnreachable(f"{operation}: no response in time")
    return AdminUnreachable(f"{operation}: {type(err).__name__}")


def _parse(operation: str, content: bytes) -> Json:
    if not content:
        return {}
    try:
        response = orjson.loads(content)
    except orjson.JSONDecodeError as err:
        raise AdminMisunderstood(f"{operation}: the response is not JSON") from err
    if not isinstance(response, dict):
        raise AdminMisunderstood(f"{operation}: the response is not an object")
    return response
