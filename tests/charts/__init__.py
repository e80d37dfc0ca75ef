"""What every chart must hold; a chart's own test inherits `ChartSuite`."""

from tests.charts.lifecycle import LifecycleSuite, RefusalSuite
from tests.charts.monitoring import MonitoringSuite
from tests.charts.objects import ObjectSuite
from tests.charts.permissions import PermissionSuite
from tests.charts.server import ServerSuite
from tests.charts.values import CaseSuite, ValueSuite


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
