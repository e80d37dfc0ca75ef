"""Tests of the chart of the operator compute."""

from helm.suite import ChartSuite
from operators.compute.metrics import METRICS
from operators.compute.settings import Settings


class TestComputeChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "compute"
    settings = Settings
    metrics = METRICS
