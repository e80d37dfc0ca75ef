"""One case for each value: what it changes in what is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.settings import describe_settings
from libs.common.testing.helm import CHARTS, with_registry
from tests.charts.base import EVERYTHING, SuiteBase, dig, nest
from tests.charts.cases import CASES, ELSEWHERE, SWITCHES


def read_defaults(chart: str) -> Manifest:
    """Read the values.yaml of a chart."""
    path = CHARTS / chart / "values.yaml"
    values: Manifest = fastyaml.load(path.read_text(encoding="utf-8"))
    return values


class CaseSuite(SuiteBase):
    """Every value of the library does what its comment says; it does the same in every chart."""

    @pytest.mark.parametrize("value", CASES)
    def test_value_shows_in_the_object(self, value: str) -> None:
        case = CASES[value]
        # The tracing endpoint is part of EVERYTHING and has an egress rule, so rules have places.
        values = _merge(with_registry(EVERYTHING), nest(value, case.value))
        if value.startswith("podMonitor."):
            values |= {"serviceMonitor": {"enabled": False}}
            values["podMonitor"]["enabled"] = True
        if value == "hostNetwork":
            # A chart with both is refused: a NetworkPolicy has no effect on such pods.
            values["networkPolicy"] = {"enabled": False}
        expected = case.value if case.expected is None else case.expected
        if isinstance(expected, str):
            expected = expected.replace("{chart}", self.chart)
        path = case.path
        if value == "extraEnv":
            values["tracing"] = {"endpoint": ""}
            path = path.replace(".env.3", f".env.{3 + len(self.computed)}")

        assert dig(self.render_one(case.kind, values), path) == expected

    def test_operator_learns_which_namespaces_are_excluded(self) -> None:
        values = {"watch": {"clusterWide": True, "excludedNamespaces": ["kube-system", "team-x"]}}
        (found,) = [
            value
            for name, value in self.render_env(values).items()
            if name.endswith("_WATCH_EXCLUDED_NAMESPACES")
        ]
        assert found == "kube-system,team-x"
        assert not any("EXCLUDED" in name for name in self.render_env({}))

    @pytest.mark.parametrize("value", SWITCHES)
    def test_switch_turns_the_object_on_and_off(self, value: str) -> None:
        default, kind = SWITCHES[value]
        base = {"replicas": 2}

        assert dig(read_defaults(self.chart), value) is default
        assert bool(self.render({**base, **nest(value, True)}, kind))
        assert not self.render({**base, **nest(value, False)}, kind)


class ValueSuite(SuiteBase):
    """The values of a chart, and what its settings become."""

    def test_every_value_has_a_case(self) -> None:
        defaults = {
            key: value for key, value in read_defaults(self.chart).items() if key != "settings"
        }

        assert set(_leaves(defaults)) == {*CASES, *SWITCHES, *ELSEWHERE}

    def test_every_value_has_a_comment(self) -> None:
        lines = (CHARTS / self.chart / "values.yaml").read_text(encoding="utf-8").splitlines()
        for before, line in pairwise(lines):
            key, colon, rest = line.partition(":")
            if colon and rest.strip() and not key.lstrip().startswith("#"):
                nested_default = key.startswith("    ")
                assert nested_default or before.lstrip().startswith("#") or "settings" in key, line

    def test_values_are_the_same_for_every_operator_but_for_image_and_settings(self) -> None:
        theirs = read_defaults("podset")
        ours = read_defaults(self.chart)
        for values in (ours, theirs):
            values.pop("settings")
            values["image"].pop("repository")

        assert ours == theirs

    def test_one_replica_has_no_disruption_budget(self) -> None:
        assert not self.render({"replicas": 1}, "PodDisruptionBudget")

    def test_crds_need_not_be_kept(self) -> None:
        for crd in self.render({"crds": {"keep": False}}, "CustomResourceDefinition"):
            assert "helm.sh/resource-policy" not in (crd["metadata"].get("annotations") or {})

    def test_annotations_of_crds_are_in_addition(self) -> None:
        crds = {"crds": {"annotations": {"a": "b"}}}
        for crd in self.render(crds, "CustomResourceDefinition"):
            annotations = crd["metadata"]["annotations"]
            assert annotations["a"] == "b"
            assert annotations["helm.sh/resource-policy"] == "keep"

    def test_other_ports_reach_the_operator(self) -> None:
        env = self.render_env({"ports": {"metrics": 9080, "probes": 9081}})
        prefix = self.chart.upper()

        assert env == {
            f"{prefix}_METRICS_BIND_ADDRESS": ":9080",
            f"{prefix}_HEALTH_PROBE_BIND_ADDRESS": ":9081",
        }

    def test_watched_namespaces_reach_the_operator(self) -> None:
        variable = f"{self.chart.upper()}_WATCH_NAMESPACES"
        one = self.render_env({"watch": {"namespaces": ["b", "a"]}})

        assert variable not in self.render_env(), "empty means its own"
        assert one[variable] == "a,b"
        assert self.render_env({"watch": {"clusterWide": True}})[variable] == "*"

    def test_every_variable_is_a_setting_that_the_operator_reads(self) -> None:
        specs = describe_settings(self.operator.settings)
        known = {name for spec in specs for name in spec.environment}
        entries = self.render_container({**EVERYTHING, "watch": {"clusterWide": True}})["env"]

        # The version is read by the operator's process itself.
        assert {entry["name"] for entry in entries} <= known | {"OPERATOR_VERSION"}

    def test_settings_become_variables_that_the_operator_understands(self) -> None:
        values = {"logLevel": "debug", "maxConcurrentReconciles": 8, "leaderElect": False}
        env = self.render_env({"settings": {**values, "resyncPeriodSeconds": 36_000_000}})
        prefix = f"{self.chart.upper()}_"

        assert env[f"{prefix}LOG_LEVEL"] == "debug"
        assert env[f"{prefix}MAX_CONCURRENT_RECONCILES"] == "8"
        assert env[f"{prefix}LEADER_ELECT"] == "false"
        # Neither 3.6e+07 nor 36000000.0.
        assert env[f"{prefix}RESYNC_PERIOD_SECONDS"] == "36000000"

    def test_settings_that_are_not_set_leave_no_variable(self) -> None:
        assert not self.render_env()


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, place)
        else:
            yield place


def _merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in change.items():
        known = merged.get(name)
        nested = isinstance(value, Mapping) and isinstance(known, Mapping)
        merged[name] = _merge(known, value) if nested and known else value
    return merged
