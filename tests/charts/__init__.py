"""What every chart must hold; a chart's own test inherits `ChartSuite`."""

from helm.suite.lifecycle import LifecycleSuite, RefusalSuite
from helm.suite.monitoring import MonitoringSuite
from helm.suite.objects import ObjectSuite
from helm.suite.permissions import PermissionSuite
from helm.suite.server import ServerSuite
from helm.suite.values import CaseSuite, ValueSuite


class ChartSuite(
    ObjectSuite, PermissionSuite, LifecycleSuite, MonitoringSuite, ValueSuite, ServerSuite
):
    """All tests of a chart.

    Idiomatic use:

        class TestPodset(ChartSuite):
            operator = OPERATOR
    """


class LibrarySuite(CaseSuite, RefusalSuite):
    """Tests of the library, on any one chart: charts differ in image and settings alone."""


__all__ = ["ChartSuite", "LibrarySuite"]
