"""Count tests from the JUnit reports that pytest writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of tests.

    Attributes:
        passed: Tests that passed.
        failed: Tests that failed in any phase.
        skipped: Tests that did not run.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Add two counts."""
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )


def read_counts(root: Path, pattern: str) -> Counts:
    """Return the sum of the reports that match a pattern below a directory."""
    total = Counts()
    for path in sorted(root.glob(pattern)):
        total += parse_report(path.read_text())
    return total


def parse_report(text: str) -> Counts:
    """Count the tests of one report; a test with a failure and an error counts once."""
    passed = failed = skipped = 0
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 a report of our own
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return Counts(passed, failed, skipped)
