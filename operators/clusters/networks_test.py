"""Which Networks a cluster can live on, and addresses that nodes must not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libs.common.conditions import Condition
from libs.contracts.network import NetworkView
from operators.clusters.api.v1alpha1 import CONTROL_PLANE
from operators.clusters.networks import evaluate_network, is_blocked, keeps_addresses
from operators.clusters.observed import Node, Observed, Workload
from operators.clusters.reconcile import Plan, plan_cluster
from operators.clusters.samples import (
    NOW,
    SameIssuer,
    build_network,
    build_node,
    parse_cluster,
    view_instance,
    view_network,
)

PLANE = "edge-control-plane-0"
POD = {"cidrs": ["10.0.0.0/16"]}
MULTUS = {"cidrs": ["10.0.0.0/16"], "backend": "Multus", "providerNetworkRef": {"name": "office"}}


def evaluate(network: NetworkView | None, count: int = 1) -> Condition:
    return evaluate_network(parse_cluster(count=count), Observed(network=network))


@pytest.mark.parametrize(
    ("spec", "count", "words"),
    [
        (POD, 1, "all guests have the same address"),
        ({**POD, "binding": "Masquerade"}, 1, "binding Passt or Bridge"),
        (MULTUS, 1, "poolRef"),
        ({**POD, "binding": "Passt"}, 3, "members of etcd know each other by address"),
        ({**POD, "binding": "Bridge"}, 3, "spec.controlPlane.count"),
    ],
    ids=["default", "masquerade", "no addresses", "three with Passt", "three with Bridge"],
)
def test_network_without_usable_addresses_is_refused(
    spec: dict[str, Any], count: int, words: str
) -> None:
    cluster, observed = parse_cluster(count=count), Observed(network=view_network(**spec))

    found = evaluate_network(cluster, observed)

    assert (found.status, found.reason) == ("False", "NetworkUnsuitable")
    assert words in found.message and "Network lan" in found.message
    assert is_blocked(cluster, observed)
    assert plan_cluster(cluster, observed, SameIssuer(), NOW) == Plan()


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({**POD, "binding": "Passt"}, 1),
        ({**POD, "binding": "Bridge"}, 1),
        ({**MULTUS, "poolRef": {"name": "private"}}, 3),
    ],
    ids=["Passt", "Bridge", "addresses of its own"],
)
def test_network_with_usable_addresses_is_taken(spec: dict[str, Any], count: int) -> None:
    assert evaluate(view_network(**spec), count).status == "True"


def test_network_that_does_not_exist_is_waited_for() -> None:
    found = evaluate(None)

    assert (found.status, found.reason) == ("False", "NetworkMissing")
    assert "spec.networkRef" in found.message


def test_cluster_that_has_begun_is_kept_running_on_an_unsuitable_network() -> None:
    """It may have been made before networks were judged."""
    observed = Observed(
        network=view_network(**POD), instances={PLANE: view_instance(PLANE, CONTROL_PLANE)}
    )

    assert not is_blocked(parse_cluster(), observed)
    assert evaluate_network(parse_cluster(), observed).reason == "NetworkUnsuitable"


def test_only_an_address_of_a_pool_survives_a_restart() -> None:
    owned = NetworkView.parse(build_network("lan", **MULTUS, poolRef={"name": "private"}))

    assert keeps_addresses(owned)
    assert not keeps_addresses(view_network(**POD, binding="Passt"))
    assert not keeps_addresses(view_network(**MULTUS))
    assert not keeps_addresses(None)


@pytest.mark.parametrize(
    ("registered", "status"), [("10.0.2.2", "False"), ("10.0.0.1", "True"), ("", "True")]
)
def test_node_with_an_address_that_its_machine_does_not_have_is_named(
    registered: str, status: str
) -> None:
    """Its instance has 10.0.0.1."""
    plane = view_instance(PLANE, CONTROL_PLANE)
    node = replace(Node.parse(build_node(PLANE, labels={})), address=registered)
    observed = Observed(
        network=view_network(),
        instances={PLANE: plane},
        workload=Workload(True, True, nodes={PLANE: node}),
    )

    found = evaluate_network(parse_cluster(), observed)

    assert found.status == status
    assert found.status == "True" or (
        found.reason == "AddressMismatch" and PLANE in found.message and "10.0.2.2" in found.message
    )


@pytest.mark.parametrize("field", ["podCidr", "serviceCidr"])
def test_block_that_contains_the_address_of_a_machine_is_named(field: str) -> None:
    """Its instance has 10.0.0.1, in a Network with the addresses of pods."""
    plane = view_instance(PLANE, CONTROL_PLANE)
    cluster = parse_cluster(**{field: "10.0.0.0/16"})

    network = view_network(**POD, binding="Passt")
    found = evaluate_network(cluster, Observed(network=network, instances={PLANE: plane}))

    assert (found.status, found.reason) == ("False", "AddressOverlap")
    assert f"spec.{field} 10.0.0.0/16" in found.message and "10.0.0.1" in found.message


@pytest.mark.parametrize(
    ("block", "blocked"), [("10.0.128.0/17", True), ("10.0.0.0/8", True), ("10.1.0.0/16", False)]
)
def test_network_that_overlaps_with_a_block_of_the_cluster_is_refused(
    block: str, blocked: bool
) -> None:
    network = view_network(**MULTUS, poolRef={"name": "private"})
    cluster, observed = parse_cluster(podCidr=block), Observed(network=network)

    found = evaluate_network(cluster, observed)

    assert is_blocked(cluster, observed) is blocked
    assert (found.reason == "AddressOverlap") is blocked
    assert not blocked or (block in found.message and "Network lan" in found.message)
