"""JUnit: the trials of a sweep as test cases, so that a gate counts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from lab.sweep.report import Result


def write_junit(path: Path, results: Sequence[Result], unused: Sequence[str]) -> None:
    """Write a report.

    Args:
        path: Path of the file.
        results: Sweeps of workloads.
        unused: Descriptions of unused permissions; each one is a failure.
    """
    suite = ET.Element("testsuite", name="sweep")
    for result in results:
        name = f"{result.operator}.{result.workload}"
        _add(suite, name, "without faults", [str(each) for each in result.reference.findings])
        for trial_result in result.trial_results:
            plan = str(trial_result.outcome.plan)
            _add(suite, name, plan, [str(each) for each in trial_result.findings])
    for right in unused:
        _add(suite, "rights", right, [right])
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(suite).write(path, encoding="unicode", xml_declaration=True)


def _add(suite: ET.Element, group: str, name: str, problems: Sequence[str]) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"sweep.{group}", name=name)
    if problems:
        ET.SubElement(case, "failure", message=problems[0]).text = "\n".join(problems)
