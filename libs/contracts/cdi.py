"""View of DataVolume, a disk that CDI (Containerized Data Importer of KubeVirt) fills with data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import map_at, text_at, text_map_at
from libs.contracts.states import ConditionsView

CDI_GROUP: Final = "cdi.kubevirt.io"
"""API group of CDI."""
DATA_VOLUME: Final = Kind(CDI_GROUP, "v1beta1", "DataVolume", "datavolumes")
"""Optional kind: check that the cluster serves it before requesting its objects."""
DATA_SOURCE: Final = Kind(CDI_GROUP, "v1beta1", "DataSource", "datasources")
"""A named image that DataVolumes are cloned from."""

BIND_IMMEDIATELY: Final = "cdi.kubevirt.io/storage.bind.immediate.requested"
"""Annotation: fill the disk without waiting for a pod that uses it, whatever the binding mode."""
KEEP_AFTER_COMPLETION: Final = "cdi.kubevirt.io/storage.deleteAfterCompletion"
"""Annotation that, set to `false`, keeps CDI before 1.62 from deleting a finished DataVolume."""
ALLOW_CLAIM_ADOPTION: Final = "cdi.kubevirt.io/allowClaimAdoption"
"""Annotation that lets a DataVolume take over an existing claim of its name with its data."""


CLAIM_NOT_VALID: Final = "ErrClaimNotValid"
"""Reason of the condition `Bound` of a disk whose access mode CDI does not know."""
CLONE_NOT_VALID: Final = "CloneValidationFailed"
"""Reason of the condition `Bound` of a disk that cannot be made of its source."""


class DataVolumePhase(StrEnum):
    """Phases that operators act upon; a view keeps unknown phases unchanged."""

    PENDING = "Pending"
    IMPORT_SCHEDULED = "ImportScheduled"
    IMPORT_IN_PROGRESS = "ImportInProgress"
    CLONE_IN_PROGRESS = "CloneInProgress"
    WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
    PENDING_POPULATION = "PendingPopulation"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


_PROGRESS: Final = frozenset(
    {
        "",
        "Bound",
        "Completed",
        "ContainerCreating",
        "NotFound",
        "Pending",
        "PodInitializing",
        "TransferRunning",
        CLAIM_NOT_VALID,
    }
)
"""Reasons of conditions that are False without an error. Any other reason is reported, because CDI
adds reasons. CLAIM_NOT_VALID has a property of its own."""


@dataclass(frozen=True, slots=True)
class DataVolumeView:
    """The parts of a DataVolume that operators use.

    Attributes:
        key: Namespace and name; its claim has the same name.
        phase: Phase as CDI reports it; empty before the first status. See `DataVolumePhase`.
        progress: Copied percentage, 0 to 100; None while CDI does not report it.
        claim_name: Claim that it fills; empty before the first status.
        restarts: How often the importer was restarted.
        conditions: Conditions by type: `Bound`, `Running`, `Ready`.
    """

    key: Key
    uid: str
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    phase: str
    progress: float | None
    claim_name: str
    restarts: int
    conditions: ConditionsView

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a DataVolume; invalid fields count as absent."""
        metadata = map_at(manifest, "metadata")
        restarts = map_at(manifest, "status").get("restartCount")
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            labels=text_map_at(metadata, "labels"),
            annotations=text_map_at(metadata, "annotations"),
            phase=text_at(manifest, "status", "phase"),
            progress=_parse_progress(text_at(manifest, "status", "progress")),
            claim_name=text_at(manifest, "status", "claimName"),
            restarts=restarts if isinstance(restarts, int) else 0,
            conditions=ConditionsView.parse(manifest),
        )

    @property
    def succeeded(self) -> bool:
        """Whether the disk holds all its data."""
        return self.phase == DataVolumePhase.SUCCEEDED

    @property
    def refusal(self) -> str:
        """Why CDI creates no claim for the disk, as CDI reports it; empty if it does."""
        bound = self.conditions.find("Bound")
        refused = bound is not None and bound.reason == CLAIM_NOT_VALID
        return bound.message or bound.reason if bound is not None and refused else ""

    @property
    def last_error(self) -> str:
        """Last error of the import or clone, as CDI reports it; CDI retries by itself."""
        if self.succeeded:
            return ""
        for type_ in ("Running", "Bound", "Ready"):
            found = self.conditions.find(type_)
            if found is None or found.holds or not found.message or found.reason in _PROGRESS:
                continue
            plain = found.reason in ("Error", CLONE_NOT_VALID)
            return found.message if plain else f"{found.reason}: {found.message}"
        return ""

    @property
    def failed(self) -> bool:
        """Whether CDI has given up."""
        return self.phase == DataVolumePhase.FAILED


def _parse_progress(text: str) -> float | None:
    """Parse a progress such as `12.3%`; `N/A` and invalid text yield None."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        return None
    return percent if text.endswith("%") and 0 <= percent <= 100 else None
