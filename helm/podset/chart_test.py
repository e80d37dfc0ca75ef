"""Tests of the chart of the operator podset."""

from operators.podset.controller import OPERATOR
from tests.charts import ChartSuite


class TestPodsetChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
