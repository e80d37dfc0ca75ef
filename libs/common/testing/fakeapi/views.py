"""What clients see of stored objects: selections, versions, metadata only, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.selectors import labels_of, parse_fields, parse_labels
from libs.common.testing.fakeapi.store import Record

_META_VERSION = "meta.k8s.io/v1"
_TABLE = ("as=Table", "g=meta.k8s.io", "v=v1")

type Form = Literal["object", "metadata", "table"]
"""The form that an `Accept` header asks for."""

_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
"""Fields of events.k8s.io events, and what core events call them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a resource that a list or watch selects."""

    namespace: str
    matches_labels: Callable[[Mapping[str, Any]], bool] | None
    matches_fields: Callable[[Mapping[str, Any]], bool] | None
    view: View

    @property
    def selective(self) -> bool:
        """Whether a selector was given."""
        return self.matches_labels is not None or self.matches_fields is not None

    def includes(self, key: Key, obj: Manifest) -> bool:
        """Return whether an object is selected."""
        if self.namespace and key.namespace != self.namespace:
            return False
        if self.matches_labels is not None and not self.matches_labels(labels_of(obj)):
            return False
        return self.matches_fields is None or self.matches_fields(self.view.shaped(obj))


def parse_selection(target: Target, query: Mapping[str, str], view: View) -> Selection:
    """Read the selectors of a list, watch or deletion of a collection.

    Raises:
        StatusError: 400 for a selector that cannot be parsed or a field that is not selectable.
    """
    fields = query.get("fieldSelector", "")
    if target.key.name:
        # A watch on a single object is a collection watch with its name selected.
        fields = ",".join(part for part in (f"metadata.name={target.key.name}", fields) if part)
    return Selection(
        target.key.namespace,
        parse_labels(query.get("labelSelector", "")),
        parse_fields(fields, target.version.selectable, builtin=not target.resource.custom),
        view,
    )


@dataclass(frozen=True, slots=True)
class View:
    """The representation of stored records that one request asked for.

    Attributes:
        target: Version that the client speaks.
        form: What it asked for: objects, their metadata, or a table of them.
        include: Part of each object in a table: `Metadata`, `Object` or `None`.
        now: Time for the ages in a table.
    """

    target: Target
    form: Form = "object"
    include: str = "Metadata"
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def shaped(self, obj: Manifest) -> Manifest:
        """Return the object in the version of the request; not to be changed."""
        if self.target.resource.group == "events.k8s.io":
            return to_event_v1(obj)
        wanted = self.target.api_version
        return obj if obj["apiVersion"] == wanted else {**obj, "apiVersion": wanted}

    def shown(self, obj: Manifest) -> Manifest:
        """Return what the client gets of an object."""
        if self.form == "metadata":
            return _partial(obj)
        if self.form == "table":
            version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            return {**self._table(version), "rows": [self._row(obj)]}
        return self.shaped(obj)

    def shown_next(self, obj: Manifest) -> Manifest:
        """Return what a watch sends after its first event: tables without definitions."""
        shown = self.shown(obj)
        return {**shown, "columnDefinitions": None} if self.form == "table" else shown

    def _table(self, metadata: Manifest) -> Manifest:
        definitions = self.target.version.columns.definitions
        head = {"kind": "Table", "apiVersion": _META_VERSION, "metadata": metadata}
        return {**head, "columnDefinitions": definitions}

    def _row(self, obj: Manifest) -> Manifest:
        parts = {"None": None, "Object": self.shaped(obj)}
        columns = self.target.version.columns
        row = {"cells": columns.cells(obj, self.now())}
        if conditions := columns.conditions(obj):
            row["conditions"] = conditions
        return {**row, "object": parts.get(self.include, _partial(obj))}

    def encode(self, record: Record) -> bytes:
        """Encode one object; the encoding of the stored version is shared."""
        obj = record.obj
        if self.form == "object" and obj["apiVersion"] == self.target.api_version:
            return record.raw
        return orjson.dumps(self.shown(obj))

    def encode_item(self, record: Record) -> bytes:
        """Encode an item of a list: built-in kinds come without `apiVersion` and `kind`."""
        if self.form == "table":
            return orjson.dumps(self._row(record.obj))
        if self.form == "metadata" or self.target.resource.custom:
            return self.encode(record)
        if record.obj["apiVersion"] == self.target.api_version:
            return record.bare
        shown = self.shown(record.obj)
        return orjson.dumps({k: v for k, v in shown.items() if k not in ("apiVersion", "kind")})

    def encode_list(self, items: list[bytes], metadata: Manifest) -> bytes:
        """Encode a list of encoded items."""
        if self.form == "table":
            return orjson.dumps(self._table(metadata))[:-1] + _join("rows", items)
        if self.form == "metadata":
            kind, version = "PartialObjectMetadataList", _META_VERSION
        else:
            kind, version = self.target.resource.list_kind, self.target.api_version
        head = {"kind": kind, "apiVersion": version, "metadata": metadata}
        return orjson.dumps(head)[:-1] + _join("items", items)


def _join(name: str, items: list[bytes]) -> bytes:
    return b',"%s":[' % name.encode() + b",".join(items) + b"]}"


def _partial(obj: Manifest) -> Manifest:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": _META_VERSION,
        "metadata": obj["metadata"],
    }


def parse_form(accept: str) -> Form:
    """Return the form that an `Accept` header asks for; the first that is served counts."""
    for choice in accept.split(","):
        parts = [part.strip() for part in choice.split(";")]
        if any(part.startswith("as=PartialObjectMetadata") for part in parts):
            return "metadata"
        if all(part in parts for part in _TABLE):
            return "table"
        if parts[0] in ("application/json", "*/*") and len(parts) == 1:
            break
    return "object"


def to_event_v1(obj: Manifest) -> Manifest:
    """Return a stored (core) event as events.k8s.io/v1 shows it."""
    renamed = {old: new for new, old in _RENAMED.items()}
    out = {renamed.get(name, name): value for name, value in obj.items()}
    out["apiVersion"] = "events.k8s.io/v1"
    for name in ("reportingController", "reportingInstance"):
        if not out.get(name):
            out.pop(name, None)
    series = out.get("series")
    if isinstance(series, dict):
        out["series"] = dict(series)
    return out


def to_core_event(obj: Manifest) -> Manifest:
    """Return an events.k8s.io/v1 event as it is stored: as a core event."""
    out = {_RENAMED.get(name, name): value for name, value in obj.items()}
    out["apiVersion"] = "v1"
    return out
