"""Reports of sweeps, for the terminal and for docs/reference/reliability.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.sweep.junit import Case, write_cases
from lab.sweep.modes import Mode
from lab.sweep.runner import Reference, TrialResult

PAGE: Final = Path("docs/reference/reliability.md")
_BEGIN: Final = "<!-- BEGIN generated: {} -->"
_END: Final = "<!-- END generated: {} -->"


@dataclass
class Result:
    """The sweep of one workload."""

    operator: str
    workload: str
    reference: Reference
    trial_results: list[TrialResult] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether there are findings."""
        return bool(self.reference.findings) or any(each.failed for each in self.trial_results)


@dataclass(frozen=True, slots=True)
class Kill:
    """The trial that detected a mutant."""

    mutant: str
    oracles: tuple[str, ...]
    plan: str
    finding: str
    trials: int
    seconds: float

    @property
    def dead(self) -> bool:
        """Whether an oracle detected it."""
        return bool(self.oracles)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a mode of a workload."""

    operator: str
    workload: str
    mode: Mode
    trials: int
    fired: int
    failures: int
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """Return the cells as text."""
        numbers = (self.trials, self.fired, self.failures)
        mean = self.seconds / max(1, self.trials)
        return (
            self.operator,
            self.workload,
            str(self.mode),
            *map(str, numbers),
            f"{mean:.1f}",
        )


_TIERS: Final = ("gate", "sorts", "full")
_HEADS: Final = ("operator", "workload", "mode", "trials", "fired", "failures", "s/trial")


def build_rows(results: Sequence[Result]) -> list[Row]:
    """Summarize results by operator, workload and mode."""
    rows = []
    for result in results:
        for mode in dict.fromkeys(each.outcome.plan.mode for each in result.trial_results):
            found = [each for each in result.trial_results if each.outcome.plan.mode is mode]
            rows.append(
                Row(
                    result.operator,
                    result.workload,
                    mode,
                    len(found),
                    sum(each.outcome.fired for each in found),
                    sum(each.failed for each in found),
                    sum(each.outcome.seconds for each in found),
                )
            )
    return rows


def render_summary(results: Sequence[Result], seconds: float) -> str:
    """Render the table for a terminal, with totals and the duration."""
    table = [_HEADS, *(row.cells() for row in build_rows(results))]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADS))]
    lines = [_pad(line, widths) for line in table]
    return "\n".join([*lines, "", _render_total(results, seconds)])


def render_start(result: Result, trials: int) -> str:
    """Describe the trials that are about to run."""
    moments = result.reference.moments
    writes = sum(moment.side == "write" for moment in moments)
    seconds = result.reference.outcome.seconds
    return (
        f"{result.operator}/{result.workload}: {writes} writes and {len(moments) - writes} watch "
        f"events, {trials} trials; without faults {seconds:.1f} s"
    )


def render_trial_result(trial_result: TrialResult) -> str:
    """Render one trial with its findings."""
    head = "FAILED" if trial_result.failed else "passed"
    lines = [f"{head} {trial_result.outcome.plan} ({trial_result.outcome.seconds:.1f} s)"]
    lines += [f"    {finding}" for finding in trial_result.findings]
    if trial_result.replay is not None:
        lines.append(f"    ./dev sweep --replay {trial_result.replay}")
    return "\n".join(lines)


def render_kill(kill: Kill) -> str:
    """Describe the result of a mutant."""
    if not kill.dead:
        return f"ALIVE {kill.mutant} after {kill.trials} trials ({kill.seconds:.0f} s)"
    by = ", ".join(kill.oracles)
    return f"dead  {kill.mutant} by {by} in trial {kill.trials}: {kill.finding}"


def render_kills(kills: Sequence[Kill]) -> str:
    """Describe how many mutants were detected."""
    dead = sum(kill.dead for kill in kills)
    seconds = sum(kill.seconds for kill in kills)
    return f"{dead} of {len(kills)} mutants are dead, in {seconds:.0f} s"


def write_junit(path: Path, results: Sequence[Result], unused: Sequence[str]) -> None:
    """Write a report.

    Args:
        path: Path of the file.
        results: Sweeps of workloads.
        unused: Descriptions of unused permissions; each one is a failure.
    """
    cases: list[Case] = []
    for result in results:
        name = f"{result.operator}.{result.workload}"
        cases.append((name, "without faults", [str(each) for each in result.reference.findings]))
        for trial_result in result.trial_results:
            plan = str(trial_result.outcome.plan)
            cases.append((name, plan, [str(each) for each in trial_result.findings]))
    cases += [("rights", right, [right]) for right in unused]
    write_cases(path, cases)


def write_page(rows: Iterable[Row], tier: str, seed: int, path: Path = PAGE) -> None:
    """Write the table of the sweeps into the page, without changing the text around it.

    The lines of a workload on the page stay if it was not run, or only in a smaller tier.
    """
    heads = ("operator", "workload", "tier", "modes", "trials", "fired", "failures", "s/trial")
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.operator, row.workload, tier), []).append(row)
    new = _by_workload((*place, *_sum_up(group)) for place, group in groups.items())
    old = _by_workload(_read_table(path, len(heads)))
    table = [
        line
        for place in sorted({*old, *new})
        for line in max(new.get(place, []), old.get(place, []), key=_find_tier)
    ]
    trials, failures = (sum(int(line[column]) for line in table) for column in (4, 6))
    hours = sum(int(line[4]) * float(line[7]) for line in table) / 3600
    lines = [
        _row(heads),
        _row(["---"] * len(heads)),
        *map(_row, table),
        "",
        f"{trials} trials, {failures} failures, {hours:.1f} hours of trials, seed {seed}.",
    ]
    _replace(path, "sweep", lines)


def _by_workload(lines: Iterable[Sequence[str]]) -> dict[tuple[str, str], list[Sequence[str]]]:
    found: dict[tuple[str, str], list[Sequence[str]]] = {}
    for line in lines:
        found.setdefault((line[0], line[1]), []).append(line)
    return found


def _find_tier(lines: Sequence[Sequence[str]]) -> int:
    """Return the rank of the largest tier of some lines of the table."""
    return max((_TIERS.index(line[2]) for line in lines), default=-1)


def _read_table(path: Path, columns: int) -> list[tuple[str, ...]]:
    """Return the cells of the table of the sweeps on the page, without its header."""
    block = read_block(path.read_text(), "sweep")
    lines = [line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("|")]
    return [tuple(cells) for cells in lines[2:] if len(cells) == columns]


def write_kills(kills: Sequence[Kill], path: Path = PAGE) -> None:
    """Write the table of mutants into the page."""
    from lab.sweep.mutants import MUTANTS

    lines = [
        _row(("mutant", "published bug of this kind", "found by", "in trial")),
        _row(["---"] * 4),
    ]
    for kill in kills:
        mutant = MUTANTS[kill.mutant]
        by = ", ".join(kill.oracles) or "**alive**"
        bug = f"<{mutant.bug}>" if mutant.bug.startswith("https:") else mutant.bug
        lines.append(_row((mutant.summary, bug, by, str(kill.trials))))
    _replace(path, "mutants", lines)


def replace_block(text: str, name: str, lines: Iterable[str]) -> str:
    """Replace the text between the markers of a block.

    Raises:
        ValueError: The text does not contain the block.
    """
    begin, end = _BEGIN.format(name), _END.format(name)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no block {begin} ... {end}")
    return "\n".join([before + begin, "", *lines, "", end + after])


def read_block(text: str, name: str) -> str:
    """Return the text between the markers of a block; empty if there is no such block."""
    rest = text.partition(_BEGIN.format(name))[2]
    return rest.partition(_END.format(name))[0].strip()


def _sum_up(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return modes, trials, fired, failures and seconds of a trial, as cells."""
    trials = sum(row.trials for row in rows)
    fired, failures = sum(row.fired for row in rows), sum(row.failures for row in rows)
    mean = sum(row.seconds for row in rows) / max(1, trials)
    modes = " ".join(str(row.mode) for row in rows)
    return modes, str(trials), str(fired), str(failures), f"{mean:.1f}"


def _replace(path: Path, name: str, lines: Iterable[str]) -> None:
    path.write_text(replace_block(path.read_text(), name, lines))


def _render_total(results: Sequence[Result], seconds: float) -> str:
    trial_results = [trial_result for result in results for trial_result in result.trial_results]
    failed = sum(trial_result.failed for trial_result in trial_results)
    return f"{len(trial_results)} trials, {failed} failures, {seconds:.0f} s."


def _pad(line: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
