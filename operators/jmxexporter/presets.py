"""Rules for common software, selected by `spec.config.preset`.

They were tried on the beans of Tomcat 10.1.40, of Spring Boot 3.5.0 with Tomcat and Hikari, of a
broker, a producer and a consumer of Kafka 3.9.0 (KRaft), and of a node of Cassandra 5.0.4. The
rules for raft, connections, fetchers, the broker state and log flushes follow the names in Kafka's
documentation and were not tried on a broker. Metrics of a broker have the names that Strimzi's rules
give them, so that public dashboards and alerts work.
"""

# ruff: noqa: E501 - patterns cannot be broken.

from __future__ import annotations

from typing import Final

from operators.jmxexporter.api.v1alpha1 import Preset

_TOMCAT: Final = r"""
lowercaseOutputName: true
includeObjectNames: ["Catalina:*", "Tomcat:*"]
rules:
- pattern: '(?:Catalina|Tomcat)<type=GlobalRequestProcessor, name="([^"]+)"><>(requestCount|errorCount|bytesReceived|bytesSent|processingTime):'
  name: tomcat_requests_$2_total
  labels: {connector: "$1"}
  type: COUNTER
- pattern: '(?:Catalina|Tomcat)<type=GlobalRequestProcessor, name="([^"]+)"><>maxTime:'
  name: tomcat_requests_max_time_milliseconds
  labels: {connector: "$1"}
  type: GAUGE
- pattern: '(?:Catalina|Tomcat)<type=ThreadPool, name="([^"]+)"><>(currentThreadCount|currentThreadsBusy|maxThreads|connectionCount|maxConnections|keepAliveCount):'
  name: tomcat_threadpool_$2
  labels: {connector: "$1"}
  type: GAUGE
- pattern: '(?:Catalina|Tomcat)<type=Manager, host=([^,]+), context=([^>]+)><>(activeSessions|maxActive):'
  name: tomcat_sessions_$3
  labels: {host: "$1", context: "$2"}
  type: GAUGE
- pattern: '(?:Catalina|Tomcat)<type=Manager, host=([^,]+), context=([^>]+)><>(sessionCounter|rejectedSessions|expiredSessions):'
  name: tomcat_sessions_$3_total
  labels: {host: "$1", context: "$2"}
  type: COUNTER
- pattern: '(?:Catalina|Tomcat)<j2eeType=Servlet, WebModule=//([^/]+)(/[^,]*), name=([^,]+),[^>]*><>(requestCount|errorCount|processingTime):'
  name: tomcat_servlet_$4_total
  labels: {host: "$1", context: "$2", servlet: "$3"}
  type: COUNTER
"""

_KAFKA: Final = r"""
lowercaseOutputName: true
includeObjectNames: ["kafka.server:*", "kafka.network:*", "kafka.controller:*", "kafka.log:*", "kafka.cluster:*", "kafka.coordinator.group:*", "kafka.producer:*", "kafka.consumer:*"]
rules:
- pattern: 'kafka.server<type=BrokerTopicMetrics, name=(\w+)PerSec, topic=([^>]+)><>Count:'
  name: kafka_server_brokertopicmetrics_$1_total
  labels: {topic: "$2"}
  type: COUNTER
- pattern: 'kafka.server<type=BrokerTopicMetrics, name=(\w+)PerSec><>Count:'
  name: kafka_server_brokertopicmetrics_$1_total
  type: COUNTER
- pattern: 'kafka.server<type=ReplicaManager, name=(\w+)PerSec><>Count:'
  name: kafka_server_replicamanager_$1_total
  type: COUNTER
- pattern: 'kafka.server<type=ReplicaManager, name=(\w+)><>Value:'
  name: kafka_server_replicamanager_$1
  type: GAUGE
- pattern: 'kafka.controller<type=(\w+), name=(\w+)><>Value:'
  name: kafka_controller_$1_$2
  type: GAUGE
- pattern: 'kafka.network<type=RequestMetrics, name=RequestsPerSec, request=(\w+)(?:, version=(\d+))?><>Count:'
  name: kafka_network_requestmetrics_requests_total
  labels: {request: "$1", version: "$2"}
  type: COUNTER
- pattern: 'kafka.network<type=RequestMetrics, name=TotalTimeMs, request=(\w+)><>(50|99)thPercentile:'
  name: kafka_network_requestmetrics_totaltimems
  labels: {request: "$1", quantile: "0.$2"}
  type: GAUGE
- pattern: 'kafka.server<type=KafkaRequestHandlerPool, name=RequestHandlerAvgIdlePercent><>OneMinuteRate:'
  name: kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
  type: GAUGE
- pattern: 'kafka.network<type=SocketServer, name=NetworkProcessorAvgIdlePercent><>Value:'
  name: kafka_network_socketserver_networkprocessoravgidle_percent
  type: GAUGE
- pattern: 'kafka.log<type=Log, name=(Size|LogEndOffset|LogStartOffset|NumLogSegments), topic=([^,]+), partition=(\d+)><>Value:'
  name: kafka_log_log_$1
  labels: {topic: "$2", partition: "$3"}
  type: GAUGE
- pattern: 'kafka.server<type=raft-metrics><>([\w-]+):'
  name: kafka_server_raftmetrics_$1
  type: GAUGE
- pattern: 'kafka.server<type=socket-server-metrics, listener=([^,]+), networkProcessor=(\w+)><>connection-count:'
  name: kafka_server_socket_server_metrics_connection_count
  labels: {listener: "$1", networkProcessor: "$2"}
  type: GAUGE
- pattern: 'kafka.server<type=FetcherLagMetrics, name=ConsumerLag, clientId=([^,]+), topic=([^,]+), partition=(\d+)><>Value:'
  name: kafka_server_fetcherlagmetrics_consumerlag
  labels: {clientId: "$1", topic: "$2", partition: "$3"}
  type: GAUGE
- pattern: 'kafka.server<type=KafkaServer, name=BrokerState><>Value:'
  name: kafka_server_kafkaserver_brokerstate
  type: GAUGE
- pattern: 'kafka.log<type=LogFlushStats, name=LogFlushRateAndTimeMs><>Count:'
  name: kafka_log_logflushstats_logflushrateandtimems_count
- pattern: 'kafka.log<type=LogFlushStats, name=LogFlushRateAndTimeMs><>(50|99)thPercentile:'
  name: kafka_log_logflushstats_logflushrateandtimems
  labels: {quantile: "0.$1"}
  type: GAUGE
- pattern: 'kafka.cluster<type=Partition, name=(\w+), topic=([^,]+), partition=(\d+)><>Value:'
  name: kafka_cluster_partition_$1
  labels: {topic: "$2", partition: "$3"}
  type: GAUGE
- pattern: 'kafka.coordinator.group<type=GroupMetadataManager, name=(\w+)><>Value:'
  name: kafka_coordinator_group_$1
  type: GAUGE
- pattern: 'kafka.(producer|consumer)<type=([\w-]+), client-id=([^,>]+)><>([\w-]+)-total:'
  name: kafka_$1_$4_total
  labels: {client_id: "$3", group: "$2"}
  type: COUNTER
- pattern: 'kafka.(producer|consumer)<type=([\w-]+), client-id=([^,>]+)><>([\w-]+-(?:rate|avg|max|count|lag)):'
  name: kafka_$1_$4
  labels: {client_id: "$3", group: "$2"}
  type: GAUGE
"""

