"""The outcome of one trial."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lab.sweep.planning import Plan
from lab.sweep.recorder import Version
from lab.sweep.session import Record
from lab.sweep.triggers import Trigger
from lab.sweep.workload import State


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a property that an oracle checks.

    Attributes:
        oracle: Name of the oracle.
        message: Description of the violation.
    """

    oracle: str
    message: str

    def __str__(self) -> str:
        """Render as `oracle: message`."""
        return f"{self.oracle}: {self.message}"


@dataclass
class Outcome:
    """The outcome of a trial.

    Attributes:
        plan: Plan of the trial.
        namespace: Namespace of the trial.
        states: Normalized state at the end of each phase.
        history: Every version that the recorder saw.
        records: All mutating requests, except requests for Leases and Events.
        moments: All moments at which a fault could have been injected, in order.
        removed: Objects that the fault removed, or created as foreign objects.
        damaged: Descriptions of foreign objects that were changed.
        late: Phases that did not end in time, each with a description of the existing objects.
        restless: Writes after the operator had converged.
        exits: Exit statuses of processes that ended without being killed.
        refused: Requests that the service account was not permitted to make.
        used: Group, resource and verb of all requests.
        leaks: Descriptions of places in which secrets were found.
        unready: Problems that the probes reported at the end.
        log: Log of the operator.
        fired: Whether the moment of the plan occurred.
        fired_process: Number of the process in which it occurred; -1 before.
        seconds: Duration.
    """

    plan: Plan
    namespace: str
    states: dict[str, State] = field(default_factory=dict)
    history: list[Version] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    moments: list[Trigger] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    damaged: list[str] = field(default_factory=list)
    late: dict[str, str] = field(default_factory=dict)
    restless: list[str] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    used: set[tuple[str, str, str]] = field(default_factory=set)
    leaks: list[str] = field(default_factory=list)
    unready: list[str] = field(default_factory=list)
    log: str = ""
    fired: bool = False
    fired_process: int = -1
    seconds: float = 0.0

    @property
    def creates(self) -> Counter[str]:
        """Number of incarnations of each object."""
        return self._count("ADDED")

    @property
    def deletes(self) -> Counter[str]:
        """Number of deleted incarnations of each object."""
        return self._count("DELETED")

    def shed(self) -> None:
        """Drop data that is not needed after the evaluation, to save memory in long sweeps."""
        self.states, self.history, self.records, self.moments = {}, [], [], []
        self.log = ""

    def _count(self, action: str) -> Counter[str]:
        titles = (version.title for version in self.history if version.action == action)
        return Counter(title.replace(self.namespace, "<namespace>") for title in titles)


def render_timeline(outcome: Outcome) -> str:
    """Render the mutating requests of a trial, one per line."""
    start = outcome.records[0].at if outcome.records else 0.0
    return "\n".join(
        f"{record.at - start:7.3f} {record.phase:8} process {record.process}: {record.call} -> "
        f"{record.status}{' (injected)' if record.injected else ''}"
        for record in outcome.records
    )
