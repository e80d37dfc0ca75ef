"""View of DataVolume, the disk that CDI (KubeVirt's data importer) fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, Self

from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_of
from libs.common.reading import map_at, quantity_at, text_at, text_map_at
from libs.contracts.states import ConditionsView

CDI_GROUP: Final = "cdi.kubevirt.io"
"""API group of the importer."""
DATA_VOLUME: Final = Kind(CDI_GROUP, "v1beta1", "DataVolume", "datavolumes")
"""The kind; ask whether it is served before its objects are asked for."""
DATA_SOURCE: Final = Kind(CDI_GROUP, "v1beta1", "DataSource", "datasources")
"""A named image that data volumes are made of."""

BIND_IMMEDIATELY: Final = "cdi.kubevirt.io/storage.bind.immediate.requested"
"""Annotation that has a disk filled before any pod wants it, whatever its class says."""
KEEP_AFTER_COMPLETION: Final = "cdi.kubevirt.io/storage.deleteAfterCompletion"
"""Annotation that, set to `false`, keeps CDI before 1.62 from deleting a finished DataVolume."""


CLAIM_NOT_VALID: Final = "ErrClaimNotValid"
"""Reason of the condition `Bound` of a disk whose access mode CDI does not know."""


class DataVolumePhase(StrEnum):
    """Phases that operators act upon; a view shows others as they are."""

    PENDING = "Pending"
    PVC_BOUND = "PVCBound"
    IMPORT_SCHEDULED = "ImportScheduled"
    IMPORT_IN_PROGRESS = "ImportInProgress"
    CLONE_IN_PROGRESS = "CloneInProgress"
    WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
    PENDING_POPULATION = "PendingPopulation"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    PAUSED = "Paused"
    UNKNOWN = "Unknown"


_USABLE: Final = frozenset(
    {
        DataVolumePhase.SUCCEEDED,
        DataVolumePhase.WAIT_FOR_FIRST_CONSUMER,
        DataVolumePhase.PENDING_POPULATION,
    }
)


@dataclass(frozen=True, slots=True)
class DataVolumeView:
    """The parts of a DataVolume that operators use.

    Attributes:
        key: Namespace and name; its claim has the same name.
        uid: Which incarnation it is.
        deleting: Whether its deletion was asked for.
        labels: Labels, as they are.
        annotations: Annotations, as they are.
        owner: Controller reference; None for an orphan.
        phase: Phase as CDI says it; empty before the first status. See `DataVolumePhase`.
        progress: Percent that is copied, 0 to 100; None while CDI does not tell.
        claim_name: Claim that it fills; empty before the first status.
        restarts: How often the importer had to begin again.
        requested: Bytes that were asked for; None when they cannot be read.
        conditions: Conditions by type: `Bound`, `Running`, `Ready`.
    """

    key: Key
    uid: str
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner: Manifest | None
    phase: str
    progress: float | None
    claim_name: str
    restarts: int
    requested: Fraction | None
    conditions: ConditionsView

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Read a DataVolume; fields that do not fit count as absent."""
        metadata = map_at(manifest, "metadata")
        request = ("resources", "requests", "storage")
        storage = quantity_at(manifest, "spec", "storage", *request)
        restarts = map_at(manifest, "status").get("restartCount")
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            labels=text_map_at(metadata, "labels"),
            annotations=text_map_at(metadata, "annotations"),
            owner=controller_of(manifest),
            phase=text_at(manifest, "status", "phase"),
            progress=_parse_progress(text_at(manifest, "status", "progress")),
            claim_name=text_at(manifest, "status", "claimName"),
            restarts=restarts if isinstance(restarts, int) else 0,
            requested=(
                storage if storage is not None else quantity_at(manifest, "spec", "pvc", *request)
            ),
            conditions=ConditionsView.parse(manifest),
        )

    @property
    def succeeded(self) -> bool:
        """Whether the disk holds all its data."""
        return self.phase == DataVolumePhase.SUCCEEDED

    @property
    def refusal(self) -> str:
        """Why CDI creates no claim for the disk, in its words; empty if it does."""
        bound = self.conditions.find("Bound")
        refused = bound is not None and bound.reason == CLAIM_NOT_VALID
        return bound.message or bound.reason if bound is not None and refused else ""

    @property
    def last_error(self) -> str:
        """What kept CDI from filling the disk last, in its words; it tries again."""
        running = self.conditions.find("Running")
        failed = running is not None and not running.holds and running.reason == "Error"
        return running.message if running is not None and failed else ""

    @property
    def failed(self) -> bool:
        """Whether CDI has given up."""
        return self.phase == DataVolumePhase.FAILED

    @property
    def usable(self) -> bool:
        """Whether KubeVirt would start a machine with the disk: full, or filled at first use.

        Operators must not decide by this. A disk that is bound immediately shows
        `WaitForFirstConsumer` for some seconds as well, and may never be filled.
        """
        return self.phase in _USABLE


def _parse_progress(text: str) -> float | None:
    """Read a progress such as `12.3%`; `N/A` and what cannot be read is None."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        return None
    return percent if text.endswith("%") and 0 <= percent <= 100 else None
