"""What clients see of stored objects: selections, versions, metadata-only forms, scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.selectors import labels_of, parse_fields, parse_labels
from libs.common.testing.fakeapi.store import Record

_META_VERSION = "meta.k8s.io/v1"
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
        parse_fields(
            fields,
            target.resource.plural,
            target.version.selectable,
            builtin=not target.resource.custom,
        ),
        view,
    )


@dataclass(frozen=True, slots=True)
class View:
    """The representation of stored records that one request asked for.

    Attributes:
        target: Version that the client speaks.
        metadata_only: Whether it asked for `PartialObjectMetadata`.
    """

    target: Target
    metadata_only: bool = False
    _list: bool = field(default=False, repr=False)

    def shaped(self, obj: Manifest) -> Manifest:
        """Return the object in the version of the request; not to be changed."""
        if self.target.resource.group == "events.k8s.io":
            return to_event_v1(obj)
        wanted = self.target.api_version
        return obj if obj["apiVersion"] == wanted else {**obj, "apiVersion": wanted}

    def shown(self, obj: Manifest) -> Manifest:
        """Return what the client gets of an object."""
        if self.metadata_only:
            return {
                "kind": "PartialObjectMetadata",
                "apiVersion": _META_VERSION,
                "metadata": obj["metadata"],
            }
        return self.shaped(obj)

    def encode(self, record: Record) -> bytes:
        """Encode one object; the encoding of the stored version is shared."""
        obj = record.obj
        if not self.metadata_only and obj["apiVersion"] == self.target.api_version:
            return record.raw
        return orjson.dumps(self.shown(obj))

    def encode_item(self, record: Record) -> bytes:
        """Encode an item of a list: built-in kinds come without `apiVersion` and `kind`."""
        if self.metadata_only or self.target.resource.custom:
            return self.encode(record)
        if record.obj["apiVersion"] == self.target.api_version:
            return record.bare
        shown = self.shown(record.obj)
        return orjson.dumps({k: v for k, v in shown.items() if k not in ("apiVersion", "kind")})

    def encode_list(self, items: list[bytes], metadata: Manifest) -> bytes:
        """Encode a list of encoded items."""
        if self.metadata_only:
            kind, version = "PartialObjectMetadataList", _META_VERSION
        else:
            kind, version = self.target.resource.list_kind, self.target.api_version
        head = {"kind": kind, "apiVersion": version, "metadata": metadata}
        return orjson.dumps(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def accepts_metadata(accept: str) -> bool:
    """Return whether an `Accept` header asks for metadata only."""
    return "as=PartialObjectMetadata" in accept


def to_event_v1(obj: Manifest) -> Manifest:
    """Return a stored (core) event as events.k8s.io/v1 shows it."""
    renamed = {old: new for new, old in _RENAMED.items()}
    out = {renamed.get(name, name): value for name, value in obj.items()}
    out["apiVersion"] = "events.k8s.io/v1"
    series = out.get("series")
    if isinstance(series, dict):
        out["series"] = dict(series)
    return out


def to_core_event(obj: Manifest) -> Manifest:
    """Return an events.k8s.io/v1 event as it is stored: as a core event."""
    out = {_RENAMED.get(name, name): value for name, value in obj.items()}
    out["apiVersion"] = "v1"
    return out
