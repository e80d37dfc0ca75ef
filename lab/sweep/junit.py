"""JUnit: the trials of a sweep as test cases, so that a gate counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

type Case = tuple[str, str, Sequence[str]]
"""Group, name and problems of a test case."""


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
