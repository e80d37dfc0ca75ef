"""The base of every model of the Kubernetes API."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from libs.common.crd.markers import VALIDATIONS, Rule, join_keywords
from libs.common.kinds import Manifest


class KubernetesModel(BaseModel):
    """A part of a Kubernetes object: camelCase in JSON, Python names in code.

    Instances are frozen. Unknown fields are ignored, because a newer version of the CRD may have
    them; `extra="allow"` keeps them, in the API server as well. The docstring under a field is its
    description and begins with the serialized name.

    Attributes:
        crd_rules: CEL rules on the whole object, from `class X(KubernetesModel, rules=...)`.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        extra="ignore",
        frozen=True,
    )

    crd_rules: ClassVar[tuple[Rule, ...]] = ()

    def __init_subclass__(cls, *, rules: tuple[Rule, ...] = (), **kwargs: Any) -> None:
        """Add the rules of this class to the rules of its bases."""
        super().__init_subclass__(**kwargs)
        cls.crd_rules = (*cls.crd_rules, *rules)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Manifest:
        """Write the rules of the class into its schema."""
        reference = handler(core_schema)
        if cls.crd_rules:
            schema = handler.resolve_ref_schema(reference)
            rules = [rule.to_manifest() for rule in cls.crd_rules]
            schema.update(join_keywords(dict(schema), {VALIDATIONS: rules}))
        return reference

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """Read a part of a manifest; serialized names only.

        Raises:
            pydantic.ValidationError: The part does not match the model.
        """
        return cls.model_validate(manifest, by_alias=True, by_name=False)

    def to_manifest(self) -> Manifest:
        """Render as a part of a manifest: serialized names, JSON types, without absent fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
