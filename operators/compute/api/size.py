"""InstanceSize v1alpha1: the processors, memory and disk of an Instance."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    CustomResource,
    KubernetesModel,
    PrinterColumn,
    Quantity,
    Rule,
    ShortText,
    kind_of,
)
from libs.common.kinds import Kind
from libs.contracts.compute import COMPUTE_GROUP
from libs.contracts.disks import AT_LEAST, DiskAmount

MAX_CPUS: Final = 512
"""Maximum number of processors that KubeVirt gives to a guest."""

MemoryAmount = Annotated[Quantity, Rule(AT_LEAST.format("64Mi"), "must be at least 64Mi")]
"""An amount of memory with which a guest can boot; a smaller number probably lacks its unit."""


class InstanceSizeSpec(
    KubernetesModel,
    rules=(
        Rule(
            "self == oldSelf",
            "an InstanceSize is immutable: create another one and resize instances to it",
        ),
    ),
):
    """InstanceSizeSpec describes the resources of an Instance of this size."""

    cpus: Annotated[int, Field(ge=1, le=MAX_CPUS)]
    """cpus is the number of processors that the guest sees."""
    memory: MemoryAmount
    """memory is the memory of the guest, such as 4Gi."""
    disk: DiskAmount = "10Gi"
    """disk is the default size of the root disk."""
    description: ShortText = ""
    """description helps people choose a size."""


class InstanceSize(
    CustomResource,
    group=COMPUTE_GROUP,
    version="v1alpha1",
    plural="instancesizes",
    scope="Cluster",
    short_names=("isize",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Cpus", "integer", ".spec.cpus"),
        PrinterColumn("Memory", "string", ".spec.memory"),
        PrinterColumn("Disk", "string", ".spec.disk"),
        PrinterColumn("Description", "string", ".spec.description", priority=1),
        AGE,
    ),
):
    """InstanceSize defines the processors, memory and disk of an Instance."""

    spec: InstanceSizeSpec
    """spec is the size of an Instance."""


INSTANCE_SIZE: Final[Kind] = kind_of(InstanceSize)
"""The kind as data."""
