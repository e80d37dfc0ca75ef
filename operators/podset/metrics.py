"""Metrics of the podset operator: none beyond those of the framework.

How a set is doing is in its status, where kube-state-metrics and the printer columns find it; a
gauge for each set would be a series for each user object.
"""

from __future__ import annotations

from typing import Final

from libs.common.metric_specs import MetricSpec

METRICS: Final[tuple[MetricSpec, ...]] = ()
"""Metrics in addition to the metrics of the framework."""
