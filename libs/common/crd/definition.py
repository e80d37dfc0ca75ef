"""Custom resources: a model of the whole object, and the metadata of its CRD."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, ValidationError, field_validator

from libs.common.conditions import READY
from libs.common.crd.errors import FieldError, ParseError
from libs.common.crd.model import KubernetesModel
from libs.common.crd.objects import ObjectMeta
from libs.common.kinds import Key, Kind, Manifest

type Scope = Literal["Namespaced", "Cluster"]

_PYDANTIC_SUBJECT: Final = re.compile(r"^(Input|[A-Z][a-z]+) should ")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`.

    Attributes:
        type: OpenAPI type of the value; `date` shows an age.
        json_path: Path of the value, such as `.status.readyReplicas`.
        description: Sentence for `kubectl explain`-like tools.
        priority: 0 is always shown, 1 only with `-o wide`.
    """

    name: str
    type: Literal["string", "integer", "date", "boolean", "number"]
    json_path: str
    description: str = ""
    priority: Literal[0, 1] = 0

    def to_manifest(self) -> Manifest:
        """Build the entry of `additionalPrinterColumns`."""
        column: Manifest = {"name": self.name, "type": self.type, "jsonPath": self.json_path}
        if self.description:
            column["description"] = self.description
        if self.priority:
            column["priority"] = self.priority
        return column


READY_COLUMN: Final = PrinterColumn(
    "Ready", "string", f'.status.conditions[?(@.type=="{READY}")].status'
)
"""The column that shows whether an object is Ready."""
AGE: Final = PrinterColumn("Age", "date", ".metadata.creationTimestamp")
"""The last column of each table."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale subresource: what `kubectl scale` and autoscalers use.

    Attributes:
        label_selector: Path of the selector as text; needed by autoscalers.
    """

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str = ""

    def to_manifest(self) -> Manifest:
        """Build `subresources.scale`."""
        scale: Manifest = {
            "specReplicasPath": self.spec_replicas,
            "statusReplicasPath": self.status_replicas,
        }
        if self.label_selector:
            scale["labelSelectorPath"] = self.label_selector
        return scale


@dataclass(frozen=True, slots=True, kw_only=True)
class CrdMeta:
    """The parts of a CustomResourceDefinition other than the schema.

    Attributes:
        kind: Group, version, kind, plural and scope.
        singular: Singular resource name.
        short_names: Short names that `kubectl get` accepts.
        categories: Groups of kinds that `kubectl get` lists together.
        columns: Columns of `kubectl get`.
        scale: The scale subresource, if any.
        storage: Whether objects are stored in this version; exactly one version of a kind is the
            storage version.
        selectable: Paths that field selectors can use in addition to metadata, such as
            `.spec.pool`.
        served: Whether the API server serves this version.
        deprecated: Warning that users of this version get; empty when it is not deprecated.
        conditions: Condition types with their docstrings.
        reasons: Condition and event reasons with their docstrings.
    """

    kind: Kind
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: Scale | None = None
    selectable: tuple[str, ...] = ()
    storage: bool = True
    served: bool = True
    deprecated: str = ""
    conditions: type[StrEnum] | None = None
    reasons: type[StrEnum] | None = None

    @property
    def name(self) -> str:
        """Name of the CustomResourceDefinition: `<plural>.<group>`."""
        return self.kind.resource


