"""Tests of the count of tests."""

from __future__ import annotations

from pathlib import Path

from tools.gate.counts import Counts, parse_report, read_counts

REPORT = """<testsuites><testsuite tests="4">
<testcase name="good"/>
<testcase name="bad"><failure message="no"/><error message="and more"/></testcase>
<testcase name="left"><skipped message="why"/></testcase>
<testcase name="fine"><system-out>words</system-out></testcase>
</testsuite></testsuites>"""


def test_each_test_counts_once_by_its_worst_end() -> None:
    assert parse_report(REPORT) == Counts(passed=2, failed=1, skipped=1)


def test_reports_of_a_pattern_are_added_up(tmp_path: Path) -> None:
    for name in ("a.xml", "b.xml"):
        (tmp_path / name).write_text(REPORT)

    assert read_counts(tmp_path, "*.xml") == Counts(passed=4, failed=2, skipped=2)


def test_no_report_counts_nothing(tmp_path: Path) -> None:
    assert read_counts(tmp_path, "*.xml") == Counts()
