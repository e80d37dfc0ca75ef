"""Tests of the chart of the operator compute."""

from operators.compute.controller import OPERATOR
from tests.charts import ChartSuite


class TestComputeChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
