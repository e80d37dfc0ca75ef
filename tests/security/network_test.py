"""Row 23: where policies are on, everything is closed but what is named."""

from __future__ import annotations

import copy

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.helm import CHARTS, render_chart
from tests.charts.base import EVERYTHING

_OPERATORS = sorted(
    path.parent.name
    for path in CHARTS.glob("*/Chart.yaml")
    if path.parent.name != "operator-common"
)


def find_gaps(policy: Manifest) -> list[str]:
    """List where a policy lets everything through."""
    spec = policy["spec"]
    gaps = [
        f"{side} is not closed" for side in ("Ingress", "Egress") if side not in spec["policyTypes"]
    ]
    gaps += ["it selects every pod"] * (not spec["podSelector"])
    for side in ("ingress", "egress"):
        gaps += [
            f"{side} has a rule without ports"
            for rule in spec.get(side, ())
            if not rule.get("ports")
        ]
    return gaps


@pytest.mark.parametrize("operator", _OPERATORS)
def test_network_policy_of_each_chart_lists_its_traffic(operator: str) -> None:
    policies = render_chart(operator, EVERYTHING, show_only=["NetworkPolicy"])

    assert policies
    assert [find_gaps(policy) for policy in policies] == [[]] * len(policies)


def test_policy_that_allows_all_egress_is_found() -> None:
    policy, *_ = render_chart("podset", EVERYTHING, show_only=["NetworkPolicy"])
    wide, open_side = copy.deepcopy(policy), copy.deepcopy(policy)
    wide["spec"]["egress"].append({})
    open_side["spec"]["policyTypes"] = ["Ingress"]

    assert find_gaps(wide) == ["egress has a rule without ports"]
    assert find_gaps(open_side) == ["Egress is not closed"]