_CASSANDRA: Final = r"""
lowercaseOutputName: true
lowercaseOutputLabelNames: true
includeObjectNames: ["org.apache.cassandra.metrics:*"]
excludeObjectNames: ["org.apache.cassandra.metrics:type=ColumnFamily,*", "org.apache.cassandra.metrics:type=Client,name=connectedNativeClients"]
rules:
- pattern: 'org.apache.cassandra.metrics<type=(\w+), keyspace=(\w+), scope=(\w+), name=(\w+)><>Count:'
  name: cassandra_$1_$4_total
  labels: {keyspace: "$2", table: "$3"}
  type: COUNTER
- pattern: 'org.apache.cassandra.metrics<type=(\w+), keyspace=(\w+), scope=(\w+), name=(\w+)><>Value:'
  name: cassandra_$1_$4
  labels: {keyspace: "$2", table: "$3"}
  type: GAUGE
- pattern: 'org.apache.cassandra.metrics<type=(\w+), keyspace=(\w+), scope=(\w+), name=(\w+)><>(50thPercentile|99thPercentile):'
  name: cassandra_$1_$4
  labels: {keyspace: "$2", table: "$3", statistic: "$5"}
  type: GAUGE
- pattern: 'org.apache.cassandra.metrics<type=ThreadPools, path=(\w+), scope=([\w-]+), name=(\w+)><>Value:'
  name: cassandra_threadpools_$3
  labels: {path: "$1", pool: "$2"}
  type: GAUGE
- pattern: 'org.apache.cassandra.metrics<type=ThreadPools, path=(\w+), scope=([\w-]+), name=(\w+)><>Count:'
  name: cassandra_threadpools_$3_total
  labels: {path: "$1", pool: "$2"}
  type: COUNTER
- pattern: 'org.apache.cassandra.metrics<type=(\w+), scope=([\w-]+), name=(\w+)><>Count:'
  name: cassandra_$1_$3_total
  labels: {scope: "$2"}
  type: COUNTER
- pattern: 'org.apache.cassandra.metrics<type=(\w+), scope=([\w-]+), name=(\w+)><>Value:'
  name: cassandra_$1_$3
  labels: {scope: "$2"}
  type: GAUGE
- pattern: 'org.apache.cassandra.metrics<type=(\w+), scope=([\w-]+), name=(\w+)><>(50thPercentile|99thPercentile):'
  name: cassandra_$1_$3
  labels: {scope: "$2", statistic: "$4"}
  type: GAUGE
- pattern: 'org.apache.cassandra.metrics<type=(\w+), name=(\w+)><>Count:'
  name: cassandra_$1_$2_total
  type: COUNTER
- pattern: 'org.apache.cassandra.metrics<type=(\w+), name=(\w+)><>Value:'
  name: cassandra_$1_$2
  type: GAUGE
"""

_SPRING_BOOT: Final = r"""
lowercaseOutputName: true
includeObjectNames: ["Tomcat:*", "com.zaxxer.hikari:*", "org.springframework.boot:*"]
rules:
- pattern: 'com.zaxxer.hikari<type=Pool \(([^)]+)\)><>(ActiveConnections|IdleConnections|TotalConnections|ThreadsAwaitingConnection):'
  name: hikari_$2
  labels: {pool: "$1"}
  type: GAUGE
- pattern: 'org.springframework.boot<type=Admin, name=SpringApplication><>(Ready):'
  name: spring_boot_ready
  type: GAUGE
""" + _TOMCAT[_TOMCAT.index("- pattern") :]

PRESETS: Final = {
    Preset.TOMCAT: _TOMCAT,
    Preset.KAFKA: _KAFKA,
    Preset.CASSANDRA: _CASSANDRA,
    Preset.SPRING_BOOT: _SPRING_BOOT,
}
"""The configuration of the exporter, by preset."""
