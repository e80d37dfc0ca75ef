"""Tests of the chart of the operator network."""

from helm.suite import ChartSuite
from operators.network.metrics import METRICS
from operators.network.settings import Settings


class TestNetworkChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "network"
    settings = Settings
    metrics = METRICS
