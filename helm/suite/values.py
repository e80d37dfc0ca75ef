"""One case for each value: what it changes in what is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from helm.suite.base import EVERYTHING, SuiteBase, dig, nest
from libs.common.kinds import Manifest
from libs.common.settings import describe_settings
from libs.common.testing.helm import CHARTS

_POD: Final = "spec.template.spec"
_CONTAINER: Final = f"{_POD}.containers.0"
_DIGEST: Final = "sha256:" + "0123456789abcdef" * 4
_PEERS: Final = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
_TOLERATIONS: Final = [{"key": "a", "operator": "Exists"}]


@dataclass(frozen=True, slots=True)
class Case:
    """What a value must become.

    Attributes:
        value: What the user sets.
        kind: Kind of the object that shows it.
        path: Where in the object, dotted.
        expected: What is there; the value itself when it is None.
    """

    value: Any
    kind: str
    path: str
    expected: Any = None


CASES: Final[Mapping[str, Case]] = {
    "image.registry": Case("r:5000", "Deployment", f"{_CONTAINER}.image", "r:5000/slipway/{chart}:0.1.0"),
    "image.repository": Case("a/b", "Job", f"{_CONTAINER}.image", "a/b:0.1.0"),
    "image.tag": Case("dev", "Deployment", f"{_CONTAINER}.image", "slipway/{chart}:dev"),
    "image.digest": Case(_DIGEST, "Deployment", f"{_CONTAINER}.image", "slipway/{chart}@" + _DIGEST),
    "image.pullPolicy": Case("Always", "Deployment", f"{_CONTAINER}.imagePullPolicy"),
    "imagePullSecrets": Case([{"name": "a"}], "Pod", "spec.imagePullSecrets"),
    "fullnameOverride": Case("other", "Deployment", "metadata.name"),
    "replicas": Case(3, "Deployment", "spec.replicas"),
    "tracing.endpoint": Case("http://c:4318", "NetworkPolicy", "spec.egress.2.ports", [{"port": 4318}]),
    "extraEnv": Case([{"name": "A", "value": "b"}], "Deployment", f"{_CONTAINER}.env.2", {"name": "A", "value": "b"}),
    "extraVolumes": Case([{"name": "a", "configMap": {"name": "a"}}], "Deployment", f"{_POD}.volumes.1.name", "a"),
    "extraVolumeMounts": Case([{"name": "a", "mountPath": "/a"}], "Deployment", f"{_CONTAINER}.volumeMounts.1.mountPath", "/a"),
    "resources.requests.cpu": Case("1", "Deployment", f"{_CONTAINER}.resources.requests.cpu"),
    "resources.requests.memory": Case("1Gi", "Job", f"{_CONTAINER}.resources.requests.memory"),
    "resources.requests.ephemeral-storage": Case("1Gi", "Deployment", f"{_CONTAINER}.resources.requests.ephemeral-storage"),
    "resources.limits.memory": Case("1Gi", "Deployment", f"{_CONTAINER}.resources.limits.memory"),
    "resources.limits.ephemeral-storage": Case("1Gi", "Deployment", f"{_CONTAINER}.resources.limits.ephemeral-storage"),
    "podAnnotations": Case({"a": "b"}, "Deployment", "spec.template.metadata.annotations.a", "b"),
    "podLabels": Case({"a": "b"}, "Deployment", "spec.template.metadata.labels.a", "b"),
    "priorityClassName": Case("high", "Deployment", f"{_POD}.priorityClassName"),
    "nodeSelector": Case({"a": "b"}, "Deployment", f"{_POD}.nodeSelector"),
    "tolerations": Case(_TOLERATIONS, "Deployment", f"{_POD}.tolerations"),
    "affinity": Case({"nodeAffinity": {}}, "Deployment", f"{_POD}.affinity"),
    "topologySpreadConstraints": Case([{"maxSkew": 2}], "Deployment", f"{_POD}.topologySpreadConstraints"),
    "terminationGracePeriodSeconds": Case(90, "Deployment", f"{_POD}.terminationGracePeriodSeconds"),
    "serviceAccount.create": Case(False, "Deployment", f"{_POD}.serviceAccountName", "default"),
    "serviceAccount.name": Case("other", "ServiceAccount", "metadata.name"),
    "serviceAccount.annotations": Case({"a": "b"}, "ServiceAccount", "metadata.annotations"),
    "cleanup.timeoutSeconds": Case(30, "Job", "spec.activeDeadlineSeconds"),
    "networkPolicy.metricsFrom": Case(_PEERS, "NetworkPolicy", "spec.ingress.0.from"),
    "networkPolicy.apiServer.ports": Case([6444], "NetworkPolicy", "spec.egress.1.ports", [{"port": 6444}]),
    "networkPolicy.apiServer.cidrs": Case(["10.0.0.1/32"], "NetworkPolicy", "spec.egress.1.to.0.ipBlock.cidr", "10.0.0.1/32"),
    "networkPolicy.extraEgress": Case([{"ports": [{"port": 1}]}], "NetworkPolicy", "spec.egress.3.ports.0.port", 1),
    "serviceMonitor.interval": Case("5s", "ServiceMonitor", "spec.endpoints.0.interval"),
    "serviceMonitor.scrapeTimeout": Case("5s", "ServiceMonitor", "spec.endpoints.0.scrapeTimeout"),
    "serviceMonitor.labels": Case({"release": "p"}, "ServiceMonitor", "metadata.labels.release", "p"),
    "serviceMonitor.metricRelabelings": Case([{"action": "labeldrop"}], "ServiceMonitor", "spec.endpoints.0.metricRelabelings"),
    "prometheusRule.labels": Case({"release": "p"}, "PrometheusRule", "metadata.labels.release", "p"),
    "dashboard.labels.grafana_dashboard": Case("yes", "ConfigMap", "metadata.labels.grafana_dashboard"),
    "dashboard.annotations": Case({"folder": "a"}, "ConfigMap", "metadata.annotations"),
}  # fmt: skip  # A table reads better with one case a line.
"""A case for each value that shows in one place."""

SWITCHES: Final[Mapping[str, tuple[bool, str]]] = {
    "crds.install": (True, "CustomResourceDefinition"),
    "cleanup.onUninstall": (True, "Job"),
    "podDisruptionBudget.enabled": (True, "PodDisruptionBudget"),
    "networkPolicy.enabled": (False, "NetworkPolicy"),
    "serviceMonitor.enabled": (False, "ServiceMonitor"),
    "prometheusRule.enabled": (False, "PrometheusRule"),
    "dashboard.enabled": (False, "ConfigMap"),
}
"""Values that turn a kind of object on and off, with their default."""

ELSEWHERE: Final = frozenset(
    {"watch.namespaces", "watch.clusterWide", "rbac.create", "rbac.userRoles", "crds.keep"}
)
"""Values that tests of the other suites are about."""


class ValueSuite(SuiteBase):
    """Every value does what its comment says."""

    def defaults(self) -> Manifest:
        """Read the chart's values.yaml."""
        path = CHARTS / self.chart / "values.yaml"
        values: Manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        return values

    @pytest.mark.parametrize("value", CASES)
    def test_value_shows_in_the_object(self, value: str) -> None:
        case = CASES[value]
        # The tracing endpoint is part of EVERYTHING and has an egress rule, so rules have places.
        values = {**EVERYTHING, **_merge(EVERYTHING, nest(value, case.value))}
        expected = case.value if case.expected is None else case.expected
        if isinstance(expected, str):
            expected = expected.replace("{chart}", self.chart)
        if value == "extraEnv":
            values["tracing"] = {"endpoint": ""}

        assert dig(self.render_one(case.kind, values), case.path) == expected

    @pytest.mark.parametrize("value", SWITCHES)
    def test_switch_turns_the_object_on_and_off(self, value: str) -> None:
        default, kind = SWITCHES[value]
        base = {"replicas": 2}

        assert dig(self.defaults(), value) is default
        assert bool(self.render({**base, **nest(value, True)}, kind))
        assert not self.render({**base, **nest(value, False)}, kind)

    def test_every_value_has_a_case(self) -> None:
        defaults = {key: value for key, value in self.defaults().items() if key != "settings"}

        assert set(_leaves(defaults)) == {*CASES, *SWITCHES, *ELSEWHERE}

    def test_every_value_has_a_comment(self) -> None:
        lines = (CHARTS / self.chart / "values.yaml").read_text(encoding="utf-8").splitlines()
        for before, line in zip(lines, lines[1:], strict=False):
            key, colon, rest = line.partition(":")
            if colon and rest.strip() and not key.lstrip().startswith("#"):
                nested_default = key.startswith("    ")
                assert nested_default or before.lstrip().startswith("#") or "settings" in key, line

    def test_values_are_the_same_for_every_operator_but_for_image_and_settings(self) -> None:
        theirs = yaml.safe_load((CHARTS / "podset" / "values.yaml").read_text(encoding="utf-8"))
        ours = self.defaults()
        for values in (ours, theirs):
            values.pop("settings")
            values["image"].pop("repository")

        assert ours == theirs

    def test_one_replica_has_no_disruption_budget(self) -> None:
        assert not self.render({"replicas": 1}, "PodDisruptionBudget")

    def test_crds_need_not_be_kept(self) -> None:
        for crd in self.render({"crds": {"keep": False}}, "CustomResourceDefinition"):
            assert "helm.sh/resource-policy" not in (crd["metadata"].get("annotations") or {})

    def test_watched_namespaces_reach_the_operator(self) -> None:
        variable = f"{self.chart.upper()}_WATCH_NAMESPACES"
        one = self.render_env({"watch": {"namespaces": ["b", "a"]}})

        assert variable not in self.render_env(), "empty means its own"
        assert one[variable] == "a,b"
        assert self.render_env({"watch": {"clusterWide": True}})[variable] == "*"

    def test_every_variable_is_a_setting_that_the_operator_reads(self) -> None:
        known = {name for spec in describe_settings(self.settings) for name in spec.environment}
        entries = self.render_container({**EVERYTHING, "watch": {"clusterWide": True}})["env"]

        assert {entry["name"] for entry in entries} <= known

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
