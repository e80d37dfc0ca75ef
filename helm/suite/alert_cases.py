"""For each alert the series with which it fires, and series close to them with which it is quiet.

Series are written as in the unit tests of Prometheus, with one sample per minute; `LABELS` stands
for the labels of the installation. Thresholds and delays come from docs/howto/monitor.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

type Series = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlertCase:
    """When an alert fires.

    Attributes:
        firing: Series with which it fires.
        quiet: Series with which it neither fires nor is pending.
        at: Time by which it fires.
        before: Time at which it does not fire yet, if it waits.
        labels: Labels of the alert, in addition to the labels of the installation.
    """

    firing: Series
    quiet: Series
    at: str
    before: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def build_histogram(name: str, labels: str, **buckets: str) -> dict[str, str]:
    """Build the series of a histogram; a bucket is named `_` and its upper bound."""
    bounds = {"inf": "+Inf"}
    return {
        f'{name}_bucket{{LABELS,{labels}le="{bounds.get(bound[1:], bound[1:])}"}}': values
        for bound, values in buckets.items()
    }


_EXPIRATION: Final = "operator_webhook_certificate_expiration_timestamp_seconds"
_CONTROLLER: Final = {"controller": "podset"}

COMMON: Final[Mapping[str, AlertCase]] = {
    "OperatorDown": AlertCase(
        {'up{LABELS,pod="a"}': "0x20", 'up{LABELS,pod="b"}': "0x20"},
        {'up{LABELS,pod="a"}': "0x20", 'up{LABELS,pod="b"}': "1x20"},
        at="12m",
        before="8m",
    ),
    "OperatorRestarting": AlertCase(
        {'process_start_time_seconds{LABELS,pod="a"}': "1x5 2x5 3x5 4x5 5x60"},
        {
            'process_start_time_seconds{LABELS,pod="a"}': "1x5 2x5 3x5 4x60",
            'process_start_time_seconds{LABELS,pod="b"}': "1x5 2x5 3x60",
        },
        at="30m",
        before="20m",
    ),
    "OperatorNoLeader": AlertCase(
        {'leader_election_master_status{LABELS,name="a",pod="a"}': "0x20"},
        {
            'leader_election_master_status{LABELS,name="a",pod="a"}': "0x20",
            'leader_election_master_status{LABELS,name="a",pod="b"}': "1x20",
        },
        at="6m",
        before="4m",
    ),
    "OperatorTwoLeaders": AlertCase(
        {
            'leader_election_master_status{LABELS,name="a",pod="a"}': "1x20",
            'leader_election_master_status{LABELS,name="a",pod="b"}': "1x20",
        },
        {
            'leader_election_master_status{LABELS,name="a",pod="a"}': "1 1 0x20",
            'leader_election_master_status{LABELS,name="a",pod="b"}': "0 0 1x20",
        },
        at="3m",
        before="1m",
    ),
    "OperatorLeaderIdle": AlertCase(
        {
            'leader_election_master_status{LABELS,name="a",pod="a"}': "1x20",
            'operator_working{LABELS,pod="a"}': "0x20",
        },
        {
            'leader_election_master_status{LABELS,name="a",pod="b"}': "1x20",
            'operator_working{LABELS,pod="a"}': "0x20",
            'operator_working{LABELS,pod="b"}': "1x20",
        },
        at="6m",
        before="4m",
    ),
    "OperatorNamespaceUnreadable": AlertCase(
        {'operator_cache_scope_up{LABELS,watched_namespace="b"}': "0x30"},
        {'operator_cache_scope_up{LABELS,watched_namespace="b"}': "1 0x10 1x30"},
        at="16m",
        before="14m",
        labels={"watched_namespace": "b"},
    ),
    "OperatorObjectsNotReady": AlertCase(
        {
            'operator_objects{LABELS,controller="podset",type="Ready",status="False",reason="a"}': (
                "2x40"
            )
        },
        {
            'operator_objects{LABELS,controller="podset",type="Ready",status="False",reason="a"}': (
                "0x40"
            ),
            'operator_objects{LABELS,controller="podset",type="Ready",status="True",reason="b"}': (
                "5x40"
            ),
            'operator_objects{LABELS,controller="podset",type="Other",status="False",reason="b"}': (
                "5x40"
            ),
        },
        at="31m",
        before="29m",
        labels={**_CONTROLLER, "reason": "a"},
    ),
    "OperatorReconcileErrors": AlertCase(
        {
            'controller_runtime_reconcile_errors_total{LABELS,controller="podset"}': "0+1x60",
            'controller_runtime_reconcile_total{LABELS,controller="podset"}': "0+5x60",
        },
        {
            'controller_runtime_reconcile_errors_total{LABELS,controller="podset"}': "0+1x60",
            'controller_runtime_reconcile_total{LABELS,controller="podset"}': "0+20x60",
        },
        at="30m",
        before="10m",
        labels=_CONTROLLER,
    ),
    "OperatorReconcilePanics": AlertCase(
        {'controller_runtime_reconcile_panics_total{LABELS,controller="podset"}': "0x5 1x30"},
        {'controller_runtime_reconcile_panics_total{LABELS,controller="podset"}': "1x30"},
        at="10m",
        labels=_CONTROLLER,
    ),
    "OperatorReconcileSlow": AlertCase(
        build_histogram(
            "controller_runtime_reconcile_time_seconds",
            'controller="podset",',
            _10="0x60",
            _60="0+6x60",
            _inf="0+6x60",
        ),
        build_histogram(
            "controller_runtime_reconcile_time_seconds",
            'controller="podset",',
            _10="0+6x60",
            _60="0+6x60",
            _inf="0+6x60",
        ),
        at="30m",
        before="10m",
        labels=_CONTROLLER,
    ),
    "OperatorQueueBacklog": AlertCase(
        build_histogram(
            "workqueue_queue_duration_seconds",
            'name="podset",',
            _10="0x60",
            _100="0+6x60",
            _inf="0+6x60",
        )
        | {'workqueue_depth{LABELS,name="podset",controller="podset",priority="0"}': "5x60"},
        build_histogram(
            "workqueue_queue_duration_seconds",
            'name="podset",',
            _10="0x60",
            _100="0+6x60",
            _inf="0+6x60",
        )
        | {'workqueue_depth{LABELS,name="podset",controller="podset",priority="0"}': "0x60"},
        at="30m",
        before="10m",
        labels={"name": "podset"},
    ),
    "OperatorReconcileStuck": AlertCase(
        {'workqueue_longest_running_processor_seconds{LABELS,name="podset"}': "700x30"},
        {'workqueue_longest_running_processor_seconds{LABELS,name="podset"}': "500x30"},
        at="6m",
        before="4m",
        labels={"name": "podset"},
    ),
    "OperatorWatchStale": AlertCase(
        {'operator_watch_last_event_age_seconds{LABELS,resource="pods"}': "1000+60x30"},
        {
            'operator_watch_last_event_age_seconds{LABELS,resource="pods"}': "60x30",
            # A kind that the cluster does not serve.
            'operator_watch_last_event_age_seconds{LABELS,resource="scaledobjects"}': "0x30",
        },
        at="6m",
        before="4m",
        labels={"resource": "pods"},
    ),
    "OperatorChangesMissed": AlertCase(
        {'operator_cache_swept_total{LABELS,resource="pods"}': "0+1x60"},
        {'operator_cache_swept_total{LABELS,resource="pods"}': "0x30 5x30"},
        at="60m",
        labels={"resource": "pods"},
    ),
    "OperatorRequestsRefused": AlertCase(
        {'rest_client_requests_total{LABELS,code="403",method="GET",host="a"}': "0+10x60"},
        {
            'rest_client_requests_total{LABELS,code="200",method="GET",host="a"}': "0+600x60",
            'rest_client_requests_total{LABELS,code="404",method="GET",host="a"}': "0+10x60",
            'rest_client_requests_total{LABELS,code="403",method="GET",host="a"}': "0+1x60",
        },
        at="30m",
        before="10m",
        labels={"code": "403"},
    ),
    "OperatorEventsDropped": AlertCase(
        {
            'operator_events_total{LABELS,result="dropped"}': "0+2x60",
            'operator_events_total{LABELS,result="failed"}': "0+1x60",
        },
        {
            'operator_events_total{LABELS,result="created"}': "0+60x60",
            'operator_events_total{LABELS,result="dropped"}': "0+1x60",
        },
        at="60m",
        before="20m",
    ),
    "OperatorWebhookCertificateExpiring": AlertCase(
        # The tests of Prometheus begin at Unix time 0.
        {
            f'{_EXPIRATION}{{LABELS,pod="a"}}': "600000x90",
            f'{_EXPIRATION}{{LABELS,pod="b"}}': "900000x90",
        },
        {
            f'{_EXPIRATION}{{LABELS,pod="a"}}': "700000x90",
            # An operator without webhooks.
            f'{_EXPIRATION}{{LABELS,pod="b"}}': "0x90",
        },
        at="61m",
        before="59m",
    ),
}
"""Alerts that every chart has."""
