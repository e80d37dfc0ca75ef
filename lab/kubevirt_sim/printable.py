"""`printableStatus` of a machine: the first word of KubeVirt's own list that fits.

The order is the same as in `setPrintableStatus` of KubeVirt's VM controller, and is part of the
contract of the simulator: `printable_test.py` has it as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.common.conditions import find_condition
from libs.common.kinds import Manifest, is_deleting
from libs.common.reading import holds_at, map_at, text_at
from libs.contracts.cdi import DataVolumePhase
from libs.contracts.kubevirt import FINAL_PHASES, PrintableStatus, RunStrategy, VmiPhase

_STARTING: Final = (VmiPhase.UNSET, VmiPhase.PENDING, VmiPhase.SCHEDULING, VmiPhase.SCHEDULED)
_RERUN: Final = (RunStrategy.ALWAYS, RunStrategy.RERUN_ON_FAILURE, RunStrategy.ONCE)


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """The inputs of the printable status.

    Attributes:
        vm: The machine, with the status that is about to be written.
        vmi: Its instance; None for none.
        strategy: Run strategy.
        disks: Data volumes that it needs and that exist.
        starting: Whether a start is due except for the back-off.
        stopping: Whether the instance is about to be deleted.
    """

    vm: Manifest
    vmi: Manifest | None
    strategy: str
    disks: Sequence[Mapping[str, Any]]
    starting: bool = False
    stopping: bool = False

    @property
    def phase(self) -> str:
        """Phase of the instance; empty for none."""
        return text_at(self.vmi or {}, "status", "phase")

    @property
    def live(self) -> bool:
        """Whether there is an instance that has not ended."""
        return self.vmi is not None and self.phase not in FINAL_PHASES

    def synchronized_reason(self) -> str:
        """Return why the instance does not get on, as its condition says."""
        found = find_condition(self.vmi or {}, "Synchronized")
        return text_at(found or {}, "reason")


def _is_migrating(inputs: StatusInputs) -> bool:
    state = map_at(inputs.vmi or {}, "status", "migrationState")
    return inputs.live and bool(state.get("startTimestamp")) and not state.get("endTimestamp")


def _is_unschedulable(inputs: StatusInputs) -> bool:
    found = find_condition(inputs.vmi or {}, "PodScheduled") or {}
    blocked = found.get("status") == "False" and found.get("reason") == "Unschedulable"
    return inputs.live and blocked


def _is_wanted(inputs: StatusInputs) -> bool:
    return inputs.live or inputs.strategy != RunStrategy.HALTED


def _is_provisioning(inputs: StatusInputs) -> bool:
    return _is_wanted(inputs) and any(map(_is_being_filled, inputs.disks))


def _is_being_filled(disk: Mapping[str, Any]) -> bool:
    """Return whether CDI is at work on a disk (storage/types, HasDataVolumeProvisioning)."""
    if _phase(disk) in (DataVolumePhase.SUCCEEDED, DataVolumePhase.PENDING_POPULATION):
        return False
    return holds_at(disk, "Bound") or _phase(disk) != DataVolumePhase.WAIT_FOR_FIRST_CONSUMER


def _has_error(disk: Mapping[str, Any]) -> bool:
    """Return whether a disk failed or its importer did (storage/types, HasDataVolumeErrors)."""
    running = find_condition(disk, "Running") or {}
    stopped = running.get("status") == "False"
    broken = running.get("reason") in ("Error", "ImagePullFailed")
    return _phase(disk) == DataVolumePhase.FAILED or (stopped and broken)


def _waits_for_binding(inputs: StatusInputs) -> bool:
    waiting = (DataVolumePhase.WAIT_FOR_FIRST_CONSUMER, DataVolumePhase.PENDING_POPULATION)
    return _is_wanted(inputs) and any(_phase(disk) in waiting for disk in inputs.disks)


def _is_crashing(inputs: StatusInputs) -> bool:
    failures = map_at(inputs.vm, "status", "startFailure").get("consecutiveFailCount") or 0
    return bool(failures) and inputs.strategy in _RERUN


def _phase(disk: Mapping[str, Any]) -> str:
    return text_at(disk, "status", "phase")


TABLE: Final[Sequence[tuple[PrintableStatus, Callable[[StatusInputs], bool]]]] = (
    (PrintableStatus.TERMINATING, lambda s: is_deleting(s.vm)),
    (
        PrintableStatus.STOPPING,
        lambda s: s.vmi is not None and s.live and (is_deleting(s.vmi) or s.stopping),
    ),
    (PrintableStatus.MIGRATING, _is_migrating),
    (PrintableStatus.PAUSED, lambda s: s.vmi is not None and holds_at(s.vmi, "Paused")),
    (PrintableStatus.RUNNING, lambda s: s.phase == VmiPhase.RUNNING),
    (PrintableStatus.PVC_NOT_FOUND, lambda s: s.synchronized_reason() == "FailedPvcNotFound"),
    (
        PrintableStatus.DATA_VOLUME_ERROR,
        lambda s: any(map(_has_error, s.disks)),
    ),
    (PrintableStatus.UNSCHEDULABLE, _is_unschedulable),
    (PrintableStatus.PROVISIONING, _is_provisioning),
    (PrintableStatus.WAITING_FOR_VOLUME_BINDING, _waits_for_binding),
    (PrintableStatus.ERR_IMAGE_PULL, lambda s: s.synchronized_reason() == "ErrImagePull"),
    (PrintableStatus.IMAGE_PULL_BACK_OFF, lambda s: s.synchronized_reason() == "ImagePullBackOff"),
    (
        PrintableStatus.STARTING,
        lambda s: (s.vmi is not None and s.phase in _STARTING) or s.starting,
    ),
    (PrintableStatus.CRASH_LOOP_BACK_OFF, _is_crashing),
    (PrintableStatus.STOPPED, lambda s: s.vmi is None or s.phase in FINAL_PHASES),
    (
        PrintableStatus.WAITING_FOR_RECEIVER,
        lambda s: s.phase == VmiPhase.WAITING_FOR_SYNC,
    ),
)
"""Words and when they fit; the first that fits is shown, and `Unknown` when none does."""


def find_printable_status(inputs: StatusInputs) -> PrintableStatus:
    """Return the word for a machine."""
    return next((word for word, fits in TABLE if fits(inputs)), PrintableStatus.UNKNOWN)
