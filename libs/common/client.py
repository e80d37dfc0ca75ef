"""A thin asynchronous Kubernetes client for raw objects, with one hierarchy of errors.

The official client models every kind and copies every object, which is too slow for the runtime.
This client adds to plain HTTP what a controller needs: whether a failed write may have been
executed (`UnknownOutcome`), how long to wait (`Retry-After`), and a limit on the requests in
flight.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, Self

import aiohttp

from libs.common.client_requests import (
    ObjectList,
    Page,
    WatchEvent,
    is_object,
    parse_event,
    path_to,
    selectors,
    typed,
    write_query,
)
from libs.common.clock import Clock
from libs.common.config import ConnectionConfig
from libs.common.errors import (
    Expired,
    Invalid,
    NotFound,
    Unreachable,
    apply_error,
)
from libs.common.kinds import Key, Kind, Manifest, key_of
from libs.common.metrics import ClientMetrics
from libs.common.reading import map_at, text_at
from libs.common.telemetry import NO_TELEMETRY, Telemetry
from libs.common.transport import (
    FIRST_FAILURE,
    Fence,
    Request,
    Transport,
    abort,
    cause_of,
    failure_of,
    lines_of,
)

APPLY_PATCH: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Accept header for an object of which only metadata are wanted."""
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header for lists that contain only metadata."""
ANY_ANSWER: Final = "application/json, */*"
"""Accept header for actions whose response may have no body and no type."""

_PAGE: Final = 500
"""Number of objects in a page of a list, as in the pager of client-go."""


class Client:
    """A client of one API server.

    Args:
        config: Address of the API server and credentials.
        user_agent: Shown in audit logs and used by API priority and fairness.
        max_in_flight: Maximum number of concurrent requests, not counting watches.
        request_timeout: Seconds for one attempt of a request.
        metrics: Metrics that count each attempt.
        telemetry: Telemetry that records a span for each attempt.
        fence: Called before each write; raises if this process must not write any more.
        clock: Time source of the waits between attempts.
        read_limit: Bytes that the server may send for each request, including the pages of a list.
            Required for servers that others control; None for no limit. Watches have no limit.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        user_agent: str = "slipway",
        max_in_flight: int = 32,
        request_timeout: float = 30.0,
        metrics: ClientMetrics | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        fence: Fence | None = None,
        clock: Clock | None = None,
        read_limit: int | None = None,
    ) -> None:
        """Initialize; the first request opens the connection, in the event loop that sends it."""
        self.config = config
        self._transport = Transport(
            config,
            user_agent=user_agent,
            max_in_flight=max_in_flight,
            request_timeout=request_timeout,
            metrics=metrics,
            telemetry=telemetry,
            fence=fence,
            clock=clock,
            read_limit=read_limit,
        )

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections and end all watches.

        A closed client stays closed: further requests raise ClientClosed.
        """
        await self._transport.close()

    # Reads.

    async def get(self, kind: Kind, key: Key, subresource: str = "") -> Manifest:
        """Read one object from the server.

        Raises:
            NotFound: There is none.
        """
        return await self._transport.send(Request("GET", path_to(kind, key, subresource)))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        page: int = _PAGE,
    ) -> ObjectList:
        """List a kind at its most recent state, page by page.

        Args:
            kind: Kind of the objects.
            namespace: Empty for all namespaces.
            label_selector: As `kubectl -l`.
            field_selector: As `kubectl --field-selector`.
            metadata_only: Request only the metadata.
            page: Number of objects in a page; 0 disables paging.
        """
        items: list[Manifest] = []
        version = ""
        options = {"label_selector": label_selector, "field_selector": field_selector}
        async for part in self.pages(
            kind, namespace, **options, metadata_only=metadata_only, page=page
        ):
            if part.first:
                items.clear()
            items.extend(part.items)
            version = part.resource_version
        return ObjectList(items, version)

    async def pages(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        page: int = _PAGE,
    ) -> AsyncGenerator[Page]:
        """List a kind as `list` does, and yield each page when it arrives.

        A caller that reduces each page never holds the whole list in memory.
        """
        request = Request("GET", kind.path(namespace), lists=True)
        request.accept = METADATA_LIST if metadata_only else request.accept
        request.query = selectors(label_selector, field_selector)
        if page:
            request.query["limit"] = str(page)
        first = True
        while True:
            try:
                response = await self._transport.send(request)
            except Expired:
                if "continue" not in request.query:
                    raise
                # The continue token expired because of compaction: one unpaged list is consistent
                # and cannot expire.
                request.query.pop("continue")
                request.query.pop("limit", None)
                first = True
                continue
            items = [typed(item, kind) for item in _items_of(response)]
            metadata = map_at(response, "metadata")
            del response
            yield Page(items, text_at(metadata, "resourceVersion"), first)
            del items
            first = False
            if not text_at(metadata, "continue"):
                return
            request.query["continue"] = text_at(metadata, "continue")

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        timeout_seconds: float = 300.0,
        inactivity_seconds: float = 75.0,
    ) -> AsyncGenerator[WatchEvent]:
        """Watch a kind from a resource version until the server ends the stream.

        Bookmarks are requested and yielded. They arrive about once a minute, except for kinds that
        the server does not cache and kinds that have not changed since it started. A stream without
        any event for `inactivity_seconds` may have lost its server, and ends too: a server that is
        gone does not accept the next one.

        Raises:
            Expired: The resource version is too old.
            ApiError: The server refused, or sent another error.
            Unreachable: The server was not reached, or the stream broke.
        """
        query = selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_seconds)),
        }
        request = Request("GET", kind.path(namespace), query)
        request.accept = METADATA if metadata_only else request.accept
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._transport.timeout, sock_read=inactivity_seconds
        )
        try:
            async with await self._transport.open(request, timeout) as response:
                if response.status >= FIRST_FAILURE:
                    body = await response.read()  # security: only own API servers are watched
                    raise failure_of(response, body, request)
                try:
                    async for line in lines_of(response):
                        yield parse_event(line, request)
                except aiohttp.SocketTimeoutError:
                    return
                finally:
                    abort(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise Unreachable(request.operation, cause_of(err)) from err

    # Writes.

    async def create(
        self,
        kind: Kind,
        manifest: Manifest,
        *,
        field_manager: str = "",
        dry_run: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> Manifest:
        """Create an object.

        Args:
            kind: Kind of the object.
            manifest: The object.
            field_manager: Manager of its fields.
            dry_run: Whether nothing is stored.
            warn: Called with each warning of the API server, for example about an unknown field.

        Raises:
            AlreadyExists: An object with this name exists.
            UnknownOutcome: The response was lost.
        """
        query = write_query(field_manager, dry_run)
        path = kind.path(manifest["metadata"].get("namespace") or "")
        request = Request("POST", path, query, manifest)
        response = await self._transport.send(request)
        if warn is not None:
            for text in request.warnings:
                warn(text)
        return response

    async def replace(
        self, kind: Kind, manifest: Manifest, *, subresource: str = "", field_manager: str = ""
    ) -> Manifest:
        """Replace an object if its resourceVersion equals the version in `manifest`.

        Raises:
            Conflict: The object has changed since.
        """
        key = key_of(manifest)
        path = path_to(kind, key, subresource)
        return await self._transport.send(
            Request("PUT", path, write_query(field_manager, False), manifest)
        )

    async def apply(
        self,
        kind: Kind,
        manifest: Manifest,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """Apply an object by server-side apply.

        Raises:
            Conflict: Another manager owns a field and `force` is off, or a UID or resource version
                in the manifest is not the live one. (When the status of a custom kind is applied,
                the server ignores the UID; pass the resource version instead.)
        """
        key = key_of(manifest)
        query = write_query(field_manager, dry_run) | {"force": "true" if force else "false"}
        path = path_to(kind, key, subresource)
        try:
            return await self._transport.send(Request("PATCH", path, query, manifest, APPLY_PATCH))
        except Invalid as err:
            raise apply_error(err) from err

    async def patch(
        self,
        kind: Kind,
        key: Key,
        operations: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        subresource: str = "",
        field_manager: str = "",
    ) -> Manifest:
        """Patch an object: by JSON patch for a sequence, by merge patch for a mapping."""
        content_type = MERGE_PATCH if isinstance(operations, Mapping) else JSON_PATCH
        query = write_query(field_manager, False)
        path = path_to(kind, key, subresource)
        return await self._transport.send(Request("PATCH", path, query, operations, content_type))

    async def delete(
        self,
        kind: Kind,
        key: Key,
        *,
        uid: str,
        resource_version: str = "",
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> Manifest:
        """Delete exactly the incarnation with the given UID.

        Returns:
            The object with its deletionTimestamp if it still exists, else a Status.

        Raises:
            NotFound: The object does not exist.
            Conflict: Another object has the name now.
        """
        preconditions = {"uid": uid}
        if resource_version:
            preconditions["resourceVersion"] = resource_version
        options: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": propagation,
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = path_to(kind, key)
        return await self._transport.send(Request("DELETE", path, {}, options))

    async def serves(self, kind: Kind) -> bool:
        """Return whether discovery knows a kind.

        Discovery knows a new CRD only after some moments. An API server that has just started
        responds before it knows all existing CRDs.
        """
        try:
            answer = await self.raw("GET", kind.base_path)
        except NotFound:
            return False
        return any(each["name"] == kind.plural for each in answer.get("resources") or ())

    async def raw(
        self, method: str, path: str, body: object = None, *, accept: str = "application/json"
    ) -> Manifest:
        """Send a request to a path that does not belong to a kind, such as `/version`.

        Args:
            method: HTTP method.
            path: Path with its query.
            body: Body to send as JSON; None for no body.
            accept: Accept header. Aggregated servers refuse JSON for responses without a body: see
                `ANY_ANSWER`.

        Returns:
            The decoded body; an empty map for an empty body.
        """
        return await self._transport.send(Request(method, path, {}, body, accept=accept))


def _items_of(response: Manifest) -> list[Manifest]:
    items = response.get("items")
    return [item for item in items if is_object(item)] if isinstance(items, list) else []
