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
    """An external system in one trial: a fake, or a proxy to a real system."""

    async def answer(self, request: Request) -> Reply:
        """Respond to a request."""
        ...

    def show(self) -> Mapping[str, Manifest]:
        """Return the existing objects by title, for the comparison with the fault-free run."""
        ...


def changes_something(request: Request) -> bool:
    """Return whether a request is a write by its method."""
    return request.method not in _READS


@dataclass(frozen=True, slots=True)
class ExternalSystem:
    """The declaration of an external system of a workload.

    Attributes:
        id: One word that names it in moments.
        build: Builds the system of one trial, given the namespace of the trial and a client with
            all permissions, with which it changes objects of the trial.
        arguments: Flags of the operator with its address.
        prefixes: Paths of the API server that it serves; empty for a system with its own address.
            As for its extensions, the API server authorizes the requests.
        is_write: Returns whether a request changes anything.
    """

    id: str
    build: Callable[[str, Client], ExternalSystemTrial]
    arguments: Callable[[str], Sequence[str]] = lambda url: ()
    prefixes: tuple[str, ...] = ()
    is_write: Callable[[Request], bool] = changes_something
