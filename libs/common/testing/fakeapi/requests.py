"""Requests as the fake API understands and remembers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml

from libs.common.kinds import Key, Kind
from libs.common.testing.fakeapi.protobuf import MEDIA_TYPE, decode_protobuf

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NO_KEY = Key("", "")
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(slots=True, eq=False)
class Request:
    """One request and its response.

    Attributes:
        method: HTTP method.
        verb: What RBAC calls it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
            `deletecollection`; the method in small letters for paths that are no resource.
        path: Path without the query.
        kind: Kind, or None when the path names no served resource.
        key: Object, with an empty name for collections.
        subresource: Such as `status`, or empty.
        query: Query parameters.
        raw: Body as it came.
        status: HTTP status of the response; 0 if there is none yet, or if it was lost.
        number: Position in the log.
        created: Whether an apply or update created the object.
        changed: Whether the write stored something; False for no-ops, failures and dry runs.
    """

    method: str
    path: str
    verb: str = ""
    group: str = ""
    version: str = ""
    plural: str = ""
    kind: Kind | None = None
    key: Key = _NO_KEY
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    raw: bytes = b""
    content_type: str = ""
    accept: str = ""
    user_agent: str = ""
    user: str = ""
    status: int = 0
    number: int = 0
    created: bool = False
    changed: bool = False

    @property
    def body(self) -> Any:
        """The decoded body, a new object on each access, or None."""
        if not self.raw:
            return None
        if self.content_type.startswith(MEDIA_TYPE):
            return decode_protobuf(self.raw)
        if "yaml" in self.content_type or "apply-patch" in self.content_type:
            try:
                return orjson.loads(self.raw)
            except orjson.JSONDecodeError:
                return yaml.safe_load(self.raw)
        return orjson.loads(self.raw)

    @property
    def writes(self) -> bool:
        """Whether the request is a write, successful or not, dry runs excepted."""
        return self.verb in WRITES and self.query.get("dryRun") != "All"

    def __str__(self) -> str:
        """Render in one line for failure messages."""
        what = "/".join(part for part in (self.plural, self.subresource) if part) or self.path
        return f"{self.verb} {what} {self.key} -> {self.status}"


def parse_request(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], raw: bytes
) -> Request:
    """Find out what a request is about from its method and path."""
    request = Request(
        method,
        path,
        query=query,
        raw=raw,
        content_type=headers.get("Content-Type", ""),
        accept=headers.get("Accept", ""),
        user_agent=headers.get("User-Agent", ""),
    )
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        request.version, rest = parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        request.group, request.version, rest = parts[1], parts[2], parts[3:]
    else:
        request.verb = method.lower()
        return request
    _parse_resource(request, rest)
    request.verb = _verb(request)
    return request


def _parse_resource(request: Request, rest: list[str]) -> None:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    request.plural = rest[0]
    request.key = Key(namespace, rest[1] if len(rest) > 1 else "")
    request.subresource = "/".join(rest[2:])


def _verb(request: Request) -> str:
    if request.method in ("GET", "HEAD"):
        if request.query.get("watch") in ("true", "1"):
            return "watch"
        return "get" if request.key.name else "list"
    verb = _VERBS.get(request.method, request.method.lower())
    return "deletecollection" if verb == "delete" and not request.key.name else verb


class RequestLog:
    """The log of requests, in order: of all, or at least of the last `limit` ones."""

    def __init__(self, limit: int | None = None) -> None:
        """Start empty."""
        self._limit = limit
        self._requests: list[Request] = []
        self._dropped = 0

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the requests."""
        return iter(self._requests)

    def __len__(self) -> int:
        """Return how many requests there were; usable as a mark."""
        return self._dropped + len(self._requests)

    def __getitem__(self, index: int) -> Request:
        """Return one request."""
        return self._requests[index - self._dropped if index >= 0 else index]

    def add(self, request: Request) -> None:
        """Remember a request."""
        request.number = len(self)
        self._requests.append(request)
        if self._limit is not None and len(self._requests) > 2 * self._limit:
            del self._requests[: self._limit]
            self._dropped += self._limit

    def clear(self) -> None:
        """Forget everything."""
        self._requests.clear()

    def select(
        self,
        verb: str = "",
        kind: Kind | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
        since: int = 0,
        where: Callable[[Request], bool] = lambda _: True,
    ) -> list[Request]:
        """Return the requests that match.

        Args:
            verb: HTTP method in capitals or Kubernetes verb; empty for all.
            kind: Kind, or None for all.
            name: Object name, or None for all.
            subresource: Subresource, "" for the object itself, or None for all.
            since: Mark from which on to look.
            where: Further condition.
        """
        return [
            request
            for request in self._requests[max(0, since - self._dropped) :]
            if (not verb or verb in (request.verb, request.method))
            and (kind is None or (request.group, request.plural) == (kind.group, kind.plural))
            and (name is None or request.key.name == name)
            and (subresource is None or request.subresource == subresource)
            and where(request)
        ]
