"""What others add to an API server: admission webhooks and aggregated APIs, as plain functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from libs.common.kinds import Key, Kind, Manifest
from libs.common.testing.fakeapi.requests import Request


@dataclass(frozen=True, slots=True)
class Review:
    """A write that is about to be stored.

    Attributes:
        operation: What is done.
        kind: Kind of the object.
        key: Its namespace and name.
        subresource: Such as `status` or `eviction`; empty for the object itself.
        new: Object as it would be stored, or the body of an eviction; not to be changed.
        old: Object as it is; None for a creation.
    """

    operation: Literal["CREATE", "UPDATE"]
    kind: Kind
    key: Key
    subresource: str
    new: Manifest
    old: Manifest | None


type Admission = Callable[[Review], None]
"""Raise a `StatusError` for a write that is refused."""
type Aggregated = Callable[[Request], Awaitable[tuple[int, Manifest | None]]]
"""Answer a request for an API group: the HTTP status, and a body or nothing."""
