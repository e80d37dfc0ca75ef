"""Which resources the server serves: the built-in ones, and those that CRDs add."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from libs.common.kinds import Kind, Manifest
from libs.common.testing.fakeapi.columns import Columns, build_custom_columns, find_columns
from libs.common.testing.fakeapi.schema import FREE, Definitions, Schema, build_custom_schema

type Table = tuple[str, str]
"""Group and plural: what the store keeps objects under, whatever version they came in."""

CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""Verbs of custom kinds, in the order in which discovery names them."""
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

_FIELDS: Mapping[str, frozenset[str]] = {
    "services": frozenset({"spec.clusterIP", "spec.type"}),
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "events": frozenset(
        {
            *(f"involvedObject.{f}" for f in ("kind", "namespace", "name", "uid", "apiVersion")),
            *(f"regarding.{f}" for f in ("kind", "namespace", "name", "uid", "apiVersion")),
            "reason",
            "type",
            "source",
            "reportingComponent",
            "reportingController",
        }
    ),
    "secrets": frozenset({"type"}),
    "namespaces": frozenset({"status.phase"}),
    "nodes": frozenset({"spec.unschedulable"}),
    "jobs": frozenset({"status.successful"}),
    "replicasets": frozenset({"status.replicas"}),
}
"""Fields besides metadata.name and metadata.namespace that a built-in resource can select by."""


@dataclass(slots=True)
class Version:
    """One served version of a resource.

    Attributes:
        name: Such as `v1`.
        schema: What objects look like in this version.
        subresources: Declared subresources, each with what the CRD or discovery says about it.
        columns: What a table shows of objects in this version.
        selectable: Fields that field selectors may name.
    """

    name: str
    schema: Schema
    subresources: dict[str, Manifest]
    columns: Columns
    selectable: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Resource:
    """One resource with all its served versions.

    Attributes:
        custom: Whether a CRD defines it.
        verbs: What discovery says can be done.
        storage: Version that objects are stored in.
    """

    group: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...] = VERBS
    custom: bool = False
    storage: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""
    versions: dict[str, Version] = field(default_factory=dict)
    table: Table = ("", "")

    def __post_init__(self) -> None:
        """Fill in what follows from the names."""
        self.table = self.table if self.table[1] else (self.group, self.plural)
        self.list_kind = self.list_kind or f"{self.kind}List"

    def api_version(self, version: str) -> str:
        """Return the `apiVersion` of objects in a version."""
        return f"{self.group}/{version}" if self.group else version

    def of_kind(self, version: str = "") -> Kind:
        """Return the `Kind` for a version, by default the stored one."""
        return Kind(self.group, version or self.storage, self.kind, self.plural, self.namespaced)


class Registry:
    """The resources, by path, by kind and by table."""

    def __init__(self) -> None:
        """Start with the built-in resources of the API server that was imitated."""
        self.definitions, builtins = _load_builtins()
        self._by_path: dict[tuple[str, str], Resource] = {}
        for entry in builtins:
            self._add_builtin(entry)

    def __iter__(self) -> Iterator[Resource]:
        """Iterate over all resources, in the order in which they were added."""
        return iter(self._by_path.values())

    def find(self, group: str, version: str, plural: str) -> tuple[Resource, Version] | None:
        """Return the resource and version that a path names, or None."""
        resource = self._by_path.get((group, plural))
        found = resource.versions.get(version) if resource else None
        return (resource, found) if resource and found else None

    def of(self, kind: Kind) -> tuple[Resource, Version]:
        """Return the resource and version of a kind.

        Raises:
            KeyError: It is not served; register a CRD first.
        """
        found = self.find(kind.group, kind.version, kind.plural)
        if found is None:
            raise KeyError(f"{kind}: not served by the fake API; call api.register(kind) first")
        return found

    def at(self, table: Table) -> Resource | None:
        """Return the resource that a table of the store belongs to, or None."""
        return self._by_path.get(table)

    def by_gvk(self, api_version: str, kind: str) -> tuple[Resource, Version] | None:
        """Return the resource and version of what a manifest or an owner reference names."""
        group, _, version = api_version.rpartition("/")
        for resource in self._by_path.values():
            if resource.group == group and resource.kind == kind and version in resource.versions:
                return resource, resource.versions[version]
        return None

    def serves(self, group: str, version: str) -> bool:
        """Return whether any resource of a group and version is served."""
        return any(r.group == group and version in r.versions for r in self)

    def add_crd(self, crd: Mapping[str, Any]) -> Resource:
        """Serve what a CustomResourceDefinition describes, in place of what it said before."""
        spec = crd["spec"]
        names = spec["names"]
        resource = Resource(
            group=spec["group"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names.get("singular") or names["kind"].lower(),
            namespaced=spec["scope"] == "Namespaced",
            custom=True,
            verbs=CUSTOM_VERBS,
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            list_kind=names.get("listKind", ""),
        )
        for raw in spec["versions"]:
            if raw.get("storage"):
                resource.storage = raw["name"]
            if raw.get("served", True):
                resource.versions[raw["name"]] = self._custom_version(raw)
        self._by_path[(resource.group, resource.plural)] = resource
        return resource

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a resource."""
        self._by_path.pop((group, plural), None)

    def _custom_version(self, raw: Mapping[str, Any]) -> Version:
        declared = raw.get("schema", {}).get("openAPIV3Schema", {"type": "object"})
        return Version(
            raw["name"],
            build_custom_schema(declared, self.definitions),
            {name: dict(value or {}) for name, value in (raw.get("subresources") or {}).items()},
            build_custom_columns(raw.get("additionalPrinterColumns") or ()),
            frozenset(f["jsonPath"].lstrip(".") for f in raw.get("selectableFields") or ()),
        )

    def _add_builtin(self, entry: Mapping[str, Any]) -> None:
        where = (entry["group"], entry["name"])
        version = Version(
            entry["version"],
            self.definitions.get(entry["schema"]),
            dict(entry["subresources"]),
            find_columns(entry["group"], entry["name"]),
            _FIELDS.get(entry["name"], frozenset()),
        )
        known = self._by_path.get(where)
        if known is None:
            known = self._by_path[where] = Resource(
                group=entry["group"],
                plural=entry["name"],
                kind=entry["kind"],
                singular=entry["singularName"],
                namespaced=entry["namespaced"],
                verbs=tuple(entry["verbs"]),
                short_names=tuple(entry.get("shortNames", ())),
                categories=tuple(entry.get("categories", ())),
                # Both event APIs are views of the same stored objects.
                table=("", "events") if entry["name"] == "events" else ("", ""),
            )
        known.versions[entry["version"]] = version
        known.storage = entry["version"]


def build_crd(
    kind: Kind, schema: Mapping[str, Any] | None, subresources: Iterable[str]
) -> Manifest:
    """Build a CRD for a kind, for tests that have no generated one at hand.

    Args:
        kind: What to serve.
        schema: `openAPIV3Schema`; None accepts anything.
        subresources: `status`, `scale` or both.
    """
    paths = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": (
                            dict(schema)
                            if schema is not None
                            else dict(FREE.raw) | {"type": "object"}
                        )
                    },
                    "subresources": {s: paths if s == "scale" else {} for s in subresources},
                }
            ],
        },
    }


@cache
def _load_builtins() -> tuple[Definitions, list[Manifest]]:
    raw = orjson.loads(Path(__file__).with_name("builtins.json").read_bytes())
    return Definitions(raw["definitions"]), raw["resources"]
