"""Run pytest for a step of the gate, and name the tests that fail only sometimes.

Failed tests are repeated once, alone. A test that then passes is flaky: it depends on the load of
the machine, on another test, or on chance. The step passes only if `tests/flaky.txt` lists it with
its cause, so the list can grow only on purpose.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).resolve().parents[2]

FLAKY: Final = ROOT / "tests/flaky.txt"
_MOST_REPEATED: Final = 20
"""Maximum number of failed tests to repeat; more have a common cause."""
_FAILED: Final = 1
"""Exit status of pytest if tests failed; others mean that it could not run them."""


def main(argv: Sequence[str]) -> int:
    """Run pytest and return its exit status, or 0 if only known flaky tests failed.

    Args:
        argv: Path of the JUnit report, optionally `--parallel`, `--`, and arguments of pytest.
    """
    split = argv.index("--")
    report = Path(argv[0])
    # One process more than cores, because tests of servers wait half of their time.
    processes = ("-n", str((os.cpu_count() or 1) + 1), "--dist", "loadfile")
    parallel = processes if "--parallel" in argv[1:split] else ()
    command = (sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={report.with_suffix('')}")
    arguments = argv[split + 1 :]
    status = _run((*command, f"--junit-xml={report}", *parallel, *arguments))
    if status != _FAILED or len(failed := read_failed(report.read_text())) > _MOST_REPEATED:
        return status
    print(f"Repeating {len(failed)} failed tests alone", flush=True)
    repeated = report.with_suffix(".repeated.xml")
    _run((*command, f"--junit-xml={repeated}", "--last-failed", *arguments))
    flaky = failed - read_failed(repeated.read_text())
    known = read_known(FLAKY.read_text())
    for test in sorted(flaky):
        print(f"Flaky, passed when it was repeated: {test}", flush=True)
    for test in sorted(flaky - known):
        print(f"{test} is not in {FLAKY.relative_to(ROOT)}: find out why it failed", flush=True)
    report.write_text(mark_passed(report.read_text(), flaky & known))
    return 0 if failed <= known and failed == flaky else status


def read_failed(report: str) -> set[str]:
    """Return the names of the tests of a JUnit report that failed in any phase."""
    cases = ET.fromstring(report).iter("testcase")  # noqa: S314 a report of our own
    return {_name(case) for case in cases if _has_failed(case)}


def read_known(text: str) -> set[str]:
    """Return the names in the list of flaky tests; each line is `NAME  # CAUSE`.

    Raises:
        ValueError: A line has no cause.
    """
    known = set()
    for line in text.splitlines():
        name, _, cause = line.partition("#")
        if name.strip():
            if not cause.strip():
                raise ValueError(f"tests/flaky.txt: {name.strip()} has no cause after '#'")
            known.add(name.strip())
    return known


def mark_passed(report: str, names: Collection[str]) -> str:
    """Return a JUnit report in which some tests have passed."""
    root = ET.fromstring(report)  # noqa: S314 a report of our own
    for case in root.iter("testcase"):
        if _name(case) in names:
            for child in [*case]:
                case.remove(child)
    return ET.tostring(root, encoding="unicode")


def _name(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _has_failed(case: ET.Element) -> bool:
    return any(child.tag in {"failure", "error"} for child in case)


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
