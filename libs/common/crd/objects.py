"""Models of parts that many APIs share: metadata, references, selectors, conditions, templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from libs.common.crd.markers import (
    LIST_MAP_KEYS,
    LIST_TYPE,
    PRESERVE_UNKNOWN,
    ListMap,
    ListSet,
    Rule,
    Verbatim,
)
from libs.common.crd.model import KubernetesModel
from libs.common.crd.types import (
    AnnotationMap,
    DnsSubdomain,
    LabelKey,
    LabelMap,
    LabelValue,
    LongText,
    ObservedGeneration,
    ShortText,
    Timestamp,
    Uid,
)
from libs.common.kinds import Key, Manifest
from libs.common.labels import matches_selector


class OwnerReference(KubernetesModel):
    """OwnerReference names an owner of an object."""

    api_version: str
    """apiVersion is the group and version of the owner."""
    kind: str
    """kind is the kind of the owner."""
    name: str
    """name is the name of the owner."""
    uid: str
    """uid is the UID of the owner."""
    controller: bool = False
    """controller is true if the owner is the managing controller."""
    block_owner_deletion: bool = False
    """blockOwnerDeletion is true if foreground deletion of the owner waits for this object."""


class ObjectMeta(KubernetesModel):
    """ObjectMeta is the part of the metadata of an object that operators read."""

    name: str = ""
    """name is the name of the object, unique in the namespace."""
    namespace: str = ""
    """namespace is empty for cluster-scoped kinds."""
    uid: str = ""
    """uid is assigned by the API server."""
    resource_version: str = ""
    """resourceVersion changes with each write."""
    generation: int = 0
    """generation changes with each write of the spec."""
    creation_timestamp: Timestamp | None = None
    """creationTimestamp is the time at which the object was created."""
    deletion_timestamp: Timestamp | None = None
    """deletionTimestamp is set when deletion is requested."""
    labels: dict[str, str] = {}
    """labels are key-value pairs for selection."""
    annotations: dict[str, str] = {}
    """annotations are key-value pairs that are not used for selection."""
    finalizers: list[str] = []
    """finalizers must be removed before the object is deleted."""
    owner_references: list[OwnerReference] = []
    """ownerReferences name the owners."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)

    @property
    def is_deleting(self) -> bool:
        """Whether deletion was requested."""
        return self.deletion_timestamp is not None


class StatusCondition(KubernetesModel):
    """StatusCondition is a condition in the status of an object."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """type is the type of the condition, in UpperCamelCase."""
    status: Literal["True", "False", "Unknown"]
    """status is True, False or Unknown."""
    observed_generation: ObservedGeneration | None = None
    """observedGeneration is the generation of the spec that the condition is based on."""
    last_transition_time: Timestamp
    """lastTransitionTime is the time at which status last changed."""
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """reason is the cause of the last change, in UpperCamelCase."""
    message: LongText
    """message describes the reason to people."""


Conditions = Annotated[list[StatusCondition], ListMap("type"), Field(max_length=32)]
"""The conditions of a status, at most one of each type."""


class ObjectStatus(KubernetesModel):
    """ObjectStatus is the observed state of an object. Subclasses add fields."""

    conditions: Conditions = []
    """conditions report whether the object matches its spec, and why not."""
    observed_generation: ObservedGeneration = 0
    """observedGeneration is the generation of the spec that this status is about."""


_VALUES_RULE: Final = Rule(
    "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
    "values must be set for In and NotIn, and only for them",
    field_path=".values",
)


class LabelSelectorRequirement(KubernetesModel, rules=(_VALUES_RULE,)):
    """LabelSelectorRequirement is a rule of a label selector."""

    key: LabelKey
    """key is the label to which the rule applies."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """operator relates the label to the values."""
    values: Annotated[list[LabelValue], Field(max_length=64)] = []
    """values are the values for In and NotIn."""


class LabelSelector(KubernetesModel):
    """LabelSelector selects objects by their labels. An empty selector selects all objects."""

    match_labels: LabelMap = {}
    """matchLabels are labels that must all exist with these values."""
    match_expressions: Annotated[list[LabelSelectorRequirement], Field(max_length=32)] = []
    """matchExpressions are rules that must all match."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy the selector."""
        return matches_selector(self.to_manifest(), labels)


class LocalObjectReference(KubernetesModel):
    """LocalObjectReference names an object of a known kind in the same namespace."""

    name: DnsSubdomain
    """name is the name of the object."""


class ObjectReference(KubernetesModel):
    """ObjectReference names an object and its UID, for status fields."""

    name: DnsSubdomain
    """name is the name of the object."""
    uid: Uid = ""
    """uid distinguishes the object from later objects of the same name."""


_POD_SPEC: Final = {
    "type": "object",
    "required": ["containers"],
    "properties": {
        "containers": {
            "description": "containers are the containers of the pod, as in any Pod.",
            "type": "array",
            "minItems": 1,
            "maxItems": 64,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {
                        "description": "name is the name of the container, unique in the pod.",
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 63,
                    }
                },
                PRESERVE_UNKNOWN: True,
            },
            LIST_TYPE: "map",
            LIST_MAP_KEYS: ["name"],
        }
    },
    PRESERVE_UNKNOWN: True,
}

PodSpec = Annotated[Manifest, Verbatim(_POD_SPEC)]
"""The spec of a pod as a raw object. The API server checks only that containers have names.

The full schema of a pod takes half a megabyte in a CRD; the API server reports other errors when
the pod is created.
"""


# No format: with one, the API server accepts a list in place of a string.
_NULL_TIME: Final = {"type": "string", "maxLength": 64, "nullable": True}


class TemplateMeta(KubernetesModel):
    """TemplateMeta is the metadata of objects that are created from a template."""

    labels: LabelMap = {}
    """labels are added to each object."""
    annotations: AnnotationMap = {}
    """annotations are added to each object."""
    creation_timestamp: Annotated[str | None, Verbatim(_NULL_TIME)] = None
    """creationTimestamp has no effect. Many tools write it, mostly as null, and server-side apply
    refuses a field that is not declared."""
    name: ShortText | None = None
    """name has no effect, as in a Deployment: the operator names each object."""
    namespace: ShortText | None = None
    """namespace has no effect, as in a Deployment."""


class PodMeta(TemplateMeta):
    """PodMeta is the metadata of pods that are created from a template."""

    finalizers: Annotated[list[ShortText], Field(max_length=16), ListSet()] = []
    """finalizers are added to each pod; whoever owns them must remove them from a deleted pod."""


class PodTemplate(KubernetesModel):
    """PodTemplate describes the pods to create."""

    metadata: PodMeta = PodMeta()
    """metadata holds the labels, annotations and finalizers of the pods."""
    spec: PodSpec
    """spec is the spec of the pods, as in any Pod."""
