"""Tests of the chart of the operator ipam."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.rbac import render_rules
from operators.ipam.controller import OPERATOR
from operators.ipam.settings import Settings
from tests.charts import ChartSuite


def list_permissions(rules: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of each permission."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def list_further(settings: Settings) -> set[tuple[str, str, str]]:
    """Return the permissions that controllers need only with some settings."""
    needed = list_permissions(render_rules(OPERATOR.rules(settings)))
    return needed - list_permissions(render_rules(OPERATOR.rules()))


class TestIpamChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
    guards = True

    @pytest.mark.parametrize(
        ("setting", "suffix", "further"),
        [
            ("loadBalancer", "services", list_further(Settings(load_balancer=True))),
            ("cozyProxy", "cozy-proxy", list_further(Settings(cozy_proxy=True))),
            ("clusterApi", "cluster-api", list_further(Settings(cluster_api=True))),
        ],
    )
    def test_optional_permissions_are_granted_only_with_their_setting(
        self, setting: str, suffix: str, further: set[tuple[str, str, str]]
    ) -> None:
        assert not self._list_roles({}, suffix)

        values = {"settings": {setting: True}}
        (role,) = self._list_roles(values, suffix)
        assert role["kind"] == "Role"
        assert list_permissions(role["rules"]) == further
        (cluster_role,) = self._list_roles({**values, "watch": {"clusterWide": True}}, suffix)
        assert cluster_role["kind"] == "ClusterRole"
        assert not self._list_roles({**values, "rbac": {"create": False}}, suffix)

    def _list_roles(self, values: dict[str, Any], suffix: str) -> list[Manifest]:
        roles = [*self.render(values, "Role"), *self.render(values, "ClusterRole")]
        return [each for each in roles if each["metadata"]["name"].endswith(f"-{suffix}")]
