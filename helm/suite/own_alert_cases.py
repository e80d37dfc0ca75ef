"""For each alert of one operator the series with which it fires and is quiet.

Series are written as in `alert_cases.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from helm.suite.alert_cases import AlertCase, build_histogram

_OBJECT: Final = {"object_namespace": "shop", "object": "orders"}
_OF_OBJECT: Final = 'LABELS,object_namespace="shop",object="orders"'

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
    "podset": {},
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
    "volumes": {},
}
"""Alerts of one chart, by chart."""
