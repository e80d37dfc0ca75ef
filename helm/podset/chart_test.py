"""Tests of the chart of the operator podset."""

from helm.suite import ChartSuite
from operators.podset.controller import OPERATOR


class TestPodsetChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
