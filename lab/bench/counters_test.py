from __future__ import annotations

from lab.bench.counters import parse_writes, subtract

METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",resource="ipclaims",verb="POST"} 7
apiserver_request_total{code="200",component="apiserver",resource="ipclaims",verb="APPLY"} 3
apiserver_request_total{code="409",component="apiserver",resource="ipclaims",verb="POST"} 2
apiserver_request_total{code="200",component="apiserver",resource="ipclaims",verb="LIST"} 9
apiserver_request_total{code="200",component="apiserver",resource="leases",verb="PUT"} 5
"""


def test_writes_that_were_carried_out_are_counted_by_verb_and_resource() -> None:
    assert parse_writes(METRICS) == {"POST ipclaims": 7.0, "APPLY ipclaims": 3.0}


def test_counts_are_subtracted_and_what_is_the_same_is_left_out() -> None:
    assert subtract({"a": 3, "b": 2, "c": 1}, {"a": 1, "b": 2}) == {"a": 2, "c": 1}
