"""Every alert of every chart, with the rules and the evaluation of Prometheus itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from helm.suite.alert_cases import COMMON, AlertCase, Series
from helm.suite.base import EVERYTHING, NAMESPACE
from helm.suite.own_alert_cases import OWN
from helm.suite.promtool import run_promtool
from libs.common.kinds import Manifest
from libs.common.testing.helm import find_charts, render_chart


@pytest.mark.parametrize("chart", find_charts())
def test_prometheus_accepts_the_rules(promtool: Path, chart: str, tmp_path: Path) -> None:
    run_promtool(promtool, "check", "rules", write_rules(chart, tmp_path))


@pytest.mark.parametrize("chart", find_charts())
def test_every_alert_fires_after_its_delay_and_is_quiet_close_to_it(
    promtool: Path, chart: str, tmp_path: Path
) -> None:
    rules = render_rules(chart)
    cases = {**COMMON, **OWN.get(chart, {})}
    tests = [test for rule in rules for test in build_tests(chart, rule, cases[rule["alert"]])]

    assert cases.keys() == {rule["alert"] for rule in rules}, "each alert has a case"
    run_promtool(promtool, "test", "rules", write_tests(chart, tests, tmp_path))


@pytest.mark.parametrize("chart", find_charts())
def test_no_alert_is_pending_at_rest(promtool: Path, chart: str, tmp_path: Path) -> None:
    """All quiet series together, and a second installation, for two hours."""
    at_rest = {'up{LABELS,pod="a"}': "1x120", **merge(COMMON), **merge(OWN.get(chart, {}))}
    silent = [expect_silent("ALERTS", f"{minute}m") for minute in (10, 35, 65, 115)]
    test = {"input_series": write_series(at_rest, chart), "promql_expr_test": silent}

    run_promtool(promtool, "test", "rules", write_tests(chart, [test], tmp_path))


def test_operator_without_pods_is_down_even_if_another_of_its_name_is_up(
    promtool: Path, tmp_path: Path
) -> None:
    rule = next(rule for rule in render_rules("podset") if rule["alert"] == "OperatorDown")
    up = {'up{job="podset",namespace="other",pod="a"}': "1x20"}
    case = AlertCase(up, {}, at="12m", before="8m")

    run_promtool(
        promtool,
        "test",
        "rules",
        write_tests("podset", [next(build_tests("podset", rule, case))], tmp_path),
    )


def merge(cases: Mapping[str, AlertCase]) -> dict[str, str]:
    """Return the quiet series of alerts, long enough for two hours of rest."""
    return {
        series: "100x120" if "age_seconds" in series else _rest(values)
        for case in cases.values()
        for series, values in case.quiet.items()
    }


def _rest(values: str) -> str:
    """Return a constant at the last value: at rest no counter moves."""
    last = values.rsplit(maxsplit=1)[-1].partition("x")[0].partition("+")[0]
    return f"{last}x120"


def build_tests(chart: str, rule: Manifest, case: AlertCase) -> Iterator[Manifest]:
    """Build the tests of an alert: it fires, not too early, and is quiet."""
    name = rule["alert"]
    metric = f'ALERTS{{alertname="{name}"}}'
    labels = {
        "alertname": name,
        "alertstate": "firing",
        "severity": rule["labels"]["severity"],
        "operator": chart,
        "job": chart,
        "namespace": NAMESPACE,
        **case.labels,
    }
    text = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    firing = {"labels": f"ALERTS{{{text}}}", "value": 1}
    expected = [{"expr": metric, "eval_time": case.at, "exp_samples": [firing]}]
    if case.before:
        early = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
        expected.append(expect_silent(early, case.before))
    yield {"input_series": write_series(case.firing, chart), "promql_expr_test": expected}
    yield {
        "input_series": write_series(case.quiet, chart),
        "promql_expr_test": [expect_silent(metric, case.at)],
    }


def expect_silent(expression: str, time: str) -> dict[str, Any]:
    """Expect an expression without samples."""
    return {"expr": expression, "eval_time": time, "exp_samples": []}


def write_series(series: Series, chart: str) -> list[dict[str, str]]:
    """Write series in the form of promtool."""
    labels = f'job="{chart}",namespace="{NAMESPACE}"'
    return [
        {"series": name.replace("LABELS", labels), "values": values}
        for name, values in series.items()
    ]


def render_rules(chart: str) -> list[Manifest]:
    """Render the alerts of a chart."""
    (rule,) = render_chart(chart, EVERYTHING, namespace=NAMESPACE, show_only=["PrometheusRule"])
    return [rule for group in rule["spec"]["groups"] for rule in group["rules"]]


def write_rules(chart: str, folder: Path) -> Path:
    """Write the rules of a chart as the Prometheus operator does."""
    path = folder / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": chart, "rules": render_rules(chart)}]}))
    return path


def write_tests(chart: str, tests: list[Manifest], folder: Path) -> Path:
    """Write a file of unit tests for the rules of a chart."""
    document = {
        "rule_files": [write_rules(chart, folder).name],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **test} for test in tests],
    }
    path = folder / "tests.yaml"
    path.write_text(json.dumps(document))
    return path
