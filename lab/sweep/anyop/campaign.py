"""Campaign: undisturbed runs, one trial per fault and moment, and the findings of both."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lab.sweep.anyop.cluster import Bench
from lab.sweep.anyop.trial import AnyTrial, Expectation
from lab.sweep.journal import Journal
from lab.sweep.learning import Difference, Knowledge, learn_names, learn_places
from lab.sweep.modes import Mode
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan, choose_representatives, plan_trials
from lab.sweep.triggers import Side, Trigger, common_triggers
from lab.sweep.workload import State

FAULTS: Final = (
    *(Mode.K1, Mode.E500, Mode.LATE, Mode.DELAY, Mode.DONE500, Mode.E409, Mode.A1),
    *(Mode.CUT, Mode.GONE),
)
"""Faults that happen in front of a correct API server, the most telling ones first."""
MORE: Final = (Mode.K2, Mode.STALE, Mode.OUTAGE, Mode.E429, Mode.E503)
"""Faults that are rarer, or that find the same bugs."""

_UNSTEADY: Final = 2
"""Number of trials that end with different values in a field each time, until it is not compared:
a race that few of the undisturbed runs showed."""
_REPORTED: Final = 10
"""Number of trials between two lines of progress."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in one run.

    Attributes:
        oracle: What noticed it.
        phase: Phase in which it was noticed; empty for the whole run.
        place: What it is about; the same problem has the same place in each run.
        text: Description for people.
    """

    oracle: str
    phase: str
    place: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the problem in another run."""
        return self.oracle, self.place


@dataclass
class Failure:
    """A trial that ended differently from the undisturbed runs, and its repetition."""

    outcome: Outcome
    problems: list[Problem]
    confirmed: bool


@dataclass
class Group:
    """Failures with the same symptom."""

    failures: list[Failure]

    @property
    def first(self) -> Failure:
        """The failure that stands for the group."""
        return self.failures[0]


@dataclass
class Reference:
    """What undisturbed runs have shown.

    Attributes:
        expectation: What other runs are compared with.
        runs: The runs.
        moments: Moments that all runs have.
        created: How often objects were created, by blurred name; the highest number of all runs.
        problems: Problems without any fault.
    """

    expectation: Expectation
    runs: list[Outcome]
    moments: list[Trigger]
    created: Counter[str]
    problems: list[Problem]


@dataclass
class Result:
    """The result of a campaign.

    Attributes:
        reference: The undisturbed runs.
        planned: Number of planned trials.
        passed: Trials that ended as they should.
        missed: Trials whose moment did not come.
        failures: Trials that ended differently.
        seconds: Duration.
    """

    reference: Reference
    planned: int = 0
    passed: list[Plan] = field(default_factory=list)
    missed: list[Plan] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> int:
        """Number of trials that ended."""
        return len(self.passed) + len(self.missed) + len(self.failures)

    @property
    def groups(self) -> list[Group]:
        """Failures by what differs; each group has a confirmed one."""
        return [each for each in group_failures(self.list_failures()) if each.first.confirmed]

    @property
    def unconfirmed(self) -> list[Group]:
        """Failures by what differs; nothing of it has repeated."""
        return [each for each in group_failures(self.list_failures()) if not each.first.confirmed]

    def list_failures(self) -> list[Failure]:
        """Return the failures without fields that turned out to vary without a fault."""
        knowledge = self.reference.expectation.knowledge
        kept = []
        for failure in self.failures:
            problems = [each for each in failure.problems if not knowledge.varies(each.place)]
            if problems:
                kept.append(replace(failure, problems=problems))
        return kept