class CustomResource(KubernetesModel):
    """A whole object of a custom kind; subclasses add `spec` and mostly `status`.

    A field `status` enables the status subresource.

    Class arguments describe the CRD: `class PodSet(CustomResource, group=..., version=...)`.
    `selectable` has paths such as `.spec.pool`; `deprecated` is a warning to users.
    """

    crd_meta: ClassVar[CrdMeta]

    api_version: str = Field(default="", validate_default=True)
    """apiVersion is the group and version of the object."""
    kind: str = Field(default="", validate_default=True)
    """kind is the kind of the object."""
    metadata: ObjectMeta = ObjectMeta()
    """metadata is the standard metadata of the object."""

    def __init_subclass__(
        cls,
        *,
        group: str,
        version: str,
        plural: str,
        kind: str = "",
        singular: str = "",
        scope: Scope = "Namespaced",
        short_names: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        columns: tuple[PrinterColumn, ...] | None = None,
        scale: Scale | None = None,
        selectable: tuple[str, ...] = (),
        storage: bool = True,
        served: bool = True,
        deprecated: str = "",
        conditions: type[StrEnum] | None = None,
        reasons: type[StrEnum] | None = None,
        **kwargs: Any,
    ) -> None:
        """Store the metadata of the CRD; see `CrdMeta` for the arguments.

        Columns default to the condition Ready, if the kind has it, and the age.
        """
        super().__init_subclass__(**kwargs)
        name = kind or cls.__name__
        default = (READY_COLUMN, AGE) if conditions is not None and READY in set(conditions) else ()
        cls.crd_meta = CrdMeta(
            kind=Kind(group, version, name, plural, namespaced=scope == "Namespaced"),
            singular=singular or name.lower(),
            short_names=short_names,
            categories=categories,
            columns=default if columns is None else columns,
            scale=scale,
            selectable=selectable,
            storage=storage,
            served=served,
            deprecated=deprecated,
            conditions=conditions,
            reasons=reasons,
        )

    @field_validator("api_version")
    @classmethod
    def _check_api_version(cls, value: str) -> str:
        return _check_same(value, cls.crd_meta.kind.api_version)

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, value: str) -> str:
        return _check_same(value, cls.crd_meta.kind.kind)

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Read an object of this kind.

        Raises:
            ParseError: The object does not match the model; the error names each invalid field.
        """
        return parse(cls, manifest)

    def to_manifest(self) -> Manifest:
        """Render the whole object; metadata contains only known fields."""
        manifest = super().to_manifest()
        manifest["metadata"] = {
            name: value for name, value in manifest["metadata"].items() if value
        }
        return manifest


def kind_of(model: type[CustomResource]) -> Kind:
    """Return the kind that a model describes."""
    return model.crd_meta.kind


def parse[M: KubernetesModel](model: type[M], manifest: Manifest) -> M:
    """Read a manifest into a model.

    Raises:
        ParseError: The manifest does not match: `PodSet default/web: spec.replicas: ...`.
    """
    try:
        return model.from_manifest(manifest)
    except ValidationError as err:
        raise ParseError(_describe(model, manifest), _field_errors(err)) from err


def _check_same(value: str, expected: str) -> str:
    if value and value != expected:
        raise ValueError(f"must be {expected!r}, not {value!r}")
    return expected


def _describe(model: type[KubernetesModel], manifest: Manifest) -> str:
    metadata = manifest.get("metadata")
    # Input that does not match the model can have any shape.
    metadata = metadata if isinstance(metadata, dict) else {}
    key = Key(metadata.get("namespace") or "", metadata.get("name") or "")
    name = model.crd_meta.kind.kind if issubclass(model, CustomResource) else model.__name__
    return f"{name} {key}".rstrip()


def _field_errors(err: ValidationError) -> list[FieldError]:
    return [
        FieldError(_render_path(error["loc"]), _render_message(error["msg"], error["type"]))
        for error in err.errors(include_url=False, include_input=False, include_context=False)
    ]


def _render_path(location: Sequence[int | str]) -> str:
    path = ""
    # An invalid key of a map is named in the message; the path is the path of the map.
    for part in location[:-2] if location[-1:] == ("[key]",) else location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _render_message(message: str, kind: str) -> str:
    """Remove pydantic's prefix and keep the sentence that helps a person."""
    if kind == "missing":
        return "is required"
    message = message.removeprefix("Value error, ")
    return _PYDANTIC_SUBJECT.sub("must ", message)
