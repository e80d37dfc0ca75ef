"""Tests of the chart of the operator clusters."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from libs.common import fastyaml
from libs.common.conditions import Condition
from libs.common.testing.helm import render_notes
from operators.clusters.api.reasons import ConditionType, Reason
from operators.clusters.controller import OPERATOR
from operators.clusters.networks import evaluate_network
from operators.clusters.observed import Observed, Workload
from operators.clusters.samples import NOW, authorities, parse_cluster, view_network
from operators.clusters.status import evaluate_certificates
from tests.charts import ChartSuite

_VALUES = re.compile(r'(\w+)="([^"]*)"')


def evaluate_expiry(days: int) -> Condition:
    """Judge a cluster whose API serves a certificate that expires in some days."""
    workload = Workload(True, True, certificate_expires=NOW + timedelta(days=days))
    return evaluate_certificates(Observed(authorities=authorities(), workload=workload), NOW)


def evaluate_upgrade(reason: Reason) -> Condition:
    """Show a cluster whose nodes do not have the version of the spec."""
    return Condition.false(ConditionType.UP_TO_DATE, reason, "")


class TestClustersChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR

    @pytest.mark.parametrize(
        ("alert", "condition", "fires"),
        [
            ("ClustersCertificatesExpiring", evaluate_expiry(30), True),
            ("ClustersCertificatesExpiring", evaluate_expiry(300), False),
            ("ClustersUpgradeFailed", evaluate_upgrade(Reason.UPGRADE_FAILED), True),
            ("ClustersUpgradeFailed", evaluate_upgrade(Reason.UPGRADING), False),
        ],
        ids=["certificate expires", "certificate is valid", "node failed", "node is next"],
    )
    def test_alert_selects_the_condition_that_it_is_about(
        self, alert: str, condition: Condition, fires: bool
    ) -> None:
        """operator_objects has one series for each type, status and reason of a condition."""
        (expression,) = [rule["expr"] for rule in self.alerts() if rule["alert"] == alert]
        shape = r"sum by \(namespace, job\) \(operator_objects\{[^}]*\}\) > 0"
        assert re.fullmatch(shape, expression)
        wanted = dict(_VALUES.findall(expression))
        del wanted["job"], wanted["namespace"]

        shown = {"type": condition.type, "status": condition.status, "reason": condition.reason}

        assert all(shown[label] == value for label, value in wanted.items()) is fires

    def test_cluster_of_the_notes_can_form_on_their_network(self) -> None:
        text = render_notes(self.chart).partition("<<EOT\n")[2].partition("\nEOT")[0]
        specs = {one["kind"]: one["spec"] for one in fastyaml.load_all(text)}

        condition = evaluate_network(
            parse_cluster(**specs["KubernetesCluster"]),
            Observed(network=view_network(**specs["Network"])),
        )

        assert condition.status == "True", condition.message
