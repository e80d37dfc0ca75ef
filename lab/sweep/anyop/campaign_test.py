"""Tests of campaigns: planning, judging, grouping, and whole campaigns against planted bugs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from lab.sweep.__main__ import main
from lab.sweep.anyop.campaign import (
    Campaign,
    Failure,
    Problem,
    Reference,
    Result,
    group_failures,
    judge,
    order_plans,
)
from lab.sweep.anyop.cluster import Bench
from lab.sweep.anyop.command import parse, start
from lab.sweep.anyop.report import render_page
from lab.sweep.anyop.starter import build_environment
from lab.sweep.anyop.trial import Expectation
from lab.sweep.journal import Journal
from lab.sweep.learning import Knowledge
from lab.sweep.modes import Mode
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan
from lab.sweep.recorder import Version
from lab.sweep.triggers import Trigger
from lab.sweep.workload import State
from libs.common.kinds import POD, build_object
from libs.common.testing.apiserver import AssetsMissing, find_assets

PLANTED = Path(__file__).resolve().parents[3] / "tests/planted"
PLAIN = Plan("operator", "workload")
READY = {"pods web": {"status": {"phase": "Ready"}}}
WHOLE: State = {"pods web": build_object(POD, "web")}
BROKEN = {"pods web": {"status": {"phase": "Failed"}}}


def build_reference(*runs: Outcome) -> Reference:
    expectation = Expectation(Knowledge(), {"create": READY, "delete": {}}, frozenset())
    return Reference(expectation, list(runs) or [Outcome(PLAIN, "a")], [], Counter(), [])


class StandIn(Campaign):
    """A campaign whose runs end in given states."""

    def __init__(self, states: Iterator[State]) -> None:
        super().__init__(cast("Bench", None), 1, lambda _: None)
        self._states = states

    async def try_plan(self, plan: Plan, reference: Reference) -> tuple[Outcome, list[Problem]]:
        outcome = Outcome(plan, "sweep-1", states={"create": next(self._states)}, fired=True)
        return outcome, judge(outcome, reference)


def test_each_fault_is_tried_once_at_each_sort_of_moment_first_then_in_each_phase() -> None:
    moments = [Trigger("write", "create", "create", "pods", f"web-{n}") for n in range(2)]
    moments.append(Trigger("event", "create", "ADDED", "pods", "web-0"))
    moments.append(Trigger("write", "grow", "create", "pods", "web-2"))

    plans = order_plans(moments, (Mode.K1, Mode.CUT, Mode.E500))

    assert [(each.mode, each.trigger) for each in plans] == [
        (Mode.K1, moments[0]),
        (Mode.CUT, moments[2]),
        (Mode.E500, moments[0]),
        (Mode.K1, moments[3]),
        (Mode.E500, moments[3]),
        (Mode.K1, moments[1]),
        (Mode.E500, moments[1]),
    ]


def test_only_the_first_phase_that_differs_is_reported() -> None:
    outcome = Outcome(PLAIN, "b", states={"create": BROKEN, "delete": BROKEN})

    assert [each.text for each in judge(outcome, build_reference())] == [
        'pods web.status.phase: "Ready" -> "Failed"'
    ]
    assert not judge(Outcome(PLAIN, "b", states={"create": READY}), build_reference())


def test_duplicates_exits_and_missing_rights_are_found_unless_undisturbed_runs_have_them() -> None:
    pod = Version("ADDED", POD, build_object(POD, "web"))
    outcome = Outcome(
        PLAIN, "sweep-1", history=[pod] * 3, exits=[1], refused=["delete pods web: no"]
    )

    problems = judge(outcome, build_reference())

    assert [each.oracle for each in problems] == ["duplicate", "exit", "rights"]
    same = Outcome(PLAIN, "a", exits=[1], refused=["delete pods other: no"])
    reference = build_reference(same)
    reference.created = Counter({"pods web": 2})
    assert not judge(outcome, reference)


def test_children_that_are_recreated_while_their_owner_is_deleted_are_no_duplicates() -> None:
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": "1"}]
    children = [
        Version("ADDED", POD, build_object(POD, "child", metadata={"ownerReferences": owners}))
        for _ in range(4)
    ]
    deletion = Version("DELETED", POD, build_object(POD, "web"))

    assert judge(Outcome(PLAIN, "sweep-1", history=[*children, deletion]), build_reference())
    assert not judge(Outcome(PLAIN, "sweep-1", history=[deletion, *children]), build_reference())


def test_failures_with_the_same_symptom_are_one_finding() -> None:
    def fail(*places: str, lost: str = "", confirmed: bool = True) -> Failure:
        problems = [Problem("state", "create", place, place) for place in places]
        problems += [Problem("object", "create", lost, lost)] if lost else []
        return Failure(Outcome(PLAIN, "a"), problems, confirmed)

    groups = group_failures(
        [
            fail("pods web.status.phase", "pods web.metadata.annotations.progress"),
            fail("services web"),
            fail("pods web.status.phase"),
            fail("pods web.metadata.annotations.progress"),
            fail("pods web.status.phase", lost="pods db"),
            fail(lost="pods db"),
            fail("services web", lost="pods db"),
        ]
    )

    assert [len(group.failures) for group in groups] == [3, 2, 1, 1]
    result = Result(build_reference())
    result.failures = [fail("a", confirmed=False), fail("b", confirmed=False), fail("a")]
    assert [[each.confirmed for each in group.failures] for group in result.groups] == [
        [True, False]
    ]
    assert [len(group.failures) for group in result.unconfirmed] == [1]


async def test_field_that_differs_in_one_of_two_runs_is_undetermined_from_the_second_time_on(
    tmp_path: Path,
) -> None:
    """A race that no undisturbed run showed must not become a finding of each fault."""
    moments = [Trigger("write", "create", "create", "pods", f"web-{n}") for n in range(3)]
    reference = replace(build_reference(), moments=moments)
    states = iter([BROKEN, READY, BROKEN, BROKEN, BROKEN, READY])
    campaign = StandIn(states)

    journal = Journal(tmp_path / "journal", resume=False)
    result = await campaign.sweep(reference, (Mode.K1,), None, journal)

    assert [each.confirmed for each in result.failures] == [False, True, False]
    assert not result.groups
    assert not result.unconfirmed
    assert [each.place for each in reference.problems] == ["pods web.status.phase"]


async def test_missing_object_is_never_undetermined(tmp_path: Path) -> None:
    """A busy machine may make an operator late: an object that comes later must not be ignored."""
    moments = [Trigger("write", "create", "create", "pods", f"web-{n}") for n in range(3)]
    expectation = Expectation(Knowledge(), {"create": WHOLE}, frozenset())
    reference = replace(build_reference(), moments=moments, expectation=expectation)
    lost: State = {}
    campaign = StandIn(iter([lost, WHOLE, lost, WHOLE, lost, lost]))

    journal = Journal(tmp_path / "journal", resume=False)
    result = await campaign.sweep(reference, (Mode.K1,), None, journal)

    assert [each.confirmed for each in result.failures] == [False, False, True]
    assert [len(group.failures) for group in result.groups] == [3]
    assert not reference.problems


async def test_symptom_of_a_confirmed_failure_is_not_confirmed_again(tmp_path: Path) -> None:
    moments = [Trigger("write", "create", "create", "pods", f"web-{n}") for n in range(3)]
    campaign = StandIn(iter([{}, {}, {}, WHOLE]))

    journal = Journal(tmp_path / "journal", resume=False)
    expectation = Expectation(Knowledge(), {"create": WHOLE}, frozenset())
    reference = replace(build_reference(), moments=moments, expectation=expectation)
    result = await campaign.sweep(reference, (Mode.K1,), None, journal)

    assert [each.confirmed for each in result.failures] == [True, True]
    assert (len(result.passed), len(result.groups)) == (1, 1)


async def test_resumed_campaign_repeats_only_what_did_not_pass(tmp_path: Path) -> None:
    moments = [Trigger("write", "create", "create", "pods", f"web-{n}") for n in range(3)]
    reference = replace(build_reference(), moments=moments)
    journal = Journal(tmp_path / "journal", resume=False)
    states = iter([READY, BROKEN, BROKEN, READY])
    first = await StandIn(states).sweep(reference, (Mode.K1,), None, journal)

    again = Journal(tmp_path / "journal", resume=True)
    second = await StandIn(iter([READY])).sweep(reference, (Mode.K1,), None, again)

    assert (len(first.passed), len(first.failures)) == (2, 1)
    assert (len(second.passed), len(second.failures)) == (3, 0)


def test_page_contains_the_files_of_all_findings(tmp_path: Path) -> None:
    folder = tmp_path / "01-K1-create-pods"
    folder.mkdir()
    for name in ("README.md", "writes.txt", "expected.json", "found.json", "log.txt"):
        (folder / name).write_text(f"<{name}>")

    page = render_page("Findings: 1 & more", [folder])

    assert "Findings: 1 &amp; more" in page
    assert "<h2>01-K1-create-pods</h2>" in page
    assert page.count("<details>") == 5
    assert "&lt;log.txt&gt;" in page


def test_fields_to_ignore_are_read_from_yaml(tmp_path: Path) -> None:
    (tmp_path / "noise.yaml").write_text("- pods web-*.status.phase\n")
    words = ["--ignore", str(tmp_path / "noise.yaml"), "--more", "--list", "--", "true"]

    inputs, options = parse(words)

    assert inputs.ignored == ("pods web-*.status.phase",)
    assert options.lists
    assert Mode.STALE in options.modes
    knowledge = Knowledge(ignored=tuple(inputs.ignored))
    assert not knowledge.compare(*({"pods web-1": {"status": {"phase": each}}} for each in "ab"))
    assert knowledge.compare(*({"pods db-1": {"status": {"phase": each}}} for each in "ab"))


def test_operator_gets_nothing_of_this_checkout() -> None:
    root = str(Path(__file__).resolve().parents[3])
    inherited = {"PYTHONPATH": f"{root}{os.pathsep}/own", "KUBERNETES_SERVICE_HOST": "x", "A": "b"}

    found = build_environment(inherited, "config", "trial")

    assert found["PYTHONPATH"] == "/own"
    assert (found["A"], found["KUBECONFIG"], found["POD_NAMESPACE"]) == ("b", "config", "trial")
    assert "KUBERNETES_SERVICE_HOST" not in found
    assert "PYTHONPATH" not in build_environment({"PYTHONPATH": root}, "config", "trial")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--crds", "x"], "The command that starts the operator is missing"),
        (["--crds", "nowhere", "--workload", str(PLANTED / "counter"), "--", "true"], "nowhere"),
        (["--workload", str(PLANTED / "counter"), "--", "true"], "contains no CRD"),
        (["--ignore", "nowhere", "--", "true"], "nowhere is no YAML list of fields"),
    ],
)
def test_wrong_command_line_exits_with_2(
    arguments: Sequence[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    code = 0
    try:
        code = main(["run", *arguments])
    except SystemExit as err:
        code = int(err.code or 0)

    assert code == 2
    assert message in capsys.readouterr().err


def test_installed_command_without_a_known_word_says_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["slipway-sweep", "podset"])

    assert start() == 2
    assert "run|replay" in capsys.readouterr().err


async def run_counter(bug: str, folder: Path, *options: str) -> tuple[int, str]:
    """Sweep the operator `counter` with a planted bug; return exit status and report."""
    try:
        if not (find_assets() / "kube-controller-manager").exists():
            pytest.skip("kube-controller-manager is not built")
    except AssetsMissing as err:
        pytest.skip(str(err))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.sweep", "run", "--crds", str(PLANTED / "crds")),
        *("--workload", str(PLANTED / "counter"), "--undisturbed", "2", "--patience", "20"),
        *("--output", str(folder), "--junit", str(folder / "junit.xml"), *options),
        # The trials that start before the time is over: each fault at each sort of moment.
        *("--jobs", "6", "--budget", "0.02"),
        *("--", sys.executable, "-m", "tests.planted.counter"),
        env={**os.environ, "BUG": bug},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@pytest.mark.apiserver
async def test_correct_operator_has_no_finding(tmp_path: Path) -> None:
    code, text = await run_counter("", tmp_path, "--fault", "K1", "--fault", "410")

    assert code == 0, text
    assert "Findings: 0" in text
    report = (tmp_path / "junit.xml").read_text()
    assert report.count("<testcase ") > 4
    assert "<failure" not in report


@pytest.mark.apiserver
async def test_planted_bug_is_found_and_its_finding_repeats_the_trial(tmp_path: Path) -> None:
    code, text = await run_counter("tries-once", tmp_path, "--fault", "E500")

    assert code == 1, text
    findings = sorted((tmp_path / "findings").iterdir())
    assert findings
    replay = json.loads((findings[0] / "replay.json").read_text())
    assert replay["plan"]["mode"] == "E500"
    page = (findings[0] / "README.md").read_text()
    assert f"./dev sweep replay {findings[0]}" in page
    assert "(injected)" in (findings[0] / "writes.txt").read_text()
    assert "<failure" in (tmp_path / "junit.xml").read_text()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.sweep", "replay", str(findings[0])),
        env={**os.environ, "BUG": "tries-once"},
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 1
