"""Plans of trials from the moments of a fault-free run, and replay files. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from lab.sweep.modes import (
    ALIKE,
    BY_CLASS,
    FULL_EVENTS,
    FULL_WRITES,
    Mode,
    applies,
)
from lab.sweep.triggers import Trigger
from libs.common.kinds import Manifest

type Tier = Literal["gate", "sorts", "full"]
"""How much is tried: each mode once, at each sort of moment, or at all moments."""
type MomentClass = tuple[str, str, str]
"""A sort of moment: its side, action and target."""

_K3_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one trial.

    Attributes:
        operator: Id of the operator.
        workload: Id of the workload.
        mode: Kind of fault.
        trigger: Moment of the fault; None for a fault-free run.
        recovery: Number of the write of the recovery that fails again; 0 for none.
        mutant: Mutant of the operator that is tested; empty for the unchanged operator.
    """

    operator: str
    workload: str
    mode: Mode = Mode.NONE
    trigger: Trigger | None = None
    recovery: int = 0
    mutant: str = ""

    def __str__(self) -> str:
        """Render for people."""
        moment = f" at {self.trigger}" if self.trigger else ""
        again = f", again at write {self.recovery} of the recovery" if self.recovery else ""
        mutant = f" [{self.mutant}]" if self.mutant else ""
        return f"{self.operator}/{self.workload} {self.mode}{moment}{again}{mutant}"

    def to_json(self) -> Manifest:
        """Return the fields for a replay file."""
        return {
            "operator": self.operator,
            "workload": self.workload,
            "mode": str(self.mode),
            "trigger": self.trigger.to_json() if self.trigger else None,
            "recovery": self.recovery,
            "mutant": self.mutant,
        }

    @classmethod
    def from_json(cls, data: Manifest) -> Self:
        """Read what `to_json` wrote."""
        trigger = data["trigger"]
        return cls(
            data["operator"],
            data["workload"],
            Mode(data["mode"]),
            Trigger.from_json(trigger) if trigger else None,
            data["recovery"],
            data["mutant"],
        )


def plan_trials(
    reference: Plan,
    moments: Sequence[Trigger],
    *,
    quiet: Collection[str] = (),
    modes: Collection[Mode] = (),
    spares: Callable[[Mode, Trigger], bool] = lambda *_: False,
    seed: int = 0,
) -> list[Plan]:
    """Plan a trial for each mode at each moment.

    Args:
        reference: Plan of the fault-free run.
        moments: Moments that all fault-free runs had, in order.
        quiet: Phases without faults.
        modes: Modes of the trials; empty for all modes.
        spares: Returns whether a trial is skipped.
        seed: Seed of the random selection.
    """
    aimed = [moment for moment in moments if moment.phase not in quiet]
    writes = [moment for moment in aimed if moment.side == "write"]
    plans = []
    for mode in modes or (*FULL_WRITES, *FULL_EVENTS):
        seen: set[MomentClass] = set()
        for moment in aimed:
            if not applies(mode, moment, first=moment in writes[:1]) or spares(mode, moment):
                continue
            if mode in BY_CLASS and class_of(moment) in seen:
                continue
            seen.add(class_of(moment))
            plan = replace(reference, mode=mode, trigger=moment)
            if mode is not Mode.K3:
                plans.append(plan)
                continue
            plans.append(replace(plan, recovery=1))
            number = zlib.crc32(f"{moment}{seed}".encode())
            if number % 2:  # Half of them, which ones whatever other moments there are.
                plans.append(replace(plan, recovery=2 + number // 2 % (_K3_DEPTH - 1)))
    return plans


def write_replay(path: Path, plan: Plan, findings: Sequence[str], seed: int) -> None:
    """Write a replay file, from which a trial can be run again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"plan": plan.to_json(), "seed": seed, "findings": list(findings)}
    path.write_text(json.dumps(data, indent=2) + "\n")


def read_replay(path: Path) -> Plan:
    """Read the plan of a replay file."""
    return Plan.from_json(json.loads(path.read_text())["plan"])


def class_of(moment: Trigger) -> MomentClass:
    """Return the class of a moment: moments of one class exercise the same code of an operator."""
    return moment.side, moment.action, moment.target


def choose_gate(
    plans: Iterable[Plan], workload: str, workloads: Sequence[str], seed: int = 0
) -> list[Plan]:
    """Choose the plans of the gate: each mode once for an operator, one of those that are alike.

    At which moment of which workload follows from a hash of operator, mode and seed: the same in
    each run, another one for each mode, so that all of them together reach into all phases.

    Args:
        plans: What the full tier would try of one workload.
        workload: The workload.
        workloads: All workloads of the operator.
        seed: Chooses other moments.
    """
    by_mode: dict[Mode, list[Plan]] = {}
    for plan in plans:
        by_mode.setdefault(plan.mode, []).append(plan)
    chosen = []
    for mode, alike in by_mode.items():
        operator = alike[0].operator
        if mode not in choose_modes(operator, seed):
            continue
        number = zlib.crc32(f"{operator}{mode}{seed}".encode())
        if workloads[number % len(workloads)] != workload:
            continue
        if mode is Mode.E409:
            # A create meets a foreign object, which is the harder case of that mode.
            creates = [plan for plan in alike if plan.trigger and plan.trigger.action == "create"]
            alike = creates or alike
        chosen.append(alike[number // len(workloads) % len(alike)])
    return chosen


def choose_modes(operator: str, seed: int = 0) -> list[Mode]:
    """Choose the modes of the gate for an operator; those that are alike take turns."""
    number = zlib.crc32(f"{operator}{seed}".encode())
    left_out = {mode for group in ALIKE for mode in group if mode is not group[number % len(group)]}
    return [mode for mode in (*FULL_WRITES, *FULL_EVENTS) if mode not in left_out]


def choose_representatives(
    plans: Iterable[Plan], tried: set[tuple[Mode, MomentClass]]
) -> list[Plan]:
    """Choose the plans of the tier `sorts`: each mode once at each sort of moment.

    Args:
        plans: What the full tier would try of one workload.
        tried: Modes and sorts that other workloads of the operator have tried already; extended.
    """
    chosen = []
    for plan in plans:
        assert plan.trigger is not None
        place = plan.mode, class_of(plan.trigger)
        if place not in tried:
            chosen.append(plan)
        tried.add(place)
    return chosen
