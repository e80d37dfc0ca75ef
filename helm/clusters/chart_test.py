"""Tests of the chart of the operator clusters."""

from helm.suite import ChartSuite
from operators.clusters.metrics import METRICS
from operators.clusters.settings import Settings


class TestClustersChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "clusters"
    settings = Settings
    metrics = METRICS
