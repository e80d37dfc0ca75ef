"""Parts of the spec of a DemoVolume: sizes, sources, metadata of the claim."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from libs.common.crd import (
    HUGE,
    AnnotationMap,
    DnsSubdomain,
    IntOrQuantity,
    KubernetesModel,
    LabelMap,
    Rule,
)
from libs.common.quantity import MAX_BINARY, parse_quantity

MIN_SIZE: Final = 2**20
"""Smallest size in bytes; a smaller number probably lacks its unit."""
MAX_SIZE: Final = MAX_BINARY
"""Largest size in bytes that a quantity of Kubernetes can express."""

_GIBIBYTE: Final = 2**30
_BAD_SIZE: Final = "size must be 1Mi to 8Ei; an integer counts gibibytes, text needs a unit (10Gi)"


def parse_size(size: int | str) -> Fraction:
    """Parse a size into whole bytes, rounded up; an integer counts gibibytes.

    The API server rounds a claim of `3.3333Gi` to thousandths of a byte; without the rounding, the
    claim would always differ from its spec.

    Raises:
        ValueError: The text is not a quantity.
    """
    if isinstance(size, int):
        return Fraction(size * _GIBIBYTE)
    return Fraction(ceil(parse_quantity(size)))


def _check_size(size: int | str) -> int | str:
    if not MIN_SIZE <= parse_size(size) <= MAX_SIZE:
        raise ValueError(_BAD_SIZE)
    return size


Size = Annotated[
    IntOrQuantity,
    AfterValidator(_check_size),
    Rule(
        "type(self) == int ? self >= 1 && self <= 8589934591 : "
        f"{HUGE.format('self')} || !isQuantity(self) || "
        "quantity(self).compareTo(quantity('1Mi')) >= 0 && "
        "quantity(self).compareTo(quantity('8Ei')) <= 0",
        _BAD_SIZE,
    ),
]
"""A size: an integer counts gibibytes, text is a quantity."""


ClassName = Annotated[
    str,
    Field(
        max_length=253,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
    ),
]
"""The name of a StorageClass; empty for a volume that was created by hand."""


class VolumeSource(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.snapshot) != has(self.volume)",
            "source needs exactly one of snapshot and volume",
        ),
    ),
):
    """VolumeSource is the origin of the data in a new volume."""

    snapshot: DnsSubdomain | None = None
    """snapshot is the name of a VolumeSnapshot in the same namespace."""
    volume: DnsSubdomain | None = None
    """volume is the name of a DemoVolume in the same namespace, to be cloned."""


_RESERVED_DOMAINS: Final = (
    "pv.kubernetes.io",
    "volume.kubernetes.io",
    "volume.beta.kubernetes.io",
    "storage.slipway.dev",
)
_RESERVED: Final = Rule(
    f"self.all(key, !(key.split('/')[0] in {list(_RESERVED_DOMAINS)}))",
    "keys under pv.kubernetes.io, volume.kubernetes.io, volume.beta.kubernetes.io and "
    "storage.slipway.dev are not allowed",
)


def is_reserved_key(key: str) -> bool:
    """Return whether the key of a label or annotation belongs to Kubernetes or to the operator."""
    return key.partition("/")[0] in _RESERVED_DOMAINS


class ClaimMetadata(KubernetesModel):
    """ClaimMetadata is the metadata that the claim gets in addition to the operator's own."""

    labels: Annotated[LabelMap, _RESERVED] = {}
    """labels are set on the claim."""
    annotations: Annotated[AnnotationMap, _RESERVED] = {}
    """annotations are set on the claim."""


class DataSourceRef(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.apiGroup) || self.kind == 'PersistentVolumeClaim'",
            "apiGroup is required unless kind is PersistentVolumeClaim",
            field_path=".apiGroup",
        ),
    ),
):
    """DataSourceRef names the object from which a volume populator fills the volume."""

    api_group: DnsSubdomain | None = None
    """apiGroup is the API group of the object, or unset for a PersistentVolumeClaim."""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Z][A-Za-z0-9]*$")]
    """kind is the kind of the object."""
    name: DnsSubdomain
    """name is the name of the object, in the namespace of the DemoVolume."""