class Campaign:
    """A campaign against one operator.

    Args:
        bench: Objects that all trials share.
        jobs: Maximum number of concurrent trials.
        tell: Prints a line of progress.
    """

    def __init__(self, bench: Bench, jobs: int, tell: Callable[[str], None]) -> None:
        """Initialize; nothing runs yet."""
        self._bench = bench
        self._slots = asyncio.Semaphore(jobs)
        self._jobs = jobs
        self._tell = tell
        self._numbers = itertools.count(1)
        self._unsteady: Counter[str] = Counter()

    async def refer(self, count: int) -> Reference:
        """Run the operator without faults, and learn what is random and what varies.

        In one more run all writes are slow, and in one all events: if two handlers write a field,
        the other one wins.
        """
        plan = Plan("operator", "workload")
        sides: list[Side | None] = [*[None] * count, "write", "event"]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run(plan, None, side)) for side in sides]
        trials = [task.result() for task in tasks]
        runs = [trial.outcome for trial in trials[:count]]
        all_runs = [*runs, *(each.outcome for each in trials[count:] if not each.outcome.late)]
        knowledge = replace(learn_names(all_runs), ignored=tuple(self._bench.inputs.ignored))
        for trial in trials:
            trial.outcome.states = trial.build_states(knowledge)
        knowledge = learn_places(knowledge, [run.states for run in all_runs])
        watched = frozenset.intersection(*(trial.watched for trial in trials))
        moments = common_triggers([knowledge.rename(run.moments) for run in runs])
        return Reference(
            Expectation(knowledge, runs[0].states, watched),
            runs,
            moments,
            _most([_count_created(run, knowledge) for run in all_runs]),
            _judge_undisturbed(runs, knowledge),
        )

    async def sweep(
        self, reference: Reference, modes: Sequence[Mode], minutes: float | None, journal: Journal
    ) -> Result:
        """Try each fault at each moment, the most telling ones first, until the time is over.

        Trials that the journal knows as passed are not repeated.
        """
        started = time.monotonic()
        end = started + minutes * 60 if minutes is not None else None
        plans = order_plans(reference.moments, modes)
        passed = [plan for plan in plans if journal.recall(plan)]
        result = Result(reference, len(plans), passed)
        queue = [plan for plan in plans if plan not in passed]

        async def work() -> None:
            while queue and (end is None or time.monotonic() < end):
                await self._try(queue.pop(0), result, journal)
                self._report(result, len(queue), started, end)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._jobs):
                group.create_task(work())
        result.seconds = time.monotonic() - started
        return result

    async def try_plan(self, plan: Plan, reference: Reference) -> tuple[Outcome, list[Problem]]:
        """Run one trial and judge it."""
        outcome = (await self._run(plan, reference.expectation)).outcome
        return outcome, judge(outcome, reference)

    async def _try(self, plan: Plan, result: Result, journal: Journal) -> None:
        outcome, problems = await self.try_plan(plan, result.reference)
        if not problems:
            (result.passed if outcome.fired else result.missed).append(plan)
            if outcome.fired:
                journal.note(outcome)
            return
        symptoms = {_find_symptom(each.problems) for each in result.failures if each.confirmed}
        is_field = all(each.oracle == "state" for each in problems)  # It may be a race.
        if outcome.fired and not is_field and _find_symptom(problems) in symptoms:
            result.failures.append(Failure(outcome, problems, confirmed=True))
            return
        _, again = await self.try_plan(plan, result.reference)
        self._note_unsteady(problems, again, result.reference)
        repeated = {each.key for each in again}
        kept = [each for each in problems if each.key in repeated]
        confirmed = bool(kept) and outcome.fired
        failure = Failure(outcome, kept or problems, confirmed)
        result.failures.append(failure)
        word = "Finding" if confirmed else "Seen once"
        self._tell(f"{word}: {plan.mode} at {plan.trigger}: {failure.problems[0].text}")

    def _note_unsteady(
        self, problems: Sequence[Problem], again: Sequence[Problem], reference: Reference
    ) -> None:
        """Note fields that differ in only one of two runs of the same trial."""
        runs = (problems, again)
        first, second = ({each.place for each in run if each.oracle == "state"} for run in runs)
        for place in first - second:
            self._unsteady[place] += 1
            if self._unsteady[place] != _UNSTEADY:
                continue
            expectation = reference.expectation
            knowledge = expectation.knowledge.with_varying(place)
            reference.expectation = replace(expectation, knowledge=knowledge)
            text = f"{place} differs in one of two runs of the same trial, in {_UNSTEADY} trials"
            reference.problems.append(Problem("undetermined", "", place, text))
            self._tell(f"Undetermined: {text}")

    def _report(self, result: Result, left: int, started: float, end: float | None) -> None:
        if result.tried % _REPORTED:
            return
        passed = time.monotonic() - started
        seconds = left * passed / max(1, result.tried)
        if end is not None:
            seconds = min(seconds, max(0.0, end - time.monotonic()))
        self._tell(
            f"{result.tried} of {result.planned} trials, {len(result.groups)} findings, about"
            f" {seconds / 60:.0f} minutes left"
        )

    async def _run(
        self, plan: Plan, expectation: Expectation | None, slow: Side | None = None
    ) -> AnyTrial:
        async with self._slots:
            namespace = f"sweep-{next(self._numbers)}"
            trial = AnyTrial(self._bench, plan, namespace, expectation, slow)
            await trial.run()
            return trial


def order_plans(moments: Sequence[Trigger], modes: Sequence[Mode]) -> list[Plan]:
    """Plan each fault at each moment: first once for each sort of moment, then in each phase."""
    plans = plan_trials(Plan("operator", "workload"), moments, modes=modes)
    sorts, in_phases = choose_representatives(plans, set()), list[Plan]()
    for phase in dict.fromkeys(moment.phase for moment in moments):
        alike = [plan for plan in plans if plan.trigger and plan.trigger.phase == phase]
        in_phases += choose_representatives(alike, set())
    return list(dict.fromkeys([*sorts, *in_phases, *plans]))


