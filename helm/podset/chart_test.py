"""Tests of the chart of the operator podset."""

from helm.suite import ChartSuite
from operators.podset.metrics import METRICS
from operators.podset.settings import Settings


class TestPodsetChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "podset"
    settings = Settings
    metrics = METRICS
