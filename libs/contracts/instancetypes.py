"""Instancetypes and preferences of KubeVirt: resources and devices that a machine refers to.

KubeVirt stores the instancetype of a machine in a ControllerRevision, so later changes of the
instancetype do not reach machines that use it. While a machine refers to an instancetype that
neither exists nor is stored in a revision, KubeVirt neither starts nor stops the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal, Self

from libs.common.kinds import Key, Kind, Manifest, is_deleting, uid_of
from libs.common.reading import map_at, quantity_at, text_at

INSTANCETYPE_GROUP: Final = "instancetype.kubevirt.io"
"""API group of instancetypes and preferences."""
CLUSTER_INSTANCETYPE: Final = Kind(
    INSTANCETYPE_GROUP,
    "v1beta1",
    "VirtualMachineClusterInstancetype",
    "virtualmachineclusterinstancetypes",
    namespaced=False,
)
"""Processors, memory and host devices of machines, for all namespaces."""
INSTANCETYPE: Final = Kind(
    INSTANCETYPE_GROUP, "v1beta1", "VirtualMachineInstancetype", "virtualmachineinstancetypes"
)
"""The same for one namespace."""
CLUSTER_PREFERENCE: Final = Kind(
    INSTANCETYPE_GROUP,
    "v1beta1",
    "VirtualMachineClusterPreference",
    "virtualmachineclusterpreferences",
    namespaced=False,
)
"""Devices, firmware and CPU topology that suit a guest, for all namespaces."""
PREFERENCE: Final = Kind(
    INSTANCETYPE_GROUP, "v1beta1", "VirtualMachinePreference", "virtualmachinepreferences"
)
"""The same for one namespace."""
MATCHED_KINDS: Final[Mapping[str, Kind]] = {
    kind.kind: kind for kind in (CLUSTER_INSTANCETYPE, INSTANCETYPE, CLUSTER_PREFERENCE, PREFERENCE)
}
"""Kinds that a machine can name, by the name of the kind."""

STARTED_WITH: Final[Mapping[str, str]] = {
    CLUSTER_INSTANCETYPE.kind: "kubevirt.io/cluster-instancetype-name",
    INSTANCETYPE.kind: "kubevirt.io/instancetype-name",
}
"""Annotation of a VMI, by kind of instancetype; its value names the instancetype at the start."""
FAILED_FIND: Final = frozenset({"FailedFindInstancetype", "FailedFindPreference"})
"""Reasons of the condition Failure of a machine that refers to a missing object."""

type MatcherField = Literal["instancetype", "preference"]


@dataclass(frozen=True, slots=True)
class Matcher:
    """Reference to an instancetype or to a preference.

    Attributes:
        kind: Kind in the canonical spelling.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        """Render for messages: `VirtualMachineClusterInstancetype u1.small`."""
        return f"{self.kind} {self.name}"

    def locate(self, namespace: str) -> tuple[Kind, Key]:
        """Return kind and key of the object, for a machine in the given namespace."""
        kind = MATCHED_KINDS[self.kind]
        return kind, Key(namespace if kind.namespaced else "", self.name)


@dataclass(frozen=True, slots=True)
class MatcherState:
    """Reference of a machine, and the revision that KubeVirt stored for it.

    Attributes:
        matcher: The object that the machine refers to.
        revision: Name of the ControllerRevision with its content; empty while there is none.
    """

    matcher: Matcher
    revision: str = ""

    @classmethod
    def parse(cls, manifest: Mapping[str, Any], field: MatcherField) -> Self | None:
        """Parse a matcher field of a VirtualMachine; None if it is not set."""
        asked, held = map_at(manifest, "spec", field), map_at(manifest, "status", f"{field}Ref")
        name = text_at(asked, "name")
        if not name:
            return None
        default = {"instancetype": CLUSTER_INSTANCETYPE, "preference": CLUSTER_PREFERENCE}[field]
        kind = _spell(text_at(asked, "kind") or default.kind)
        same = text_at(held, "name") == name and _spell(text_at(held, "kind")) in ("", kind)
        revision = text_at(held, "controllerRevisionRef", "name") if same else ""
        # Older releases write the revision into the spec.
        return cls(Matcher(kind, name), revision or text_at(asked, "revisionName"))


def _spell(kind: str) -> str:
    """Return the canonical name of a kind; KubeVirt also accepts its plural, in any case."""
    low = kind.lower()
    known = (each for each in MATCHED_KINDS.values() if low in (each.kind.lower(), each.plural))
    return next((each.kind for each in known), kind)


@dataclass(frozen=True, slots=True)
class InstancetypeView:
    """The parts of an instancetype that operators use.

    Attributes:
        cpus: Processors of a guest.
        memory: Bytes of memory of a guest; None if they cannot be parsed.
    """

    uid: str
    generation: int
    deleting: bool
    cpus: int
    memory: Fraction | None

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Parse an instancetype; invalid fields count as absent."""
        cpus = map_at(manifest, "spec", "cpu").get("guest")
        generation = map_at(manifest, "metadata").get("generation")
        return cls(
            uid_of(manifest),
            generation if isinstance(generation, int) else 0,
            is_deleting(manifest),
            cpus if isinstance(cpus, int) else 0,
            quantity_at(manifest, "spec", "memory", "guest"),
        )

    def is_kept_in(self, revision: str) -> bool:
        """Return whether the named ControllerRevision of KubeVirt stores this generation."""
        return revision.endswith(f"-{self.uid}-{self.generation}")


def shrink_instancetype(manifest: Manifest) -> Manifest:
    """Reduce an instancetype or preference to its metadata and the size of the guest."""
    spec = map_at(manifest, "spec")
    metadata = {
        name: manifest["metadata"][name]
        for name in ("name", "namespace", "uid", "resourceVersion", "generation")
        if name in manifest["metadata"]
    }
    guest = {part: {"guest": map_at(spec, part).get("guest")} for part in ("cpu", "memory")}
    return {
        "apiVersion": manifest.get("apiVersion"),
        "kind": manifest.get("kind"),
        "metadata": metadata,
        "spec": {part: value for part, value in guest.items() if value["guest"] is not None},
    }
