"""Tests of the chart of the operator volumes."""

from helm.suite import ChartSuite
from operators.volumes.metrics import METRICS
from operators.volumes.settings import Settings


class TestVolumesChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "volumes"
    settings = Settings
    metrics = METRICS
