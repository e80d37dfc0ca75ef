"""Rules for common software, selected by `spec.config.preset`.

They were tried on the beans of Tomcat 10.1.40, of Spring Boot 3.5.0 with Tomcat and Hikari, of a
broker, a producer and a consumer of Kafka 3.9.0 (KRaft), and of a node of Cassandra 5.0.4. The
rules for raft, connections, fetchers, the broker state and log flushes follow the names in Kafka's
documentation and were not tried on a broker.
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
lowercaseOutputLabelNames: true
includeObjectNames: ["kafka.server:*", "kafka.network:*", "kafka.controller:*", "kafka.log:*", "kafka.cluster:*", "kafka.coordinator.group:*", "kafka.producer:*", "kafka.consumer:*"]
rules:
- pattern: 'kafka.server<type=BrokerTopicMetrics, name=(\w+)PerSec, topic=([^>]+)><>Count:'
  name: kafka_server_topic_$1_total
  labels: {topic: "$2"}
  type: COUNTER
- pattern: 'kafka.server<type=BrokerTopicMetrics, name=(\w+)PerSec><>Count:'
  name: kafka_server_$1_total
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
  name: kafka_network_requests_total
  labels: {request: "$1", version: "$2"}
  type: COUNTER
- pattern: 'kafka.network<type=RequestMetrics, name=TotalTimeMs, request=(\w+)><>(Mean|50thPercentile|99thPercentile):'
  name: kafka_network_request_time_milliseconds
  labels: {request: "$1", statistic: "$2"}
  type: GAUGE
- pattern: 'kafka.server<type=KafkaRequestHandlerPool, name=RequestHandlerAvgIdlePercent><>OneMinuteRate:'
  name: kafka_server_request_handler_idle_ratio
  type: GAUGE
- pattern: 'kafka.network<type=SocketServer, name=NetworkProcessorAvgIdlePercent><>Value:'
  name: kafka_network_processor_idle_ratio
  type: GAUGE
- pattern: 'kafka.log<type=Log, name=(Size|LogEndOffset|LogStartOffset|NumLogSegments), topic=([^,]+), partition=(\d+)><>Value:'
  name: kafka_log_$1
  labels: {topic: "$2", partition: "$3"}
  type: GAUGE
- pattern: 'kafka.server<type=raft-metrics><>([\w-]+):'
  name: kafka_server_raft_$1
  type: GAUGE
- pattern: 'kafka.server<type=socket-server-metrics, listener=([^,]+), networkProcessor=(\w+)><>connection-count:'
  name: kafka_server_connections
  labels: {listener: "$1", processor: "$2"}
  type: GAUGE
- pattern: 'kafka.server<type=FetcherLagMetrics, name=ConsumerLag, clientId=([^,]+), topic=([^,]+), partition=(\d+)><>Value:'
  name: kafka_server_fetcher_lag
  labels: {client_id: "$1", topic: "$2", partition: "$3"}
  type: GAUGE
- pattern: 'kafka.server<type=KafkaServer, name=BrokerState><>Value:'
  name: kafka_server_broker_state
  type: GAUGE
- pattern: 'kafka.log<type=LogFlushStats, name=LogFlushRateAndTimeMs><>Count:'
  name: kafka_log_flushes_total
  type: COUNTER
- pattern: 'kafka.log<type=LogFlushStats, name=LogFlushRateAndTimeMs><>(Mean|50thPercentile|99thPercentile):'
  name: kafka_log_flush_time_milliseconds
  labels: {statistic: "$1"}
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
