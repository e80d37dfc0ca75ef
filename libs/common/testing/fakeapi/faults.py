"""Faults that a test injects: errors, lost responses, hangs, latency."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from libs.common.kinds import Kind
from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.fakeapi.statuses import StatusError

_REASONS = {
    400: ("BadRequest", "the request is not valid (injected)"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden (injected)"),
    404: ("NotFound", "not found (injected)"),
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified (injected)"),
    410: ("Expired", "too old resource version (injected)"),
    422: ("Invalid", "is invalid (injected)"),
    429: ("TooManyRequests", "too many requests, please try again later (injected)"),
    500: ("InternalError", "Internal error occurred (injected)"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request (injected)"),
    504: ("Timeout", "the request did not complete within the allotted time (injected)"),
}


@dataclass(slots=True, eq=False)
class Fault:
    """A fault that matching requests experience.

    Attributes:
        verb: HTTP method in capitals, Kubernetes verb in small letters, or empty for all.
        kind: Which kind, or None for all.
        times: How often; None for always.
        hits: How often it has happened.
        released: Set to let hanging requests continue.
    """

    verb: str = ""
    kind: Kind | None = None
    status: int = 500
    times: int | None = 1
    retry_after: float | None = None
    reason: str = ""
    message: str = ""
    mode: Literal["error", "lost", "dropped", "hang", "held", "latency"] = "error"
    name: str | None = None
    namespace: str | None = None
    subresource: str | None = None
    where: Callable[[Request], bool] | None = None
    seconds: float = 0.0
    hits: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, request: Request) -> bool:
        """Return whether the fault happens to a request."""
        if self.times is not None and self.hits >= self.times:
            return False
        kind = self.kind
        if kind is not None and (request.group, request.plural) != (kind.group, kind.plural):
            return False
        if self.verb and self.verb not in (request.method, request.verb):
            return False
        return self._matches_object(request)

    def _matches_object(self, request: Request) -> bool:
        if self.name is not None and request.key.name != self.name:
            return False
        if self.namespace is not None and request.key.namespace != self.namespace:
            return False
        if self.subresource is not None and request.subresource != self.subresource:
            return False
        return self.where is None or self.where(request)

    def release(self) -> None:
        """Let the requests that hang continue, and let no more requests hang."""
        self.times = self.hits
        self.released.set()

    def error(self) -> StatusError:
        """Build the error response."""
        reason, message = _REASONS.get(self.status, ("", f"status {self.status} (injected)"))
        return StatusError(
            self.status,
            self.reason or reason,
            self.message or message,
            retry_after=self.retry_after,
        )


class Faults:
    """The faults of a fake API. The first matching fault applies; latency is added to it."""

    def __init__(self) -> None:
        """Start with none."""
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Add a fault; returned so that a test can ask for `hits` or `release` it."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all faults and let go of what hangs."""
        for fault in self._faults:
            fault.release()
        self._faults.clear()

    def latency_of(self, request: Request) -> float:
        """Return the delay of the response in seconds."""
        return sum(self._hit(f).seconds for f in self._of(request, "latency"))

    def take(self, request: Request) -> Fault | None:
        """Return the fault that happens to a request, counted."""
        for fault in self._of(request, "error", "lost", "dropped", "hang", "held"):
            return self._hit(fault)
        return None

    def _of(self, request: Request, *modes: str) -> list[Fault]:
        return [f for f in self._faults if f.mode in modes and f.matches(request)]

    def _hit(self, fault: Fault) -> Fault:
        fault.hits += 1
        return fault
