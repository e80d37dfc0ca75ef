"""Presets against names of beans, as the exporter writes them for its rules.

The names were compared with running servers of the versions that presets.py names. The patterns
mean the same in Java and in Python.
"""

from __future__ import annotations

import re

import pytest
import yaml

from operators.jmxexporter.api.v1alpha1 import Preset
from operators.jmxexporter.config import find_problem
from operators.jmxexporter.presets import PRESETS

BEANS = [
    (
        Preset.TOMCAT,
        'Catalina<type=GlobalRequestProcessor, name="http-nio-8080"><>requestCount: 3',
        "tomcat_requests_requestcount_total",
        {"connector": "http-nio-8080"},
    ),
    (
        Preset.TOMCAT,
        'Tomcat<type=ThreadPool, name="https-openssl-nio-8443"><>currentThreadsBusy: 1',
        "tomcat_threadpool_currentthreadsbusy",
        {"connector": "https-openssl-nio-8443"},
    ),
    (
        Preset.TOMCAT,
        "Catalina<type=Manager, host=localhost, context=/shop><>activeSessions: 2",
        "tomcat_sessions_activesessions",
        {"host": "localhost", "context": "/shop"},
    ),
    (
        Preset.TOMCAT,
        (
            "Catalina<j2eeType=Servlet, WebModule=//localhost/shop, name=jsp, "
            "J2EEApplication=none, J2EEServer=none><>errorCount: 0"
        ),
        "tomcat_servlet_errorcount_total",
        {"host": "localhost", "context": "/shop", "servlet": "jsp"},
    ),
    (
        Preset.KAFKA,
        "kafka.server<type=BrokerTopicMetrics, name=MessagesInPerSec, topic=a.b-c><>Count: 5",
        "kafka_server_brokertopicmetrics_messagesin_total",
        {"topic": "a.b-c"},
    ),
    (
        Preset.KAFKA,
        "kafka.server<type=BrokerTopicMetrics, name=BytesOutPerSec><>Count: 5",
        "kafka_server_brokertopicmetrics_bytesout_total",
        {},
    ),
    (
        Preset.KAFKA,
        "kafka.server<type=ReplicaManager, name=UnderReplicatedPartitions><>Value: 0",
        "kafka_server_replicamanager_underreplicatedpartitions",
        {},
    ),
    (
        Preset.KAFKA,
        "kafka.server<type=raft-metrics><>high-watermark: 12",
        "kafka_server_raftmetrics_high-watermark",
        {},
    ),
    (
        Preset.KAFKA,
        (
            "kafka.server<type=socket-server-metrics, listener=PLAIN, networkProcessor=2>"
            "<>connection-count: 4.0"
        ),
        "kafka_server_socket_server_metrics_connection_count",
        {"listener": "PLAIN", "networkProcessor": "2"},
    ),
    (
        Preset.KAFKA,
        "kafka.log<type=LogFlushStats, name=LogFlushRateAndTimeMs><>99thPercentile: 4.0",
        "kafka_log_logflushstats_logflushrateandtimems",
        {"quantile": "0.99"},
    ),
    (
        Preset.KAFKA,
        "kafka.controller<type=KafkaController, name=ActiveControllerCount><>Value: 1",
        "kafka_controller_kafkacontroller_activecontrollercount",
        {},
    ),
    (
        Preset.KAFKA,
        (
            "kafka.network<type=RequestMetrics, name=RequestsPerSec, request=Fetch, version=17>"
            "<>Count: 9"
        ),
        "kafka_network_requestmetrics_requests_total",
        # Clients of different versions send the same request: two beans, two time series.
        {"request": "Fetch", "version": "17"},
    ),
    (
        Preset.KAFKA,
        "kafka.log<type=Log, name=Size, topic=orders, partition=11><>Value: 77",
        "kafka_log_log_size",
        {"topic": "orders", "partition": "11"},
    ),
    (
        Preset.KAFKA,
        "kafka.consumer<type=consumer-fetch-manager-metrics, client-id=c><>records-lag-max: 4.0",
        "kafka_consumer_records-lag-max",
        {"client_id": "c", "group": "consumer-fetch-manager-metrics"},
    ),
    (
        Preset.KAFKA,
        "kafka.consumer<type=consumer-fetch-manager-metrics, client-id=c><>fetch-total: 12.0",
        "kafka_consumer_fetch_total",
        {"client_id": "c", "group": "consumer-fetch-manager-metrics"},
    ),
    (
        Preset.CASSANDRA,
        (
            "org.apache.cassandra.metrics<type=Table, keyspace=shop, scope=orders, name=ReadLatency"
            "><>99thPercentile: 1.5"
        ),
        "cassandra_table_readlatency",
        {"keyspace": "shop", "table": "orders", "statistic": "99thPercentile"},
    ),
    (
        Preset.CASSANDRA,
        (
            "org.apache.cassandra.metrics<type=ThreadPools, path=request, scope=ReadStage, "
            "name=PendingTasks><>Value: 0"
        ),
        "cassandra_threadpools_pendingtasks",
        {"path": "request", "pool": "ReadStage"},
    ),
    (
        Preset.CASSANDRA,
        (
            "org.apache.cassandra.metrics<type=ClientRequest, scope=Write-ALL, name=Timeouts>"
            "<>Count: 2"
        ),
        "cassandra_clientrequest_timeouts_total",
        {"scope": "Write-ALL"},
    ),
    (
        Preset.CASSANDRA,
        "org.apache.cassandra.metrics<type=Storage, name=Load><>Count: 4096",
        "cassandra_storage_load_total",
        {},
    ),
    (
        Preset.SPRING_BOOT,
        "com.zaxxer.hikari<type=Pool (HikariPool-1)><>ActiveConnections: 3",
        "hikari_activeconnections",
        {"pool": "HikariPool-1"},
    ),
    (
        Preset.SPRING_BOOT,
        'Tomcat<type=ThreadPool, name="http-nio-8080"><>connectionCount: 1',
        "tomcat_threadpool_connectioncount",
        {"connector": "http-nio-8080"},
    ),
]


@pytest.mark.parametrize("preset", list(Preset))
def test_preset_is_a_configuration(preset: Preset) -> None:
    assert find_problem(PRESETS[preset]) == ""


@pytest.mark.parametrize(
    ("preset", "bean", "name", "labels"), BEANS, ids=[each[2] for each in BEANS]
)
def test_first_rule_that_fits_a_bean_names_its_metric(
    preset: Preset, bean: str, name: str, labels: dict[str, str]
) -> None:
    for rule in yaml.safe_load(PRESETS[preset])["rules"]:
        match = re.fullmatch(f".*(?:{rule['pattern']}).*", bean)
        if match is not None:
            break
    else:
        pytest.fail("no rule fits")

    def fill(template: str) -> str:
        return match.expand(re.sub(r"\$(\d)", r"\\\1", template))

    assert fill(rule["name"]).lower() == name
    assert {key: fill(text) for key, text in rule.get("labels", {}).items()} == labels


def test_attribute_whose_name_begins_like_another_one_is_no_part_of_its_metric() -> None:
    """Tomcat has both; two samples with the same labels would spoil the scrape."""
    bean = "Tomcat<type=Manager, host=localhost, context=/shop><>maxActiveSessions: -1"

    rules = yaml.safe_load(PRESETS[Preset.TOMCAT])["rules"]

    assert not [rule for rule in rules if re.fullmatch(f".*(?:{rule['pattern']}).*", bean)]
