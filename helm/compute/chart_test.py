"""Tests of the chart of the operator compute."""

from helm.suite import ChartSuite
from operators.compute.controller import OPERATOR


class TestComputeChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
