"""External systems of an operator, behind the same proxy as the API server.

A workload names its systems. One that an operator finds through its settings gets its address by
`arguments`; one that an object names, such as a broker, by `User.outside`; one that is an extension
of the API server, such as the subresources of virtual machines, by the paths that it serves. Each
request that changes something is a moment like a write to the API server, and goes wrong in the
same ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

import aiohttp

from libs.common.client import Client
from libs.common.kinds import Manifest

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON: Final = MappingProxyType({"Content-Type": "application/json"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the external system receives it.

    Attributes:
        method: HTTP method.
        path: Path within the system, with a slash in front.
        query: Query.
        body: Body.
        headers: Headers without the headers of the connection.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of an external system."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)


class ExternalSystemTrial(Protocol):
    """System is an outside system as one trial has it: a stand-in of its own, or a real one."""

    async def answer(self, request: Request) -> Reply:
        """Answer a request."""
        ...

    def show(self) -> Mapping[str, Manifest]:
        """Return what exists, by title, to be compared with the fault-free run."""
        ...


def changes_something(request: Request) -> bool:
    """Return whether a request is a write by its method."""
    return request.method not in _READS


@dataclass(frozen=True, slots=True)
class ExternalSystem:
    """The declaration of an external system of a workload.

    Attributes:
        id: Its one word; names it in moments.
        build: Builds the system of one trial, which has the namespace for its name; it gets a
            connection with all rights, for what it does to objects of the trial.
        arguments: Flags of the operator with its address.
        prefixes: Paths of the API server that it serves; empty for a system with an own address.
            The API server says who may ask there, as it does for its extensions.
        is_write: Says whether a request changes something.
    """

    id: str
    build: Callable[[str, Client], ExternalSystemTrial]
    arguments: Callable[[str], Sequence[str]] = lambda url: ()
    prefixes: tuple[str, ...] = ()
    is_write: Callable[[Request], bool] = changes_something


class RealSystem:
    """A proxy to a real external system.

    Args:
        url: URL of the system.
        client: Connection, which the caller closes.
        look: Returns what exists.
    """

    def __init__(
        self,
        url: str,
        client: aiohttp.ClientSession,
        look: Callable[[], Mapping[str, Manifest]] = dict,
    ) -> None:
        """Store the URL."""
        self._url = url.rstrip("/")
        self._client = client
        self._look = look

    async def answer(self, request: Request) -> Reply:
        """Pass a request on."""
        async with self._client.request(
            request.method,
            self._url + request.path,
            params=request.query,
            data=request.body or None,
            headers=request.headers,
            allow_redirects=False,
        ) as response:
            kind = response.headers.get("Content-Type", "")
            return Reply(response.status, await response.read(), {"Content-Type": kind})

    def show(self) -> Mapping[str, Manifest]:
        """Return what the caller sees there."""
        return self._look()
