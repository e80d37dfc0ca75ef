"""Tests of the chart of the operator volumes."""

from helm.suite import ChartSuite
from operators.volumes.controller import OPERATOR


class TestVolumesChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
