from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.sweep.modes import Mode
from lab.sweep.mutants import MUTANTS
from lab.sweep.outcome import Finding, Outcome
from lab.sweep.planning import Plan
from lab.sweep.report import (
    Result,
    build_rows,
    render_summary,
    replace_block,
    write_page,
)
from lab.sweep.runner import Reference, TrialResult, name_trial
from lab.sweep.triggers import Trigger
from lab.sweep.workload import load_workloads

TRIGGER = Trigger("write", "create", "create", "pods", "web-pod-0")
PLAN = Plan("podset", "strict", Mode.K1, TRIGGER)


def build_result(*failed: bool) -> Result:
    outcome = Outcome(Plan("podset", "strict"), "ns")
    result = Result("podset", "strict", Reference(load_workloads("podset")[0], outcome, []))
    for fails in failed:
        findings = [Finding("state", "web is missing")] if fails else []
        result.trial_results.append(
            TrialResult(Outcome(PLAN, "ns", fired=True, seconds=2.0), findings)
        )
    return result


def test_rows_sum_up_a_mode() -> None:
    (row,) = build_rows([build_result(False, True)])

    assert row.cells() == ("podset", "strict", "K1", "2", "2", "1", "2.0")
    assert "2 trials, 1 failures" in render_summary([build_result(False, True)], 5.0)


def test_block_is_replaced_and_words_stay() -> None:
    page = "Words.\n<!-- BEGIN generated: sweep -->\nold\n<!-- END generated: sweep -->\nMore."

    replaced = replace_block(page, "sweep", ["new"])

    assert "old" not in replaced and "\nnew\n" in replaced
    assert replaced.startswith("Words.") and replaced.endswith("More.")
    with pytest.raises(ValueError, match="no block"):
        replace_block(page, "mutants", [])


def test_name_of_a_trial_is_a_namespace() -> None:
    long = Plan("podset", "w" * 80, Mode.GONE)

    assert name_trial(PLAN, 7) == "s-podset-strict-k1-7"
    assert len(name_trial(long, 12345)) <= 63


def test_each_mutant_aims_at_a_workload_that_exists() -> None:
    assert len(MUTANTS) >= 15
    for mutant in MUTANTS.values():
        assert mutant.workload in {each.id for each in load_workloads(mutant.operator)}
        assert mutant.bug


def test_workloads_that_were_not_run_or_less_stay_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- BEGIN generated: sweep -->\n<!-- END generated: sweep -->\n")
    (strict,) = build_rows([build_result(False)])
    rolling = replace(strict, workload="rolling", trials=2, seconds=3600.0)
    larger = replace(strict, trials=5, failures=1)

    write_page([strict], "sorts", 0, page)
    write_page([rolling], "full", 0, page)
    write_page([larger], "full", 0, page)
    write_page([rolling], "gate", 0, page)

    assert [line for line in page.read_text().splitlines() if line.startswith("| podset")] == [
        "| podset | rolling | full | K1 | 2 | 1 | 0 | 1800.0 |",
        "| podset | strict | full | K1 | 5 | 1 | 1 | 0.4 |",
    ]
    assert "7 trials, 1 failures, 1.0 hours of trials, seed 0." in page.read_text()
