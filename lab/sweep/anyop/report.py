"""Reports of a campaign: a text, a folder for each finding, and JUnit."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from lab.sweep.anyop.campaign import Group, Problem, Result
from lab.sweep.anyop.cluster import Inputs
from lab.sweep.junit import Case, write_cases
from lab.sweep.modes import Mode
from lab.sweep.outcome import Outcome, render_timeline
from lab.sweep.planning import Plan

EXPLANATIONS: Final = {
    Mode.K1: "the write was executed, its response was lost, and the operator was killed",
    Mode.E500: "the write was refused with status 500",
    Mode.DONE500: "the write was executed, but answered with status 500",
    Mode.E409: "the write was refused with status 409 (Conflict)",
    Mode.A1: "the write was executed, and its response was lost",
    Mode.K2: "the operator was killed after the response",
    Mode.STALE: "the operator was killed after the response, and first saw an older state again",
    Mode.OUTAGE: "the write, and all requests for 0.8 seconds, were refused with status 503",
    Mode.E429: "the write was refused with status 429 (Too Many Requests)",
    Mode.E503: "the write was refused with status 503",
    Mode.LATE: "the write was executed 5 seconds late",
    Mode.DELAY: "the watch event, and all events after it, arrived 5 seconds late",
    Mode.CUT: "the watch was cut before the event",
    Mode.GONE: "the watch was cut before the event, and its resumption was refused (410)",
}
_FILES: Final = (
    "`expected.json` and `found.json` contain the objects at the end of the phase; random names,"
    " times and UIDs are replaced. `writes.txt` lists the writes of the operator, and `log.txt` the"
    " end of its log."
)
_SHOWN: Final = 4
_LOG_LINES: Final = 200


def render(result: Result, folders: Sequence[Path]) -> str:
    """Render the result for a terminal."""
    reference, groups = result.reference, result.groups
    lines = ["", "Without any fault:"]
    lines += _list_problems(reference.problems) or ["  the undisturbed runs agree"]
    lines += ["", f"Findings: {len(groups)}"]
    for group, folder in zip(groups, folders, strict=True):
        lines += _render_group(group)
        lines.append(f"  ./dev sweep replay {shlex.quote(str(folder))}")
    if result.unconfirmed:
        lines += ["", "Seen once and not again, so the result may depend on timing:"]
        for group in result.unconfirmed:
            lines += _render_group(group)
    lines += ["", *_render_noise(result), _render_total(result)]
    return "\n".join(lines)


def write_folders(result: Result, inputs: Inputs, folder: Path) -> list[Path]:
    """Write a folder for each finding, and return them."""
    shutil.rmtree(folder, ignore_errors=True)
    folders = []
    for number, group in enumerate(result.groups, 1):
        plan = group.first.outcome.plan
        words = f"{number:02}-{plan.mode}-{plan.trigger.action if plan.trigger else ''}"
        target = plan.trigger.target if plan.trigger else ""
        place = folder / re.sub(r"[^A-Za-z0-9.-]+", "-", f"{words}-{target}")
        _write_finding(place, group, result, inputs)
        folders.append(place)
    return folders


def render_page(text: str, folders: Sequence[Path]) -> str:
    """Render the report and the files of all findings as one HTML page."""
    parts = [f"<!doctype html><title>Fault sweep</title><pre>{escape(text)}</pre>"]
    for folder in folders:
        parts.append(f"<h2>{escape(folder.name)}</h2>")
        parts += [
            f"<details><summary>{name}</summary><pre>{escape((folder / name).read_text())}</pre>"
            "</details>"
            for name in ("README.md", "writes.txt", "expected.json", "found.json", "log.txt")
        ]
    return "\n".join(parts) + "\n"


def write_junit(path: Path, result: Result) -> None:
    """Write a JUnit report: a case for the undisturbed runs, and one for each trial."""
    cases: list[Case] = [
        ("operator", "without faults", [each.text for each in result.reference.problems])
    ]
    cases += [("operator", str(plan), []) for plan in (*result.passed, *result.missed)]
    cases += [
        (
            "operator",
            str(failure.outcome.plan),
            [each.text for each in failure.problems] if failure.confirmed else [],
        )
        for failure in result.list_failures()
    ]
    write_cases(path, cases)


def read_finding(folder: Path) -> tuple[Inputs, Plan]:
    """Read the inputs of a campaign and the trial of a finding."""
    data = json.loads((folder / "replay.json").read_text())
    inputs = data["inputs"]
    for name in ("crds", "manifests"):
        inputs[name] = [Path(each) for each in inputs[name]]
    return Inputs(**{**inputs, "workload": Path(inputs["workload"])}), Plan.from_json(data["plan"])


def _write_finding(place: Path, group: Group, result: Result, inputs: Inputs) -> None:
    place.mkdir(parents=True)
    outcome, problems = group.first.outcome, group.first.problems
    phase = next((each.phase for each in problems if each.phase), "")
    expected = result.reference.expectation.states.get(phase, {})
    files: dict[str, Any] = {
        "expected.json": expected,
        "found.json": outcome.states.get(phase, {}),
        "replay.json": {"inputs": _show_inputs(inputs), "plan": outcome.plan.to_json()},
    }
    for name, content in files.items():
        (place / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    (place / "writes.txt").write_text(render_timeline(outcome) + "\n")
    log = outcome.log.splitlines()[-_LOG_LINES:]
    (place / "log.txt").write_text("\n".join(log) + "\n")
    text = [f"# {_name_fault(outcome)}", "", *_explain(outcome), "", "## What differs", ""]
    text += [f"* {each.text}" for each in problems]
    text += ["", "## Faults with the same result", ""]
    text += [f"* {_name_fault(each.outcome)}" for each in group.failures]
    text += ["", "## Repeat it", "", f"    ./dev sweep replay {shlex.quote(str(place))}", ""]
    text += [_FILES, ""]
    (place / "README.md").write_text("\n".join(text))


def _show_inputs(inputs: Inputs) -> dict[str, Any]:
    return {
        "crds": [str(each.resolve()) for each in inputs.crds],
        "manifests": [str(each.resolve()) for each in inputs.manifests],
        "workload": str(inputs.workload.resolve()),
        "command": list(inputs.command),
        "controllers": list(inputs.controllers),
        "quiet": inputs.quiet,
        "patience": inputs.patience,
        "ignored": list(inputs.ignored),
    }


def _explain(outcome: Outcome) -> list[str]:
    trigger, mode = outcome.plan.trigger, outcome.plan.mode
    if trigger is None:
        return ["No fault was injected."]
    what = "write" if trigger.side == "write" else "event"
    moment = f"{trigger.action} {trigger.target} {trigger.name}".rstrip()
    text = (
        f"In the phase `{trigger.phase}`, at the {what} `{moment}` (number {trigger.occurrence} of"
        f" this phase), {EXPLANATIONS[mode]}. The operator did not reach the state that it reaches"
        " without the fault."
    )
    return [text]


def _render_group(group: Group) -> list[str]:
    lines = [f"* {_name_fault(group.first.outcome)} ({len(group.failures)} trials)"]
    lines += [f"    {each.text}" for each in group.first.problems[:_SHOWN]]
    others = [_name_fault(each.outcome) for each in group.failures[1:]]
    return lines + [f"    also: {each}" for each in others]


def _list_problems(problems: Sequence[Problem]) -> list[str]:
    return [
        f"* {': '.join(filter(None, (each.oracle, each.phase, each.text)))}" for each in problems
    ]


def _name_fault(outcome: Outcome) -> str:
    return f"{outcome.plan.mode} at {outcome.plan.trigger}"


def _render_noise(result: Result) -> list[str]:
    knowledge = result.reference.expectation.knowledge
    names = [name for _, name in knowledge.names]
    lines = [f"Random names: {', '.join(names)}"] if names else []
    if knowledge.varying:
        lines.append(f"Fields not compared: {', '.join(sorted(knowledge.varying))}")
    return lines


def _render_total(result: Result) -> str:
    left = result.planned - result.tried
    unconfirmed = sum(len(group.failures) for group in result.unconfirmed)
    failed = sum(len(group.failures) for group in result.groups)
    return (
        f"{result.tried} of {result.planned} trials in {result.seconds / 60:.0f} min:"
        f" {len(result.passed)} passed, {failed} failed, {unconfirmed} failed once,"
        f" {len(result.missed)} did not meet their moment, {left} were not started."
    )
