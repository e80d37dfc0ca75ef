"""The sweep of any operator finds planted bugs, and nothing in correct operators."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OPERATORS = {
    "allocator": (sys.executable, "-m", "tests.planted.allocator"),
    "counter": (sys.executable, "-m", "tests.planted.counter"),
    "website": (
        *(sys.executable, "-m", "kopf", "run", str(HERE / "website.py")),
        *("--namespace", "{namespace}"),
    ),
}
BUGS = (
    ("allocator", "releases-too-late", "K1"),
    ("allocator", "reports-once", "K1"),
    ("allocator", "skips-terminating", "K1"),
    ("allocator", "swallows-conflicts", "E409"),
    ("allocator", "takes-any-error-for-taken", "E500"),
    ("allocator", "trusts-status", "K1"),
    ("counter", "exits-when-expired", "410"),
    ("counter", "remembers-in-memory", "K1"),
    ("counter", "skips-when-expired", "410"),
    ("counter", "stops-when-cut", "cut"),
    ("counter", "tries-once", "E500"),
    ("website", "creates-blindly", "K1"),
    ("website", "destroys-first", "K1"),
    ("website", "duplicates", "K1"),
    ("website", "exits-on-conflict", "E409"),
    ("website", "gives-up", "E500"),
    ("website", "ignores-errors", "E500"),
    ("website", "orphans-archive", "E500"),
    ("website", "races", "E500"),
    ("website", "ready-first", "K1"),
    ("website", "repeats-lost-create", "done500"),
    ("website", "status-in-patch", "K1"),
)
OPT_IN = pytest.mark.skipif(
    "SLIPWAY_PLANTED" not in os.environ, reason="takes an hour; SLIPWAY_PLANTED=1 runs it"
)


async def run_campaign(operator: str, bug: str, folder: Path, *options: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.sweep", "run", "--crds", str(HERE / "crds")),
        *("--workload", str(HERE / operator), "--undisturbed", "3", "--patience", "20"),
        *("--output", str(folder), *options, "--", *OPERATORS[operator]),
        env={**os.environ, "BUG": bug},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


def test_each_planted_bug_is_in_the_table() -> None:
    planted = {
        (operator, bug)
        for operator in OPERATORS
        for bug in re.findall(r'BUG [!=]= "([a-z-]+)"', (HERE / f"{operator}.py").read_text())
    }

    assert planted == {(operator, bug) for operator, bug, _ in BUGS}
    assert len(BUGS) > 20


@OPT_IN
@pytest.mark.apiserver
@pytest.mark.parametrize(("operator", "bug", "fault"), BUGS)
async def test_planted_bug_is_found(operator: str, bug: str, fault: str, tmp_path: Path) -> None:
    # The trials that start before the time is over: each fault once at each sort of moment.
    code, text = await run_campaign(operator, bug, tmp_path, "--fault", fault, "--budget", "0.1")

    assert code == 1, text


@OPT_IN
@pytest.mark.apiserver
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("operator", OPERATORS)
async def test_correct_operator_has_no_finding(operator: str, number: int, tmp_path: Path) -> None:
    code, text = await run_campaign(operator, "", tmp_path, "--budget", "0.1")

    assert code == 0, text
