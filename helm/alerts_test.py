"""Every alert of every chart, with the rules and the evaluation of Prometheus itself.

For each alert, a case has series with which it fires, and series close to them with which it is
quiet. Series are written as in the unit tests of Prometheus, with one sample per minute; `LABELS`
stands for the labels of the installation. Thresholds and delays come from docs/howto/alerts.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.helm import find_charts, render_chart
from tests.charts.base import EVERYTHING, NAMESPACE
from tests.charts.promtool import expect_silent, run_promtool

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


_OBJECT: Final = {"object_namespace": "shop", "object": "orders"}
_OF_OBJECT: Final = 'LABELS,object_namespace="shop",object="orders"'


def _build_objects_case(bad: str, good: str, *, minutes: int = 15, **labels: str) -> AlertCase:
    """Build the case of an alert about the conditions of objects, which fires after minutes."""
    return AlertCase(
        {f'operator_objects{{LABELS,controller="a",{bad}}}': "1x40"},
        {
            f'operator_objects{{LABELS,controller="a",{good}}}': "5x40",
            f'operator_objects{{LABELS,controller="a",{bad}}}': "0x40",
        },
        at=f"{minutes + 1}m",
        before=f"{minutes - 1}m",
        labels=labels,
    )


OWN: Final[Mapping[str, Mapping[str, AlertCase]]] = {
    "clusters": {
        "ClustersApiUnreachable": AlertCase(
            {'clusters_look_seconds_count{LABELS,result="error"}': "0+1x60"},
            {'clusters_look_seconds_count{LABELS,result="ok"}': "0+1x60"},
            at="30m",
            before="10m",
        ),
        "ClustersManyRebuilds": AlertCase(
            {'clusters_actions_total{LABELS,reason="Rebuilding"}': "0+0.1x60"},
            {
                'clusters_actions_total{LABELS,reason="Rebuilding"}': "0x30 2x30",
                'clusters_actions_total{LABELS,reason="Joining"}': "0+1x60",
            },
            at="60m",
        ),
        "ClustersCertificatesExpiring": AlertCase(
            {
                'operator_objects{LABELS,controller="a",type="CertificatesExpiring"'
                ',status="True",reason="a"}': "1x90"
            },
            {
                'operator_objects{LABELS,controller="a",type="CertificatesExpiring"'
                ',status="False",reason="a"}': "1x90"
            },
            at="61m",
            before="59m",
        ),
        "ClustersUpgradeFailed": AlertCase(
            {
                'operator_objects{LABELS,controller="a",type="UpToDate"'
                ',status="False",reason="UpgradeFailed"}': "1x60"
            },
            {
                'operator_objects{LABELS,controller="a",type="UpToDate"'
                ',status="False",reason="Upgrading"}': "1x60"
            },
            at="16m",
            before="14m",
        ),
    },
    "compute": {
        "ComputeOperationsFail": AlertCase(
            {'compute_operations_total{LABELS,type="Reboot",outcome="Failed"}': "0+0.1x60"},
            {
                'compute_operations_total{LABELS,type="Reboot",outcome="Failed"}': "0x30 1x30",
                'compute_operations_total{LABELS,type="Reboot",outcome="Succeeded"}': "0+1x60",
            },
            at="60m",
            labels={"type": "Reboot"},
        ),
    },
    "ipam": {
        "IpamPoolExhausted": AlertCase(
            {'ipam_pool_waiting_claims{LABELS,pool="public"}': "3x60"},
            {'ipam_pool_waiting_claims{LABELS,pool="public"}': "0x60"},
            at="16m",
            before="14m",
            labels={"pool": "public"},
        ),
        "IpamPoolNearlyFull": AlertCase(
            {
                'ipam_pool_addresses{LABELS,pool="public",state="free"}': "5x60",
                'ipam_pool_addresses{LABELS,pool="public",state="allocated"}': "95x60",
            },
            {
                'ipam_pool_addresses{LABELS,pool="public",state="free"}': "15x60",
                'ipam_pool_addresses{LABELS,pool="public",state="allocated"}': "85x60",
                # A pool without addresses.
                'ipam_pool_addresses{LABELS,pool="empty",state="free"}': "0x60",
            },
            at="31m",
            before="29m",
            labels={"pool": "public"},
        ),
    },
    "jmxexporter": {
        "JmxJvmLost": AlertCase(
            {f"jmxexporter_breaker_open{{{_OF_OBJECT}}}": "0x5 1x20"},
            {f"jmxexporter_breaker_open{{{_OF_OBJECT}}}": "0x20"},
            at="6m",
            labels=_OBJECT,
        ),
        "JmxScrapesFail": AlertCase(
            {f"jmxexporter_failing_scrapes{{{_OF_OBJECT}}}": "2x30"},
            {f"jmxexporter_failing_scrapes{{{_OF_OBJECT}}}": "2x5 0x30"},
            at="11m",
            before="9m",
            labels=_OBJECT,
        ),
        "JmxPodsFailed": AlertCase(
            {f'jmxexporter_pods{{{_OF_OBJECT},state="failed"}}': "2x30"},
            {
                f'jmxexporter_pods{{{_OF_OBJECT},state="failed"}}': "0x30",
                f'jmxexporter_pods{{{_OF_OBJECT},state="injected"}}': "2x30",
            },
            at="16m",
            before="14m",
            labels=_OBJECT,
        ),
        "JmxPodsWaiting": AlertCase(
            {f'jmxexporter_pods{{{_OF_OBJECT},state="pending"}}': "2x90"},
            {f'jmxexporter_pods{{{_OF_OBJECT},state="pending"}}': "0x90"},
            at="61m",
            before="59m",
            labels=_OBJECT,
        ),
    },
    "network": {
        "NetworkPolicyFoughtOver": AlertCase(
            {'network_repairs_total{LABELS,kind="NetworkPolicy"}': "0+1x60"},
            {'network_repairs_total{LABELS,kind="NetworkPolicy"}': "0x10 1x50"},
            at="40m",
            before="10m",
            labels={"kind": "NetworkPolicy"},
        ),
        "NetworkFirewallCompileSlow": AlertCase(
            build_histogram("network_compile_seconds", "", _1="0x90", _5="0+1x90", _inf="0+1x90"),
            build_histogram("network_compile_seconds", "", _1="0+1x90", _5="0+1x90", _inf="0+1x90"),
            at="60m",
            before="20m",
        ),
    },
    "podset": {
        "PodSetUnavailable": _build_objects_case(
            'type="Available",status="False",reason="MinimumUnavailable"',
            'type="Available",status="True",reason="MinimumAvailable"',
        ),
        "PodSetStalled": _build_objects_case(
            'type="Stalled",status="True",reason="BackOff"',
            'type="Stalled",status="False",reason="AsExpected"',
            reason="BackOff",
        ),
        "PodSetPodsRefused": _build_objects_case(
            'type="ReplicaFailure",status="True",reason="FailedCreate"',
            'type="ReplicaFailure",status="False",reason="AsExpected"',
            reason="FailedCreate",
        ),
    },
    "pulsarconsumer": {
        "PulsarBrokerUnreachable": AlertCase(
            {f"pulsarconsumer_broker_reachable{{{_OF_OBJECT}}}": "0x30"},
            {f"pulsarconsumer_broker_reachable{{{_OF_OBJECT}}}": "1x30"},
            at="11m",
            before="9m",
            labels=_OBJECT,
        ),
        "PulsarBacklogOld": AlertCase(
            {f"pulsarconsumer_oldest_message_age_seconds{{{_OF_OBJECT}}}": "4000+60x30"},
            {f"pulsarconsumer_oldest_message_age_seconds{{{_OF_OBJECT}}}": "100x30"},
            at="16m",
            before="14m",
            labels=_OBJECT,
        ),
        "PulsarNoConsumers": AlertCase(
            {
                f"pulsarconsumer_replicas_desired{{{_OF_OBJECT}}}": "2x30",
                f"pulsarconsumer_consumers_connected{{{_OF_OBJECT}}}": "0x30",
            },
            {
                f"pulsarconsumer_replicas_desired{{{_OF_OBJECT}}}": "0x30",
                f"pulsarconsumer_consumers_connected{{{_OF_OBJECT}}}": "0x30",
            },
            at="11m",
            before="9m",
            labels=_OBJECT,
        ),
        "PulsarDeadLetters": AlertCase(
            {f"pulsarconsumer_dead_letters{{{_OF_OBJECT}}}": "2x5 3x30"},
            {f"pulsarconsumer_dead_letters{{{_OF_OBJECT}}}": "3x30"},
            at="10m",
            labels=_OBJECT,
        ),
    },
    "volumes": {
        "VolumesClaimLost": _build_objects_case(
            'type="Ready",status="False",reason="ClaimLost"',
            'type="Ready",status="True",reason="Bound"',
            minutes=5,
            reason="ClaimLost",
        ),
        "VolumesClaimPending": _build_objects_case(
            'type="Ready",status="False",reason="Provisioning"',
            # A pod must use the volume first.
            'type="Ready",status="True",reason="WaitingForFirstConsumer"',
            reason="Provisioning",
        ),
        "VolumesResizeFailed": _build_objects_case(
            'type="Resized",status="False",reason="Infeasible"',
            'type="Resized",status="False",reason="Resizing"',
            reason="Infeasible",
        ),
        "VolumesSnapshotFailed": _build_objects_case(
            'type="Terminating",status="True",reason="SnapshotFailed"',
            'type="Terminating",status="True",reason="Snapshotting"',
            reason="SnapshotFailed",
        ),
    },
}
"""Alerts of one chart, by chart."""


@pytest.mark.parametrize("chart", find_charts())
def test_prometheus_accepts_the_rules(promtool: Path, chart: str, tmp_path: Path) -> None:
    run_promtool(promtool, "check", "rules", write_rules(chart, tmp_path))


@pytest.mark.parametrize("chart", find_charts())
def test_every_alert_fires_after_its_delay_and_is_quiet_close_to_it(
    promtool: Path, chart: str, tmp_path: Path
) -> None:
    rules = render_rules(chart)
    cases = {**COMMON, **OWN.get(chart, {})}
    tests = [test for rule in rules for test in build_tests(chart, rule, cases[rule["alert"]])]

    assert cases.keys() == {rule["alert"] for rule in rules}, "each alert has a case"
    run_promtool(promtool, "test", "rules", write_tests(chart, tests, tmp_path))


@pytest.mark.parametrize("chart", find_charts())
def test_no_alert_is_pending_at_rest(promtool: Path, chart: str, tmp_path: Path) -> None:
    """All quiet series together, and a second installation, for two hours."""
    at_rest = {'up{LABELS,pod="a"}': "1x120", **merge(COMMON), **merge(OWN.get(chart, {}))}
    silent = [expect_silent("ALERTS", f"{minute}m") for minute in (10, 35, 65, 115)]
    test = {"input_series": write_series(at_rest, chart), "promql_expr_test": silent}

    run_promtool(promtool, "test", "rules", write_tests(chart, [test], tmp_path))


def test_operator_without_pods_is_down_even_if_another_of_its_name_is_up(
    promtool: Path, tmp_path: Path
) -> None:
    rule = next(rule for rule in render_rules("podset") if rule["alert"] == "OperatorDown")
    up = {'up{job="podset",namespace="other",pod="a"}': "1x20"}
    case = AlertCase(up, {}, at="12m", before="8m")

    run_promtool(
        promtool,
        "test",
        "rules",
        write_tests("podset", [next(build_tests("podset", rule, case))], tmp_path),
    )


def merge(cases: Mapping[str, AlertCase]) -> dict[str, str]:
    """Return the quiet series of alerts, long enough for two hours of rest."""
    return {
        series: "100x120" if "age_seconds" in series else _rest(values)
        for case in cases.values()
        for series, values in case.quiet.items()
    }


def _rest(values: str) -> str:
    """Return a constant at the last value: at rest no counter moves."""
    last = values.rsplit(maxsplit=1)[-1].partition("x")[0].partition("+")[0]
    return f"{last}x120"


def build_tests(chart: str, rule: Manifest, case: AlertCase) -> Iterator[Manifest]:
    """Build the tests of an alert: it fires, not too early, and is quiet."""
    name = rule["alert"]
    metric = f'ALERTS{{alertname="{name}"}}'
    labels = {
        "alertname": name,
        "alertstate": "firing",
        "severity": rule["labels"]["severity"],
        "operator": chart,
        "job": chart,
        "namespace": NAMESPACE,
        **case.labels,
    }
    text = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    firing = {"labels": f"ALERTS{{{text}}}", "value": 1}
    expected = [{"expr": metric, "eval_time": case.at, "exp_samples": [firing]}]
    if case.before:
        early = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
        expected.append(expect_silent(early, case.before))
    yield {"input_series": write_series(case.firing, chart), "promql_expr_test": expected}
    yield {
        "input_series": write_series(case.quiet, chart),
        "promql_expr_test": [expect_silent(metric, case.at)],
    }


def write_series(series: Series, chart: str) -> list[dict[str, str]]:
    """Write series in the form of promtool."""
    labels = f'job="{chart}",namespace="{NAMESPACE}"'
    return [
        {"series": name.replace("LABELS", labels), "values": values}
        for name, values in series.items()
    ]


def render_rules(chart: str) -> list[Manifest]:
    """Render the alerts of a chart."""
    (rule,) = render_chart(chart, EVERYTHING, namespace=NAMESPACE, show_only=["PrometheusRule"])
    return [rule for group in rule["spec"]["groups"] for rule in group["rules"]]


def write_rules(chart: str, folder: Path) -> Path:
    """Write the rules of a chart as the Prometheus operator does."""
    path = folder / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": chart, "rules": render_rules(chart)}]}))
    return path


def write_tests(chart: str, tests: list[Manifest], folder: Path) -> Path:
    """Write a file of unit tests for the rules of a chart."""
    document = {
        "rule_files": [write_rules(chart, folder).name],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **test} for test in tests],
    }
    path = folder / "tests.yaml"
    path.write_text(json.dumps(document))
    return path
