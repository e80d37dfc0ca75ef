"""What the demo shows of metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tools.jvm.cluster import render_metrics

TEXT = """\
# TYPE shop_orders gauge
shop_orders 7.0
# TYPE jvm_memory_used_bytes gauge
jvm_memory_used_bytes{area="heap"} 1500000.0
"""


def test_metrics_that_were_asked_for_are_shown_in_that_order() -> None:
    families = list(text_string_to_metric_families(TEXT))

    lines = render_metrics(families, ["jvm_memory_used_bytes", "missing", "shop_orders"])

    assert lines == ['jvm_memory_used_bytes{area="heap"} 1.5e+06', "shop_orders 7"]
