"""Outcome: all that is known of one trial when it is over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tools.sweep.planning import Plan
from tools.sweep.recorder import Version
from tools.sweep.session import Record
from tools.sweep.triggers import Trigger
from tools.sweep.workload import State


@dataclass(frozen=True, slots=True)
class Finding:
    """State one offense.

    Attributes:
        oracle: Which oracle found it.
        message: What is wrong.
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
        plan: What was tried.
        namespace: Where.
        states: Normalized state at the end of each phase.
        history: Every version that the recorder saw.
        records: Every mutating request but Leases and Events.
        moments: Every moment that a fault could have hit, in order.
        removed: Objects that the fault removed, or put in the way.
        damaged: Foreign objects that did not stay as they were, in words.
        late: Phases that did not end in time, with what existed, in words.
        restless: Writes while nothing was to be done.
        exits: Exit statuses of processes that nobody had killed.
        refused: Requests that the rights of the service account did not allow.
        used: Group, resource and verb of all requests.
        leaks: Where secrets showed, in words.
        unready: What the probes say is not well at the end, in words.
        log: What the operator logged.
        fired: Whether the moment of the plan came.
        fired_process: Number of the process that it came to; -1 before.
        seconds: How long it took.
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
        """Number of incarnations of each object that went."""
        return self._count("DELETED")

    def shed(self) -> None:
        """Drop what is not needed after the evaluation; for thousands of trials, it is much."""
        self.states, self.history, self.records, self.moments = {}, [], [], []
        self.log = ""

    def _count(self, action: str) -> Counter[str]:
        titles = (version.title for version in self.history if version.action == action)
        return Counter(title.replace(self.namespace, "<namespace>") for title in titles)
