"""Parsing of requests and watch frames: the operation and the object. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from lab.sweep.encodings import find_name
from libs.common.kinds import Manifest

type Verb = Literal["get", "list", "watch", "create", "update", "patch", "apply", "delete"]
type Series = Literal["write", "lease", "event", "read"]
"""Series in which requests are counted separately: writes, Leases, Events and reads."""

APPLY_TYPE: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "json-patch"
"""Key of the operations of a JSON patch in a parsed body."""
_WRITES: Final = frozenset({"create", "update", "patch", "apply", "delete"})
_METHODS: Final[Mapping[str, Verb]] = {"POST": "create", "PUT": "update", "DELETE": "delete"}
_REVIEWS: Final = ("selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews")


@dataclass(frozen=True, slots=True)
class Call:
    """The operation that a request performs, in RBAC terms.

    Attributes:
        verb: Verb of the operation; `apply` is a server-side apply.
        group: API group; empty for the core group.
        resource: Plural of the kind.
        namespace: Namespace in the path; empty for none.
        name: Name of the object; empty for a collection.
        subresource: Subresource, such as `status`; empty for none.
        system: External system; empty for the API server itself.
    """

    verb: Verb
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    system: str = ""

    @property
    def series(self) -> Series:
        """Series that the request counts in."""
        if self.verb not in _WRITES or self.resource in _REVIEWS:
            return "read"
        if self.resource == "leases":
            return "lease"
        return "event" if self.resource == "events" else "write"

    @property
    def target(self) -> str:
        """Resource with group and subresource: `podsets.batch.example.com/status`."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{resource}/{self.subresource}" if self.subresource else resource

    @property
    def rbac_verb(self) -> str:
        """Verb that RBAC requires; an apply is a patch."""
        return "patch" if self.verb == "apply" else self.verb

    def __str__(self) -> str:
        """Render for people: `delete pods web-pod-1`."""
        return f"{self.verb} {self.target} {self.name}".rstrip()


def parse_call(
    method: str, path: str, query: Mapping[str, str], content_type: str, body: bytes
) -> Call | None:
    """Parse a request; None if it is not about objects, such as discovery.

    Args:
        method: HTTP method.
        path: Path on the API server.
        query: Query of the request.
        content_type: Type of the body.
        body: Body, which contains the name of an object that is created.
    """
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) >= 3:
        group, rest = "", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group, rest = parts[1], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    verb = _verb_of(method, name, query, content_type)
    if verb == "create" and not name:
        name = _name_in(body)
    return Call(verb, group, resource, namespace, name, subresource)


def parse_json(body: bytes) -> Manifest:
    """Decode a JSON object; a JSON patch under the name `json-patch`; else an empty object."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    if isinstance(value, list):
        return {JSON_PATCH: value}
    return value if isinstance(value, dict) else {}


def parse_frame(line: bytes) -> tuple[str, Manifest]:
    """Decode a frame of a watch: its type and its object."""
    frame = parse_json(line)
    found: Any = frame.get("object")
    return str(frame.get("type") or ""), found if isinstance(found, dict) else {}


def find_owned(call: Call, body: bytes) -> set[tuple[str, str, str]]:
    """Return the rights to block the deletion of owners that a write took; by kind, not plural.

    Args:
        call: Request that was executed.
        body: Body of its response.
    """
    if call.verb not in ("create", "apply", "patch", "update"):
        return set()
    owners = (parse_json(body).get("metadata") or {}).get("ownerReferences") or ()
    return {
        (owner["apiVersion"].rpartition("/")[0], f"{owner['kind']}/finalizers", "update")
        for owner in owners
        if owner.get("blockOwnerDeletion")
    }


def render_status(code: int, reason: str, message: str) -> Manifest:
    """Build the body of an error response in the format of the API server."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def _verb_of(method: str, name: str, query: Mapping[str, str], content_type: str) -> Verb:
    if method == "PATCH":
        return "apply" if content_type.startswith(APPLY_TYPE) else "patch"
    if method in _METHODS:
        return _METHODS[method]
    if query.get("watch") in ("1", "true"):
        return "watch"
    return "get" if name else "list"


def _name_in(body: bytes) -> str:
    metadata = parse_json(body).get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or find_name(body))