def judge(outcome: Outcome, reference: Reference) -> list[Problem]:
    """Compare a run with the undisturbed runs."""
    knowledge = reference.expectation.knowledge
    problems = _judge_states(outcome, reference.expectation.states, knowledge)
    created = _count_created(outcome, knowledge)
    for title, count in sorted(created.items()):
        usual = reference.created[title]
        if count > usual + 1:
            text = f"{title} was created {count} times, undisturbed {usual} times"
            problems.append(Problem("duplicate", "", title, text))
    usual_exits = min(len(run.exits) for run in reference.runs)
    if len(outcome.exits) > usual_exits:
        statuses = ", ".join(map(str, outcome.exits))
        problems.append(Problem("exit", "", "", f"the process ended by itself: status {statuses}"))
    known = {_name_refusal(each) for run in reference.runs for each in run.refused}
    for refused in {_name_refusal(each) for each in outcome.refused} - known:
        problems.append(Problem("rights", "", refused, f"no right to {refused}"))
    return problems


def _judge_states(
    outcome: Outcome, wanted: Mapping[str, State], knowledge: Knowledge
) -> list[Problem]:
    """Return the differences of the first phase that has any."""
    for phase, state in outcome.states.items():
        differences = knowledge.compare(wanted[phase], state)
        differences.sort(key=lambda each: (not each.is_about_object, each.is_about_progress))
        if differences:
            return [
                Problem("object" if each.is_about_object else "state", phase, each.place, str(each))
                for each in differences
            ]
        if phase in outcome.late:
            return [Problem("late", phase, "", f"the operator {outcome.late[phase]}")]
    return []


def _judge_undisturbed(runs: Sequence[Outcome], knowledge: Knowledge) -> list[Problem]:
    """Return what is wrong without any fault."""
    problems = [
        Problem("undetermined", "", each.place, f"undisturbed runs disagree: {each}")
        for each in knowledge.varying.values()
        if not (each.is_about_progress or is_noise(each))
    ]
    for run in runs:
        problems += [Problem("late", phase, "", what) for phase, what in run.late.items()]
        problems += [Problem("exit", "", "", f"the process ended: {each}") for each in run.exits]
        problems += [
            Problem("rights", "", name, f"no right to {name}")
            for name in map(_name_refusal, run.refused)
        ]
    return list({each.key: each for each in problems}.values())


def is_noise(difference: Difference) -> bool:
    """Return whether values may differ by their nature: numbers, and words with digits."""
    values = difference.wanted, difference.found
    return all(
        isinstance(value, int | float)
        or (isinstance(value, str) and any(letter.isdigit() for letter in value))
        for value in values
    )


def group_failures(failures: Iterable[Failure]) -> list[Group]:
    """Group failures by their symptoms; confirmed failures are the first ones of their group."""
    groups: dict[frozenset[tuple[str, str]], Group] = {}
    for failure in sorted(failures, key=lambda each: not each.confirmed):
        groups.setdefault(_find_symptom(failure.problems), Group([])).failures.append(failure)
    return sorted(groups.values(), key=lambda group: -len(group.failures))


def _find_symptom(problems: Sequence[Problem]) -> frozenset[tuple[str, str]]:
    """Return the most telling differences: missing objects, or fields, but not the progress."""
    telling = [each for each in problems if each.oracle != "state"]
    fields = [each for each in problems if ".metadata.annotations." not in each.place]
    return frozenset(each.key for each in telling or fields or problems)


def _count_created(outcome: Outcome, knowledge: Knowledge) -> Counter[str]:
    """Count the created objects, except children that are created after an owner was deleted.

    Until an operator observes the deletion, it may recreate what the garbage collector deletes.
    """
    titles, is_deleting = [], False
    for each in sorted(outcome.history, key=lambda version: version.number):
        is_child = bool(each.manifest["metadata"].get("ownerReferences"))
        is_deleting = is_deleting or (each.action == "DELETED" and not is_child)
        if each.action == "ADDED" and not (is_deleting and is_child):
            titles.append(each.title)
    return knowledge.count(titles, outcome.namespace)


def _most(counters: Sequence[Counter[str]]) -> Counter[str]:
    most: Counter[str] = Counter()
    for counter in counters:
        most |= counter
    return most


def _name_refusal(text: str) -> str:
    """Return verb and resource of a refused request."""
    return " ".join(text.partition(":")[0].split(" ")[:2])
