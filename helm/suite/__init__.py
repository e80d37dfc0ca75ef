"""What every chart must hold; a chart's own test inherits `ChartSuite`."""

from helm.suite.lifecycle import LifecycleSuite
from helm.suite.monitoring import MonitoringSuite
from helm.suite.objects import ObjectSuite
from helm.suite.permissions import PermissionSuite
from helm.suite.server import ServerSuite
from helm.suite.values import ValueSuite


class ChartSuite(
    ObjectSuite, PermissionSuite, LifecycleSuite, MonitoringSuite, ValueSuite, ServerSuite
):
    """All tests of a chart.

    Idiomatic use:

        class TestPodset(ChartSuite):
            chart = "podset"
            settings = Settings
            metrics = METRICS
    """


__all__ = ["ChartSuite"]
