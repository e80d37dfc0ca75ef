"""CiliumNetworkPolicies say what the NetworkPolicies say, and name the API server by its entity."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml

from libs.common.client import Client
from libs.common.kinds import Kind, Manifest
from libs.common.testing.helm import find_charts, render_chart, with_registry
from libs.common.testing.serving import serve
from tests.charts.base import EVERYTHING, NAMESPACE
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress
from tools.cluster.versions import CILIUM_MODULE

_CILIUM: Final = {"enabled": True, "flavor": "cilium"}
_KIND: Final = Kind("cilium.io", "v2", "CiliumNetworkPolicy", "ciliumnetworkpolicies")
_CRD: Final = "pkg/k8s/apis/cilium.io/client/crds/v2/ciliumnetworkpolicies.yaml"
_NAMESPACE_LABEL: Final = "k8s:io.cilium.k8s.namespace.labels."
_DNS_PORTS: Final = [{"port": "53", "protocol": "UDP"}, {"port": "53", "protocol": "TCP"}]


def render(
    chart: str = "podset", *, tracing: str = "", values: Manifest | None = None, **policy: Any
) -> list[Manifest]:
    """Render the policies of the operator and of its hooks."""
    policies = {"networkPolicy": {**_CILIUM, **policy}, "tracing": {"endpoint": tracing}}
    return render_chart(
        chart,
        {**with_registry(values or {}), **policies},
        namespace=NAMESPACE,
        show_only=["NetworkPolicy", "CiliumNetworkPolicy"],
    )


def list_ports(*ports: str) -> list[Manifest]:
    return [{"ports": [{"port": port, "protocol": "TCP"} for port in ports]}]


@pytest.mark.parametrize("chart", find_charts())
def test_they_replace_the_network_policies_and_select_the_same_pods(chart: str) -> None:
    cilium = render(chart)
    common = render(chart, flavor="kubernetes")

    assert {one["kind"] for one in cilium} == {"CiliumNetworkPolicy"}
    for one, other in zip(cilium, common, strict=True):
        assert one["metadata"] == other["metadata"]
        assert one["spec"]["endpointSelector"] == other["spec"]["podSelector"]


def test_operator_reaches_dns_and_the_api_server_by_its_entity() -> None:
    operator, hooks = render(tracing="http://collector.tracing:4318")
    dns, server, traces = operator["spec"]["egress"]

    kube_dns = {
        f"{_NAMESPACE_LABEL}kubernetes.io/metadata.name": "kube-system",
        "k8s:k8s-app": "kube-dns",
    }
    assert dns == {"toEndpoints": [{"matchLabels": kube_dns}], "toPorts": [{"ports": _DNS_PORTS}]}
    assert server == {"toEntities": ["kube-apiserver"], "toPorts": list_ports("443", "6443")}
    assert traces == {"toPorts": list_ports("4318")}

    pods = {"matchLabels": operator["spec"]["endpointSelector"]["matchLabels"]}
    probes = {"toEndpoints": [pods], "toPorts": list_ports("8081")}
    assert hooks["spec"]["egress"] == [dns, server, probes]
    # Without this empty rule Cilium would not apply the policy to ingress at all.
    assert hooks["spec"]["ingress"] == [{}]


def test_clients_are_the_chosen_scrapers_the_cluster_and_the_api_server() -> None:
    webhooks = {"settings": {"webhooks": True}, "watch": {"clusterWide": True}}
    operator, _ = render("jmxexporter", values=webhooks)

    assert operator["spec"]["ingress"] == [
        {"toPorts": list_ports("metrics")},
        {"fromEntities": ["cluster"], "toPorts": list_ports("probes")},
        {"fromEntities": ["kube-apiserver", "cluster"], "toPorts": list_ports("webhook")},
    ]


def test_further_addresses_of_the_api_server_are_allowed() -> None:
    operator, _ = render(apiServer={"cidrs": ["192.0.2.1/32"], "ports": [6443]})
    _, server, addresses = operator["spec"]["egress"]

    assert server == {"toEntities": ["kube-apiserver"], "toPorts": list_ports("6443")}
    assert addresses == {"toCIDR": ["192.0.2.1/32"], "toPorts": list_ports("6443")}


PEERS: Final[dict[str, tuple[Manifest, Manifest]]] = {
    "pods-of-namespaces": (
        {
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        },
        {
            "toEndpoints": [
                {
                    "matchLabels": {f"{_NAMESPACE_LABEL}team": "a"},
                    "matchExpressions": [{"key": "k8s:app", "operator": "Exists"}],
                }
            ]
        },
    ),
    # Cilium adds the namespace of the policy.
    "pods-of-this-namespace": (
        {"podSelector": {"matchLabels": {"app": "broker"}}},
        {"toEndpoints": [{"matchLabels": {"k8s:app": "broker"}}]},
    ),
    "all-pods-of-this-namespace": ({"podSelector": {}}, {"toEndpoints": [{}]}),
    "pods-of-all-namespaces": (
        {"namespaceSelector": {}},
        {
            "toEndpoints": [
                {
                    "matchExpressions": [
                        {"key": "k8s:io.kubernetes.pod.namespace", "operator": "Exists"}
                    ]
                }
            ]
        },
    ),
    "namespaces-by-expression": (
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]
            }
        },
        {
            "toEndpoints": [
                {
                    "matchExpressions": [
                        {
                            "key": f"{_NAMESPACE_LABEL}tier",
                            "operator": "In",
                            "values": ["a", "b"],
                        }
                    ]
                }
            ]
        },
    ),
    "addresses": (
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        {"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}]},
    ),
}


@pytest.mark.parametrize("case", PEERS)
def test_peer_of_the_user_is_translated(case: str) -> None:
    peer, expected = PEERS[case]
    operator, _ = render(extraEgress=[{"to": [peer], "ports": [{"port": 6650}]}])

    assert operator["spec"]["egress"][2:] == [{**expected, "toPorts": list_ports("6650")}]


def test_each_peer_has_a_rule_of_its_own_since_cilium_combines_the_kinds_of_one() -> None:
    peers = [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"podSelector": {"matchLabels": {"a": "b"}}}]
    operator, _ = render(extraEgress=[{"to": peers}])

    assert operator["spec"]["egress"][2:] == [
        {"toCIDRSet": [{"cidr": "10.0.0.0/8"}]},
        {"toEndpoints": [{"matchLabels": {"k8s:a": "b"}}]},
    ]


def test_ports_keep_their_protocol_and_range() -> None:
    ports = [{"port": 30000, "endPort": 31000, "protocol": "UDP"}, {"protocol": "SCTP"}]
    operator, _ = render(extraEgress=[{"ports": ports}, {}])
    *_, some, everything = operator["spec"]["egress"]

    assert some["toPorts"][0]["ports"] == [
        {"port": "30000", "endPort": 31000, "protocol": "UDP"},
        {"port": "0", "protocol": "SCTP"},
    ]
    # An empty rule allows everything in a NetworkPolicy, and nothing in a policy of Cilium.
    assert everything == {"toEntities": ["all"]}


@pytest.mark.apiserver
async def test_server_with_the_kinds_of_cilium_accepts_all_of_them(kube_client: Client) -> None:
    try:
        folder = ensure_go(open_progress("cilium")).module_directory(CILIUM_MODULE)
    except ToolError as err:
        pytest.skip(f"the CRD of Cilium is not available: {err}")
    await serve(kube_client, yaml.safe_load((folder / _CRD).read_text(encoding="utf-8")))
    extra = [{"to": [peer]} for peer, _ in PEERS.values()]
    path = f"{_KIND.path('default')}?dryRun=All&fieldValidation=Strict"

    for chart in find_charts():
        values = {**EVERYTHING, "commonLabels": {"team": "a"}}
        policies = render(chart, values=values, extraEgress=extra, metricsFrom=extra[0]["to"])
        assert len(policies) == 2
        for one in policies:
            one["metadata"]["namespace"] = "default"
            await kube_client.raw("POST", path, one)
