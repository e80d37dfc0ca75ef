"""Paths and queries of requests, and pages and watch events of responses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from libs.common.decoding import parse_json
from libs.common.errors import BadRequest, Unreachable, api_error
from libs.common.kinds import Key, Kind, Manifest, describe
from libs.common.transport import Query, Request

_NO_NAME: Final = re.compile(r"[/%?#\\]|^\.\.?$")
"""Characters that names cannot contain (as in client-go) or that would have to be escaped."""


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A list at one resource version."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list.

    Attributes:
        first: Whether the list begins with this page. The list begins again if the continue token
            expired.
    """

    items: list[Manifest]
    resource_version: str
    first: bool


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An event of a watch; `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Manifest


def path_to(kind: Kind, key: Key, subresource: str = "") -> str:
    """Return the path of one object, even if its name comes from an untrusted source.

    Raises:
        BadRequest: The name is invalid: the path would be the path of the collection or of another
            object.
    """
    if not key.name or any(_NO_NAME.search(part) for part in key):
        raise BadRequest(400, "BadRequest", f"{describe(kind, key)}: there is no such name")
    return kind.path(key.namespace, key.name, subresource)


def selectors(label_selector: str, field_selector: str) -> Query:
    """Build the query of a label and a field selector."""
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in query.items() if value}


def write_query(field_manager: str, dry_run: bool) -> Query:
    """Build the query of a write."""
    query: Query = {"fieldManager": field_manager} if field_manager else {}
    return query | {"dryRun": "All"} if dry_run else query


def typed(item: Manifest, kind: Kind) -> Manifest:
    """Add the type to an item of a list, and return the item."""
    # Items of a typed list carry neither apiVersion nor kind.
    item.setdefault("apiVersion", kind.api_version)
    item.setdefault("kind", kind.kind)
    return item


def parse_event(line: bytes, request: Request) -> WatchEvent:
    """Parse one line of a watch.

    Raises:
        ApiError: The line reports that the watch failed.
        Unreachable: The line is incomplete.
    """
    try:
        frame = parse_json(line, outer=1)
        event = WatchEvent(frame["type"], frame["object"])
    except (ValueError, KeyError, TypeError) as err:
        raise Unreachable(request.operation, "the stream ended in the middle of a frame") from err
    if event.type == "ERROR":
        raise api_error(500, event.object, operation=request.operation)
    if event.type != "BOOKMARK" and not is_object(event.object):
        raise Unreachable(request.operation, f"the server sent {event.type} without an object")
    return event


def is_object(item: object) -> bool:
    """Return whether a value that a server sent is an object with a name."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)
