"""Tests of the chart of the operator ipam."""

from collections.abc import Sequence
from typing import Any

import pytest

from helm.suite import ChartSuite
from libs.common.kinds import Manifest
from libs.common.rbac import PolicyRule, render_rules
from operators.ipam.controller import OPERATOR
from operators.ipam.rbac import CLUSTER_API_RULES, COZY_PROXY_RULES, LOAD_BALANCER_RULES


class TestIpamChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR

    @pytest.mark.parametrize(
        ("setting", "suffix", "rules"),
        [
            ("loadBalancer", "services", LOAD_BALANCER_RULES),
            ("cozyProxy", "cozy-proxy", COZY_PROXY_RULES),
            ("clusterApi", "cluster-api", CLUSTER_API_RULES),
        ],
    )
    def test_optional_permissions_are_granted_only_with_their_setting(
        self, setting: str, suffix: str, rules: Sequence[PolicyRule]
    ) -> None:
        assert not self._list_roles({}, suffix)

        values = {"settings": {setting: True}}
        (role,) = self._list_roles(values, suffix)
        assert role["kind"] == "Role"
        assert role["rules"] == render_rules(rules)
        (cluster_role,) = self._list_roles({**values, "watch": {"clusterWide": True}}, suffix)
        assert cluster_role["kind"] == "ClusterRole"
        assert not self._list_roles({**values, "rbac": {"create": False}}, suffix)

    def _list_roles(self, values: dict[str, Any], suffix: str) -> list[Manifest]:
        roles = [*self.render(values, "Role"), *self.render(values, "ClusterRole")]
        return [each for each in roles if each["metadata"]["name"].endswith(f"-{suffix}")]
