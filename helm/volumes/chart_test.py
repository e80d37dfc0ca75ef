"""Tests of the chart of the operator volumes."""

from operators.volumes.controller import OPERATOR
from tests.charts import ChartSuite


class TestVolumesChart(ChartSuite):
    """The chart holds what every chart must hold."""

    operator = OPERATOR
