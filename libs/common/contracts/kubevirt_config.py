"""View of the KubeVirt resource: which features an installation has, and how it rolls changes out.

What a release has on by default differs, and vendors switch things off, so an operator reads what
is there and does without what it does not find.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from libs.common.contracts.kubevirt import KUBEVIRT_GROUP
from libs.common.contracts.reading import map_at, text_at, texts_at
from libs.common.kinds import Key, Kind, Manifest, key_of

KUBEVIRT: Final = Kind(KUBEVIRT_GROUP, "v1", "KubeVirt", "kubevirts")
"""The installation itself; there is one in a cluster."""

_GATES: Final = ("spec", "configuration", "developerConfiguration")
_BETA_BY_DEFAULT: Final = (1, 9)
"""Release from which beta features are on unless they are switched off."""
_BETA: Final[Mapping[str, tuple[int, int]]] = {
    "Snapshot": (1, 3),
    "RebootPolicy": (1, 9),
    "DeclarativeHotplugVolumes": (1, 9),
}
"""Beta features that operators ask for, and the release in which they became beta."""


@dataclass(frozen=True, slots=True)
class KubeVirtView:
    """Show what matters of a KubeVirt installation.

    Attributes:
        key: Namespace and name.
        phase: `Deployed` once it works.
        version: Release that is running, major and minor; None when it cannot be read.
        enabled: Feature gates that are switched on.
        disabled: Feature gates that are switched off.
        rollout_strategy: How changes of a running machine's template are taken in: `Stage`,
            `LiveUpdate`, or empty for the default of the release.
    """

    key: Key
    phase: str
    version: tuple[int, int] | None
    enabled: frozenset[str]
    disabled: frozenset[str]
    rollout_strategy: str

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Read an installation; fields that do not fit count as absent."""
        gates = map_at(manifest, *_GATES)
        return cls(
            key=key_of(manifest),
            phase=text_at(manifest, "status", "phase"),
            version=_parse_version(text_at(manifest, "status", "observedKubeVirtVersion")),
            enabled=frozenset(texts_at(gates, "featureGates")),
            disabled=frozenset(texts_at(gates, "disabledFeatureGates")),
            rollout_strategy=text_at(manifest, "spec", "configuration", "vmRolloutStrategy"),
        )

    def has(self, feature: str) -> bool:
        """Tell whether a feature that is not generally available is on; off when not known."""
        if feature in self.enabled:
            return True
        if feature in self.disabled or self.version is None or feature not in _BETA:
            return False
        return self.version >= max(_BETA[feature], _BETA_BY_DEFAULT)


def _parse_version(text: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
