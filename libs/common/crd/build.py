"""Build CustomResourceDefinition manifests from models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from libs.common.crd.definition import CrdMeta, CustomResource
from libs.common.crd.errors import SchemaError
from libs.common.crd.schema import StructuralSchema, build_schema
from libs.common.kinds import CRD, Manifest, build_object

_API_VERSION_NOTE: Final = (
    "apiVersion is the group and version of this representation of the object."
)
_KIND_NOTE: Final = "kind is the name of the REST resource that this object represents."


def build_object_schema(model: type[CustomResource]) -> StructuralSchema:
    """Build the schema of a whole object of one version.

    Raises:
        SchemaError: Fields of the model have no counterpart in a structural schema.
    """
    built = build_schema(model)
    schema = dict(built.schema)
    properties: Manifest = {
        "apiVersion": {"description": _API_VERSION_NOTE, "type": "string"},
        "kind": {"description": _KIND_NOTE, "type": "string"},
        "metadata": {"type": "object"},
    }
    for name, field in schema["properties"].items():
        if name not in properties:
            properties[name] = _describe_field(model, name, field)
    if "status" in properties:
        properties["status"] = _mark_unobserved(_drop_defaults(properties["status"]))
    schema["properties"] = properties
    return StructuralSchema(schema, built.waivers)


def build_crd(*models: type[CustomResource]) -> Manifest:
    """Build the CustomResourceDefinition of a kind from the models of its versions.

    Raises:
        SchemaError: A model has no structural schema, or the versions are inconsistent.
    """
    metas = [model.crd_meta for model in models]
    check_versions(models)
    meta = metas[0]
    return build_object(
        CRD,
        meta.name,
        spec={
            "group": meta.kind.group,
            "names": _build_names(meta),
            "scope": "Namespaced" if meta.kind.namespaced else "Cluster",
            "versions": [_build_version(model) for model in models],
        },
    )


def _build_names(meta: CrdMeta) -> Manifest:
    names: Manifest = {
        "kind": meta.kind.kind,
        "listKind": f"{meta.kind.kind}List",
        "plural": meta.kind.plural,
        "singular": meta.singular,
    }
    if meta.short_names:
        names["shortNames"] = list(meta.short_names)
    if meta.categories:
        names["categories"] = list(meta.categories)
    return names


def _build_version(model: type[CustomResource]) -> Manifest:
    meta = model.crd_meta
    schema = build_object_schema(model).schema
    version: Manifest = {"name": meta.kind.version, "served": meta.served, "storage": meta.storage}
    if meta.deprecated:
        version |= {"deprecated": True, "deprecationWarning": meta.deprecated}
    if meta.columns:
        version["additionalPrinterColumns"] = [column.to_manifest() for column in meta.columns]
    if meta.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in meta.selectable]
    subresources: Manifest = {"status": {}} if "status" in schema["properties"] else {}
    if meta.scale is not None:
        subresources["scale"] = meta.scale.to_manifest()
    if subresources:
        version["subresources"] = subresources
    version["schema"] = {"openAPIV3Schema": schema}
    return version


def check_versions(models: Sequence[type[CustomResource]]) -> None:
    """Check that models are versions of one kind.

    Raises:
        SchemaError: They are not.
    """
    if not models:
        raise SchemaError("a kind without versions", ["pass at least one model"])
    metas = [model.crd_meta for model in models]
    problems = []
    if sum(meta.storage for meta in metas) != 1:
        problems.append("exactly one version must have storage=True")
    problems += [
        f"{field} must be the same in all versions"
        for field in ("singular", "short_names", "categories")
        if len({getattr(meta, field) for meta in metas}) > 1
    ]
    if len({(m.kind.group, m.kind.kind, m.kind.plural, m.kind.namespaced) for m in metas}) > 1:
        problems.append("group, kind, plural and scope must be the same in all versions")
    versions = [meta.kind.version for meta in metas]
    if len(set(versions)) < len(versions):
        problems.append(f"each version may occur once: {', '.join(versions)}")
    if problems:
        raise SchemaError(metas[0].kind.kind, problems)


def _describe_field(model: type[CustomResource], name: str, field: Manifest) -> Manifest:
    """Add the usual description to `spec` and `status` if the author wrote none."""
    usual = {
        "spec": f"spec is the desired state of the {model.crd_meta.kind.kind}.",
        "status": f"status is the observed state of the {model.crd_meta.kind.kind}.",
    }
    own = model.model_fields[name].description if name in model.model_fields else None
    if own or name not in usual:
        return field
    return {**field, "description": usual[name]}


def _mark_unobserved(status: Manifest) -> Manifest:
    """Give objects that no operator has seen a status that says so.

    For kstatus, by which Flux and others wait, an object without a status is Current. A generation
    is 1 or more, so an observed generation of 0 is of an older spec.
    """
    if "observedGeneration" in status["properties"] and not status.get("required"):
        return {**status, "default": {"observedGeneration": 0}}
    return status


def _drop_defaults(node: Any) -> Any:
    """Drop every default of a status: a default must not look like an observation."""
    if isinstance(node, list):
        return [_drop_defaults(item) for item in node]
    if not isinstance(node, dict):
        return node
    # A property may be named default: only the keyword is dropped, a property is a schema.
    kept = {name: value for name, value in node.items() if name != "default"}
    if "properties" in kept:
        kept["properties"] = {
            name: _drop_defaults(field) for name, field in kept["properties"].items()
        }
    for name in ("items", "additionalProperties"):
        if name in kept:
            kept[name] = _drop_defaults(kept[name])
    return kept
