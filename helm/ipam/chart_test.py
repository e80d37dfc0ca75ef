"""Tests of the chart of the operator ipam."""

from helm.suite import ChartSuite
from operators.ipam.metrics import METRICS
from operators.ipam.settings import Settings


class TestIpamChart(ChartSuite):
    """The chart holds what every chart must hold."""

    chart = "ipam"
    settings = Settings
    metrics = METRICS
