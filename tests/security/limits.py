"""What a tenant can send, and where it ends: the limits of operators with their tests. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on what a tenant writes, answers or serves.

    Attributes:
        what: What the tenant sends.
        constant: The constant that holds the bound, as `file::NAME`.
        value: Its value as the page shows it; a test compares it with the constant.
        unit: What is counted.
        beyond: What happens to a tenant who sends more.
        test: Test that sends more, as `file::name`.
    """

    what: str
    constant: str
    value: str
    unit: str
    beyond: str
    test: str


_YAML: Final = "libs/common/fastyaml.py"
_ADDONS: Final = "operators/clusters/addons_test.py"
_BALANCING: Final = "operators/clusters/load_balancing_test.py"
_ADMIN: Final = "operators/pulsarconsumer/broker/pulsar_admin"
_JAVA: Final = "operators/jmxexporter/guard/engine/src/main/java/dev/slipway/jmx/engine"
_BOUNDS: Final = "operators/jmxexporter/injector/bounds_jvm_test.py"
_FIREWALL: Final = "operators/network/firewall"

LIMITS: Final = (
    Limit(
        "YAML of a ConfigMap (addons, rules of the exporter): levels of nesting",
        f"{_YAML}::DEEPEST",
        "100",
        "levels",
        "the addon or configuration is refused by its key",
        f"{_ADDONS}::test_yaml_that_is_nested_too_deeply_is_refused_by_its_key",
    ),
    Limit(
        "the same: length, with all aliases expanded",
        f"{_YAML}::LONGEST",
        "3145728",
        "characters",
        "the addon or configuration is refused by its key",
        f"{_ADDONS}::test_aliases_of_a_long_text_are_refused",
    ),
    Limit(
        "values of one addon, with all aliases expanded",
        "libs/common/fastyaml.py::MOST",
        "100000",
        "values",
        "the addon is refused by its key",
        f"{_ADDONS}::test_yaml_that_unfolds_without_end_is_refused",
    ),
    Limit(
        "response of the API server of a KubernetesCluster, decompressed, for each request",
        "operators/clusters/workload.py::_READ_LIMIT",
        "8388608",
        "bytes",
        "the cluster counts as unreachable; nothing in it is changed",
        "libs/common/transport_limit_test.py::"
        "test_response_over_the_limit_counts_as_no_response",
    ),
    Limit(
        "labels and taints of all nodes of a KubernetesCluster",
        "operators/clusters/workload.py::_LARGEST",
        "20000",
        "entries",
        "the cluster counts as unreachable",
        "operators/clusters/workload_test.py::"
        "test_cluster_that_sends_too_much_counts_as_unreachable",
    ),
    Limit(
        "Services of type LoadBalancer in a KubernetesCluster",
        "operators/clusters/service_client.py::_LARGEST",
        "2000",
        "Services",
        "they count as unreadable; nodes and addresses stay as they are",
        f"{_BALANCING}::test_hostile_api_hides_no_node",
    ),
    Limit(
        "ports of such a Service",
        "operators/clusters/services.py::PORTS_LIMIT",
        "16",
        "ports",
        "the Service gets no address, and its status says why",
        f"{_BALANCING}::test_service_that_cannot_be_served_is_told_and_keeps_what_it_has",
    ),
    Limit(
        "Services beyond `spec.loadBalancers.limit` that are told why they wait",
        "operators/clusters/services.py::_MOST_WAITING",
        "50",
        "Services",
        "the others are left out",
        f"{_BALANCING}::test_many_waiting_services_are_bounded",
    ),
    Limit(
        "response of etcd of a KubernetesCluster",
        "operators/clusters/etcd_client.py::_LARGEST",
        "1048576",
        "bytes",
        "etcd counts as unreachable; no member is removed",
        "operators/clusters/etcd_client_test.py::test_response_without_end_is_cut_off",
    ),
    Limit(
        "certificate in the Secret of the authorities of a KubernetesCluster",
        "operators/clusters/certificates.py::_CERTIFICATE_SIZE",
        "65536",
        "characters",
        "the cluster is not connected, and its status names the file",
        "operators/clusters/certificates_test.py::"
        "test_certificates_of_a_megabyte_are_refused_before_they_are_loaded",
    ),
    Limit(
        "certificates of a login to a Pulsar broker",
        "operators/pulsarconsumer/broker/login.py::_LARGEST",
        "262144",
        "characters",
        "the login is refused",
        f"{_ADMIN}_test.py::test_certificates_of_a_megabyte_are_refused_before_they_are_loaded",
    ),
    Limit(
        "decimal number in an Avro message",
        "operators/pulsarconsumer/app/avro.py::_DECIMAL",
        "1024",
        "bytes",
        "the message counts as failed, like recursive values of more than about 150 levels",
        "operators/pulsarconsumer/app/schemas_test.py::"
        "test_avro_that_would_end_or_occupy_the_process_is_a_failed_message",
    ),
    Limit(
        "response of the admin API of a Pulsar broker",
        f"{_ADMIN}.py::_BODY_LIMIT",
        "16777216",
        "bytes",
        "the statistics are read again without partitions or consumers, then the broker counts as "
        "misunderstood",
        f"{_ADMIN}_test.py::test_endless_answer_is_cut_off",
    ),
    Limit(
        "numbers in statistics of a broker",
        "operators/pulsarconsumer/report.py::MOST",
        "9007199254740992",
        "",
        "the status shows the limit",
        f"{_ADMIN}_test.py::test_number_that_the_status_cannot_hold_is_limited",
    ),
    Limit(
        "rules of the JMX exporter in a ConfigMap",
        "operators/jmxexporter/config.py::LIMIT",
        "98304",
        "bytes",
        "the configuration is refused; JVMs keep the previous one",
        "operators/jmxexporter/config_test.py::test_mistake_is_named_with_its_place",
    ),
    Limit(
        "clients of the metrics endpoint of a JVM at a time",
        f"{_JAVA}/Server.java::CONNECTIONS",
        "32",
        "connections",
        "the connection that is idle for the longest time is closed",
        f"{_BOUNDS}::test_clients_that_send_half_a_request_do_not_silence_the_endpoint",
    ),
    Limit(
        "addresses, exceptions and ports of one direction of a Firewall",
        f"{_FIREWALL}/compiler.py::ENTRIES_LIMIT",
        "2500",
        "entries",
        "the rule stays closed and the status names it",
        f"{_FIREWALL}/compiler_test.py::"
        "test_rule_that_makes_the_policy_too_large_is_closed_and_told",
    ),
    Limit(
        "work to compile a Firewall",
        f"{_FIREWALL}/compiler.py::WORK_LIMIT",
        "5000000",
        "pairs of address block and port class",
        "the rule stays closed and the status names it",
        f"{_FIREWALL}/compiler_test.py::"
        "test_time_to_compile_what_the_api_server_accepts_is_bounded",
    ),
    Limit(
        "instances that a Firewall names as peers",
        f"{_FIREWALL}/peers.py::UIDS_LIMIT",
        "5000",
        "instances",
        "the rest is left out and the status says so",
        f"{_FIREWALL}/peers_test.py::test_peers_that_are_too_many_instances_are_left_out",
    ),
    Limit(
        "review that the API server sends to a webhook",
        "libs/common/webhooks/server.py::_BODY_LIMIT",
        "8388608",
        "bytes",
        "the request is refused",
        "libs/common/webhooks/server_test.py::test_review_that_is_too_large_is_rejected",
    ),
    Limit(
        "all reviews that have not arrived completely",
        "libs/common/webhooks/server.py::_UNFINISHED_LIMIT",
        "33554432",
        "bytes",
        "the connection of the oldest is closed",
        "libs/common/webhooks/server_test.py::test_reviews_that_never_end_make_room_for_others",
    ),
    Limit(
        "ConfigMaps in the cache of jmxexporter and clusters",
        "",
        "",
        "",
        "only their metadata is kept; the content is read when it is needed",
        "libs/common/runtime/reflector_test.py::test_watch_of_metadata_gets_nothing_else",
    ),
    Limit(
        "text of a quantity",
        "libs/common/quantity.py::TEXT_LIMIT",
        "64",
        "characters",
        "it is no quantity",
        "libs/common/quantity_test.py::"
        "test_parse_refuses_a_text_of_endless_length_without_working_on_it",
    ),
    Limit(
        "selector of a PodSet as the scale subresource shows it",
        "libs/common/crd/types.py::SELECTOR_LIMIT",
        "4096",
        "characters",
        "the PodSet is refused before any pod is made",
        "operators/podset/reconcile_test.py::"
        "test_selector_too_long_for_the_status_is_refused_before_any_pod_is_made",
    ),
    Limit(
        "names of pods in the status of a PodSet",
        "operators/podset/api/v1.py::POD_NAMES_LIMIT",
        "1000",
        "names",
        "the first ones are listed; the counts remain exact",
        "operators/podset/status_test.py::test_names_are_listed_by_slot_up_to_a_bound",
    ),
    Limit(
        "message of a condition",
        "libs/common/conditions.py::MESSAGE_LIMIT",
        "32768",
        "characters",
        "it is cut visibly",
        "libs/common/conditions_test.py::test_long_message_is_cut_visibly",
    ),
    Limit(
        "text of others in logs, Events and traces",
        "libs/common/redaction.py::_MAX_TEXT",
        "16384",
        "characters",
        "it is cut visibly",
        "libs/common/redaction_test.py::test_long_text_is_cut",
    ),
    Limit(
        "levels of a custom object with an embedded template",
        "libs/common/decoding.py::LEVELS",
        "200",
        "levels",
        "what is nested deeper is ignored; other objects are read as before",
        "libs/common/decoding_test.py::test_list_with_a_deep_object_has_its_other_objects",
    ),
    Limit(
        "connections to a port of probes, metrics or webhooks",
        "libs/common/listener.py::CONNECTIONS",
        "256",
        "connections",
        "the oldest connection is closed",
        "libs/common/health_test.py::"
        "test_connections_that_never_end_their_request_make_room_for_others",
    ),
    Limit(
        "objects of one namespace that change at a time",
        "",
        "",
        "",
        "namespaces take turns; others are served meanwhile",
        "tests/security/flood_test.py::test_quiet_namespace_is_served_during_a_flood",
    ),
)
