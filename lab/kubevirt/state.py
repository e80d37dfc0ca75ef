"""What a cluster has of KubeVirt and CDI, as `./dev status` shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tools.cluster.kubectl import Kubectl, is_condition_true

SIMULATED: Final = "sim.slipway.dev/simulated"
"""Annotation on the CRDs of the simulator."""
_CRDS: Final = ("virtualmachines.kubevirt.io", "kubevirts.kubevirt.io", "cdis.cdi.kubevirt.io")
# The whole CRDs are some megabytes.
_NAME: Final = "NAME:.metadata.name"
_ANNOTATION: Final = f"SIMULATED:.metadata.annotations.{SIMULATED.replace('.', chr(92) + '.')}"


@dataclass(frozen=True, slots=True)
class ComponentState:
    """One of KubeVirt and CDI.

    Attributes:
        title: Its name.
        version: Version that its operator reports; empty before there is one.
        phase: Phase that its operator reports.
        available: Whether it is available.
    """

    title: str
    version: str
    phase: str
    available: bool

    def describe(self) -> str:
        """Return name, version and, unless it is available, the phase."""
        name = f"{self.title} {self.version}".rstrip()
        return name if self.available else f"{name} ({self.phase or 'not installed'})"


@dataclass(frozen=True, slots=True)
class State:
    """KubeVirt and CDI of a cluster.

    Attributes:
        parts: KubeVirt and CDI.
        simulated: Whether the simulator stands in for them.
        emulated: Whether guests run in software emulation.
    """

    parts: tuple[ComponentState, ...]
    simulated: bool = False
    emulated: bool = False

    @property
    def installed(self) -> bool:
        """Return whether the real KubeVirt or CDI is installed, available or not."""
        return any(part.phase for part in self.parts)

    @property
    def ready(self) -> bool:
        """Return whether both are available."""
        return all(part.available for part in self.parts)

    def describe(self) -> str:
        """Return both on one line."""
        text = " with ".join(part.describe() for part in self.parts)
        return f"{text}, software emulation" if self.emulated else text


def find_state(kubectl: Kubectl) -> State:
    """Return what the cluster has."""
    columns = f"custom-columns={_NAME},{_ANNOTATION}"
    table = kubectl.read(
        "get", "crd", *_CRDS, "--ignore-not-found", "--no-headers", "--output", columns
    )
    found = dict(line.split(maxsplit=1) for line in table.splitlines())
    kubevirts = _list(kubectl, _CRDS[1], found)
    cdis = _list(kubectl, _CRDS[2], found)
    parts = (
        build_part("KubeVirt", "observedKubeVirtVersion", kubevirts),
        build_part("CDI", "observedVersion", cdis),
    )
    simulated = found.get(_CRDS[0], "").strip() == "true"
    return State(parts, simulated, any(map(is_emulated, kubevirts)))


def build_part(title: str, version: str, items: Sequence[Mapping[str, Any]]) -> ComponentState:
    """Return what the resource of an operator says; `version` is its field in the status."""
    item: Mapping[str, Any] = items[0] if items else {}
    status = item.get("status") or {}
    generation = status.get("observedGeneration", item.get("metadata", {}).get("generation"))
    current = generation == item.get("metadata", {}).get("generation")
    phase = str(status.get("phase") or ("Pending" if items else ""))
    available = (
        bool(items) and current and phase == "Deployed" and is_condition_true(item, "Available")
    )
    return ComponentState(title, str(status.get(version) or ""), phase, available)


def is_emulated(kubevirt: Mapping[str, Any]) -> bool:
    """Return whether a KubeVirt resource requests software emulation."""
    configuration = kubevirt.get("spec", {}).get("configuration") or {}
    return bool((configuration.get("developerConfiguration") or {}).get("useEmulation"))


def _list(kubectl: Kubectl, crd: str, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return kubectl.items(crd, "--all-namespaces") if crd in found else []
