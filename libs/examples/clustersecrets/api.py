"""ClusterSecret: fields, conditions and reasons."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from libs.common.crd import (
    AnnotationMap,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    Immutable,
    KubernetesModel,
    LabelMap,
    ListSet,
    ObjectStatus,
    Rule,
    ShortText,
    kind_of,
)


class ConditionType(StrEnum):
    """Conditions of a ClusterSecret."""

    READY = "Ready"
    """Ready is True if every selected namespace has an up-to-date Secret."""


class Reason(StrEnum):
    """Reasons of the conditions."""

    SYNCED = "Synced"
    """Synced means that every selected namespace has an up-to-date Secret."""
    FAILED = "Failed"
    """Failed means that some Secrets could not be written; the message names one of them."""
    SOURCE_NOT_FOUND = "SourceNotFound"
    """SourceNotFound means that the Secret of spec.valueFrom or one of its keys does not exist."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be parsed; the message names the field."""


def _check_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as err:
        raise ValueError(f"is not a regular expression: {err}") from None
    return value


Pattern = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(_check_pattern)]
"""A regular expression that matches the beginning of a name."""
Patterns = Annotated[list[Pattern], ListSet(), Field(max_length=100)]
"""Regular expressions, of which one must match."""
DataKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
"""The key of an entry in a Secret."""
Value = Annotated[str, Field(max_length=1_400_000)]
"""The base64-encoded value of an entry; a Secret has at most 1 MiB."""


class SecretKeys(KubernetesModel):
    """SecretKeys selects entries of a Secret."""

    namespace: DnsLabel
    """namespace is the namespace of the Secret."""
    name: DnsSubdomain
    """name is the name of the Secret."""
    keys: Annotated[list[DataKey], ListSet(), Field(max_length=100)] = []
    """keys are the entries to copy. Defaults to all."""


class ClusterSecretSpec(
    KubernetesModel,
    rules=(Rule("has(self.data) != has(self.valueFrom)", "set either data or valueFrom"),),
):
    """ClusterSecretSpec is the desired state."""

    match_namespaces: Patterns = [".*"]
    """matchNamespaces are the namespaces that get the Secret: regular expressions for the beginning
    of their names. Defaults to all namespaces."""
    avoid_namespaces: Patterns = []
    """avoidNamespaces are the namespaces that do not get the Secret, even if matchNamespaces
    selects them."""
    data: Annotated[dict[str, Value], Field(max_length=100)] | None = None
    """data are the entries of the Secret, base64-encoded. Everyone who can read ClusterSecrets can
    read them; use valueFrom to prevent this."""
    value_from: SecretKeys | None = None
    """valueFrom is the Secret to copy. Its changes are copied within a minute."""
    type: Annotated[ShortText, Immutable()] = "Opaque"
    """type is the type of the Secret. Defaults to Opaque. Immutable."""
    labels: LabelMap = {}
    """labels are added to each Secret."""
    annotations: AnnotationMap = {}
    """annotations are added to each Secret."""


class ClusterSecret(
    CustomResource,
    group="clustersecrets.example.com",
    version="v1alpha1",
    plural="clustersecrets",
    scope="Cluster",
    short_names=("csec",),
    conditions=ConditionType,
    reasons=Reason,
):
    """ClusterSecret keeps a Secret of its name in each of the selected namespaces."""

    spec: ClusterSecretSpec
    """spec is the desired state."""
    status: ObjectStatus | None = None
    """status is the observed state."""


CLUSTER_SECRET: Final = kind_of(ClusterSecret)
"""The kind ClusterSecret as data."""
RESOURCES: Final = (ClusterSecret,)
"""Every version of every kind of this operator."""
