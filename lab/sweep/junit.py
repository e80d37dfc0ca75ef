"""JUnit: the trials of a sweep as test cases, so that a gate counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from lab.sweep.report import Result

type Case = tuple[str, str, Sequence[str]]
"""Group, name and problems of a test case."""


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


def write_cases(path: Path, cases: Iterable[Case]) -> None:
    """Write a report of test cases."""
    suite = ET.Element("testsuite", name="sweep")
    for case in cases:
        _add(suite, *case)
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(suite).write(path, encoding="unicode", xml_declaration=True)


def _add(suite: ET.Element, group: str, name: str, problems: Sequence[str]) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"sweep.{group}", name=name)
    if problems:
        ET.SubElement(case, "failure", message=problems[0]).text = "\n".join(problems)
