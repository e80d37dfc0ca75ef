"""Alerts and dashboards: they show metrics that exist, by labels that these have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.common.kinds import Manifest
from libs.common.metric_specs import FRAMEWORK_METRICS, MetricKind, MetricSpec
from libs.common.testing.helm import CHARTS
from tests.charts.base import EVERYTHING, NAMESPACE, SuiteBase, dig
from tests.charts.promtool import expect_silent, expect_value, run_promtool

_METRIC = re.compile(r"([a-z_]+)\{")
_SELECTED = re.compile(r"([a-z_]+)\{([^{}]*)\}")
_MATCHED = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_SERIES_OF_HISTOGRAM = re.compile(r"(?<=[a-z])_(bucket|sum|count)\b")
_GROUPING = re.compile(r"\b(?:by|on) \(([a-z_, ]+)\)")
_LEGEND = re.compile(r"\{\{([a-z_]+)\}\}")
_TARGET_LABELS = frozenset({"namespace", "job", "pod"})
"""Labels that Prometheus puts on every sample of a scraped pod."""
_FOREIGN = frozenset(
    {
        "up",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    }
)
"""Metrics of Prometheus and of its Python client."""
_COUNTED = ("Objects", "Objects that are not ready", "Failing reconciles")
"""Panels whose series exist only after the first object or error."""
_SEVERITIES = frozenset({"critical", "warning", "info"})


class MonitoringSuite(SuiteBase):
    """ServiceMonitor, PrometheusRule, dashboard."""

    def specs(self) -> dict[str, MetricSpec]:
        """Return the known metrics by every name under which Prometheus has them."""
        names: dict[str, MetricSpec] = {}
        for spec in (*FRAMEWORK_METRICS, *self.operator.metrics, *self.workload_metrics):
            suffixes = ("_bucket", "_count", "_sum") if spec.kind is MetricKind.HISTOGRAM else ("",)
            names |= {f"{spec.name}{suffix}": spec for suffix in suffixes}
        return names

    def alerts(self) -> list[Manifest]:
        """Render the alerts."""
        groups = self.render_one("PrometheusRule", EVERYTHING)["spec"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def dashboards(self) -> dict[str, Manifest]:
        """Render and parse the dashboards, by the name of their file."""
        config = self.render_one("ConfigMap", EVERYTHING)
        return {name: json.loads(text) for name, text in config["data"].items()}

    def panels(self) -> list[Manifest]:
        """Return the panels of all dashboards that show something, which rows do not."""
        panels = [one for dashboard in self.dashboards().values() for one in dashboard["panels"]]
        return [panel for panel in panels if panel["type"] != "row"]

    def expressions(self) -> Iterator[tuple[str, str]]:
        """Yield every query with its location."""
        for rule in self.alerts():
            yield rule["alert"], rule["expr"]
        for panel in self.panels():
            for target in panel["targets"]:
                yield panel["title"], target["expr"]

    def test_protected_metrics_are_scraped_with_a_token(self) -> None:
        secure = {"settings": {"metricsSecure": True}, "serviceMonitor": {"enabled": True}}
        reviews = {
            (rule["apiGroups"][0], rule["resources"][0], *rule["verbs"])
            for role in self.render(secure, "ClusterRole")
            for rule in role["rules"]
            if rule.get("verbs") == ["create"]
        }
        endpoint = dig(self.render_one("ServiceMonitor", secure), "spec.endpoints.0")

        assert reviews >= {
            ("authentication.k8s.io", "tokenreviews", "create"),
            ("authorization.k8s.io", "subjectaccessreviews", "create"),
        }
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}
        assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"

    def test_queries_name_metrics_that_the_operator_has(self) -> None:
        known = {*self.specs(), *_FOREIGN}
        for place, expression in self.expressions():
            names = set(_METRIC.findall(expression))
            assert names, f"{place}: {expression}"
            assert names <= known, f"{place}: {names - known}"

    def test_queries_group_by_labels_that_the_metrics_have(self) -> None:
        specs = self.specs()
        for place, expression in self.expressions():
            labels = {*_TARGET_LABELS, "le"}
            for name in _METRIC.findall(expression):
                labels |= set(specs[name].labels) if name in specs else set()
            for group in _GROUPING.findall(expression):
                assert set(group.split(", ")) <= labels, f"{place}: {expression}"

    def test_queries_select_by_labels_that_the_metrics_have(self) -> None:
        specs = self.specs()
        for place, expression in self.expressions():
            for name, selector in _SELECTED.findall(expression):
                labels = {*_TARGET_LABELS, *(specs[name].labels if name in specs else ())}
                assert set(_MATCHED.findall(selector)) <= labels, f"{place}: {name}{{{selector}}}"

    def test_alerts_select_this_installation_and_panels_the_chosen_ones(self) -> None:
        # Pods that the operator runs for its users are scraped as jobs of their own.
        series = {spec.name for spec in self.workload_metrics}
        for place, expression in self.expressions():
            for name, selector in _SELECTED.findall(expression):
                if _SERIES_OF_HISTOGRAM.sub("", name) in series:
                    assert not selector, place
                else:
                    chosen = (f'job="{self.chart}"', 'job=~"$job",namespace=~"$namespace"')
                    assert selector.startswith(chosen), place

    def test_disabled_alert_is_left_out_and_all_others_have_the_labels(self) -> None:
        rule = {"enabled": True, "disabledAlerts": ["OperatorDown"], "alertLabels": {"team": "a"}}
        group = dig(self.render_one("PrometheusRule", {"prometheusRule": rule}), "spec.groups.0")
        default = [
            {**one, "labels": {**one["labels"], "team": "a"}}
            for one in self.alerts()
            if one["alert"] != "OperatorDown"
        ]

        assert group["rules"] == default
        assert len(default) == len(self.alerts()) - 1

    def test_alerts_have_a_severity_and_say_what_to_do(self) -> None:
        names = [rule["alert"] for rule in self.alerts()]

        assert len(names) == len(set(names))
        for rule in self.alerts():
            assert rule["labels"]["severity"] in _SEVERITIES
            assert rule["labels"]["operator"] == self.chart
            assert {"summary", "description", "runbook"} <= set(rule["annotations"])

    def test_every_alert_has_a_heading_on_the_page_of_runbooks(self) -> None:
        page = (CHARTS.parent / "docs" / "howto" / "alerts.md").read_text(encoding="utf-8")
        sections = {part.partition("\n")[0]: part for part in re.split(r"(?m)^#+ ", page)}
        for rule in self.alerts():
            section = sections.get(rule["alert"], "")
            for part in ("**Meaning.**", "**Cause.**", "**Remedy.**"):
                assert part in section, f"docs/howto/alerts.md: {rule['alert']} lacks {part}"

    def test_alerts_of_one_installation_do_not_depend_on_another(self) -> None:
        """Of two installations in a cluster one may be down while the other is well."""
        for rule in self.alerts():
            assert re.search(r"\bby \(namespace, job\b", rule["expr"]), rule["alert"]

    def test_alerts_refer_to_labels_that_their_query_keeps(self) -> None:
        for rule in self.alerts():
            kept = {name for group in _GROUPING.findall(rule["expr"]) for name in group.split(", ")}
            text = " ".join(rule["annotations"].values())
            assert set(re.findall(r"\$labels\.([a-z_]+)", text)) <= kept, rule["alert"]

    def test_dashboard_panels_do_not_overlap_and_fit_the_grid(self) -> None:
        for dashboard in self.dashboards().values():
            taken: dict[tuple[int, int], str] = {}
            for panel in dashboard["panels"]:
                grid = panel["gridPos"]
                assert grid["x"] + grid["w"] <= 24
                for x in range(grid["x"], grid["x"] + grid["w"]):
                    for y in range(grid["y"], grid["y"] + grid["h"]):
                        assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                        taken[x, y] = panel["title"]

    def test_dashboard_panels_have_ids_of_their_own_and_a_chosen_data_source(self) -> None:
        for dashboard in self.dashboards().values():
            ids = [panel["id"] for panel in dashboard["panels"]]
            assert len(ids) == len(set(ids))
        for panel in self.panels():
            for target in panel["targets"]:
                assert target["datasource"]["uid"] == "${datasource}"
            letters = [target["refId"] for target in panel["targets"]]
            assert len(letters) == len(set(letters))

    def test_one_dashboard_is_about_this_operator_and_one_about_all(self) -> None:
        dashboards = self.dashboards()
        jobs = {
            name: next(one for one in dashboard["templating"]["list"] if one["name"] == "job")
            for name, dashboard in dashboards.items()
        }
        without = {"dashboard": {"enabled": True, "runtime": False}}

        assert dashboards.keys() == {f"{self.chart}.json", "slipway-operators.json"}
        selected = f'label_values(operator_build_info{{operator="{self.chart}"}}, job)'
        assert jobs[f"{self.chart}.json"]["definition"] == selected
        assert (
            jobs["slipway-operators.json"]["definition"] == "label_values(operator_build_info, job)"
        )
        # Provisioned from several charts, it must be one dashboard.
        assert self.chart not in json.dumps(dashboards["slipway-operators.json"])
        assert self.render_one("ConfigMap", without)["data"].keys() == {f"{self.chart}.json"}

    @pytest.mark.parametrize("state", ["idle", "at rest", "down", "never scraped"])
    def test_panels_show_a_number_only_while_the_operator_reports(
        self, promtool: Path, state: str, tmp_path: Path
    ) -> None:
        """A zero for an operator that is down would look healthy; NaN says nothing."""
        build = "operator_build_info{LABELS}"
        series = {
            "idle": {"up{LABELS}": "1x30", build: "1x30"},
            "at rest": {"up{LABELS}": "1x30"} | self.series_at_rest("30"),
            # Series of a target that is down end.
            "down": {"up{LABELS}": "1x10 0x20"} | self.series_at_rest("10 stale"),
            "never scraped": {},
        }[state]
        expected = []
        for panel in self.panels():
            for query in (self.fill_in(target["expr"]) for target in panel["targets"]):
                # NaN is not equal to itself.
                expected.append(expect_silent(f"({query}) != ({query})", "25m"))
                if state in ("down", "never scraped") and "up{" not in query:
                    expected.append(expect_silent(query, "25m"))
            if state == "idle" and panel["type"] == "stat" and panel["title"] in _COUNTED:
                query = self.fill_in(panel["targets"][0]["expr"])
                expected.append(expect_value(query, "25m", 0))
        up = self.fill_in(self.find_panel("Replicas up")["targets"][0]["expr"])
        if state != "never scraped":
            expected.append(expect_value(up, "25m", 0 if state == "down" else 1))
        test = {
            "interval": "1m",
            "input_series": [
                {"series": name.replace("LABELS", self.labels()), "values": values}
                for name, values in series.items()
            ],
            "promql_expr_test": expected,
        }
        path = tmp_path / "panels.yaml"
        path.write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))

        run_promtool(promtool, "test", "rules", path)

    def test_stats_ask_for_the_present_value(self) -> None:
        """The last value of the time range would hide that the operator reports no longer."""
        for panel in self.panels():
            for target in panel["targets"]:
                assert target["instant"] is (panel["type"] == "stat"), panel["title"]
                assert target["range"] is (panel["type"] != "stat"), panel["title"]

    def test_legends_begin_with_what_differs(self) -> None:
        """Long legends are cut at the end."""
        for panel in self.panels():
            for target in panel["targets"]:
                legend = target["legendFormat"]
                assert not legend.startswith("{{controller}} {{"), panel["title"]
                assert not legend.startswith("{{job}} {{"), panel["title"]

    def test_replicas_that_are_down_are_red(self) -> None:
        for title in ("Replicas up", "Leaders"):
            steps = self.find_panel(title)["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert steps[0] == {"color": "red", "value": None}

    def series_at_rest(self, length: str) -> dict[str, str]:
        """Return a sample of every known metric that does not change."""
        series: dict[str, str] = {}
        for name, spec in self.specs().items():
            labels = "".join(f',{label}="x"' for label in spec.labels)
            bounds = (',le="0.1"', ',le="+Inf"') if name.endswith("_bucket") else ("",)
            series |= {f"{name}{{LABELS{labels}{bound}}}": f"1x{length}" for bound in bounds}
        return series

    def labels(self) -> str:
        """Return the labels that Prometheus adds to a replica."""
        return f'job="{self.chart}",namespace="{NAMESPACE}",pod="a"'

    def fill_in(self, expression: str) -> str:
        """Replace the variables as Grafana does."""
        values = {"$__rate_interval": "5m", "$namespace": NAMESPACE, "$job": self.chart}
        for name, value in values.items():
            expression = expression.replace(name, value)
        return expression

    def find_panel(self, title: str) -> Manifest:
        """Return the first panel with a title."""
        return next(panel for panel in self.panels() if panel["title"] == title)

    def test_legends_name_labels_that_their_query_keeps(self) -> None:
        specs = self.specs()
        for panel in self.panels():
            for target in panel["targets"]:
                kept = {
                    name for one in _GROUPING.findall(target["expr"]) for name in one.split(", ")
                }
                if not kept:
                    (name,) = _METRIC.findall(target["expr"])[:1]
                    kept = {*_TARGET_LABELS, *(specs[name].labels if name in specs else ())}
                assert set(_LEGEND.findall(target["legendFormat"])) <= kept, panel["title"]

    def test_dashboard_covers_what_an_operator_is_judged_by(self) -> None:
        shown = " ".join(expression for _, expression in self.expressions())
        # A histogram is shown by the series that it is made of.
        series = _SERIES_OF_HISTOGRAM.sub("", shown)
        wanted = {spec.name for spec in (*self.operator.metrics, *self.workload_metrics)}
        missing = wanted - set(re.findall(r"[a-z_]+", series))

        assert not missing, f"files/dashboard.yaml of {self.chart} lacks a panel of {missing}"

    def test_service_monitor_scrapes_the_service_that_the_queries_name(self) -> None:
        monitor = self.render_one("ServiceMonitor", EVERYTHING)
        service = self.render_one("Service")
        selector = dig(monitor, "spec.selector.matchLabels")

        assert selector.items() <= service["metadata"]["labels"].items()
        assert dig(monitor, "spec.endpoints.0.port") in {
            port["name"] for port in service["spec"]["ports"]
        }
        # Without a jobLabel, `job` is the name of the Service.
        assert "jobLabel" not in monitor["spec"]
        assert service["metadata"]["name"] == self.chart
