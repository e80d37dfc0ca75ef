"""Networks that Multus attaches: providers, routes and the user data of guests, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import NAMESPACE, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE
from libs.contracts.multus import (
    MULTI_NETWORK_POLICY,
    NETWORK_ATTACHMENT_DEFINITION,
    POLICY_FOR,
)
from libs.contracts.network import FirewallView, NetworkView
from operators.network.api.v1alpha1 import FIREWALL, NETWORK, PROVIDER_NETWORK
from operators.network.conformance_test import bare
from operators.network.samples import (
    build_attached,
    build_firewall,
    build_instance,
    build_network,
    build_provider,
    build_rule,
)
from operators.network.shown import condition

LAN, WEB = Key("default", "lan"), Key("default", "web")
ATTACHMENT = Key("default", "network-lan")
FABRIC = Key("", "fabric")
POOL = {"name": "lan"}


@pytest.fixture
def multus(api: FakeApi) -> FakeApi:
    """Serve the kinds of Multus before the operator starts."""
    for kind in (NETWORK_ATTACHMENT_DEFINITION, MULTI_NETWORK_POLICY):
        api.register(build_loose_crd(kind, None, ()))
    return api


def config_of(api: FakeApi) -> Manifest:
    config: Manifest = json.loads(
        api.get(NETWORK_ATTACHMENT_DEFINITION, ATTACHMENT)["spec"]["config"]
    )
    return config


def view(api: FakeApi) -> NetworkView:
    return NetworkView.parse(api.get(NETWORK, LAN))


def message(api: FakeApi, type_: str) -> str:
    found = find_condition(api.get(NETWORK, LAN), type_)
    return str((found or {}).get("message", ""))


def hop(**fields: Any) -> list[Manifest]:
    return [{"destination": "10.9.0.0/16", "nextHop": fields}]


# Routes.


async def test_route_follows_the_address_of_its_instance(
    multus: FakeApi, harness: OperatorHarness
) -> None:
    api = multus
    api.create(build_provider())
    api.create(bare(build_attached(poolRef=POOL, routes=hop(instanceRef={"name": "router"}))))
    await harness.converged()
    assert api.get(NETWORK, LAN)["status"]["routes"][0]["reason"] == "InstanceNotFound"
    assert condition(api, NETWORK, LAN, "Ready") == ("False", "Unresolved")

    api.create(bare(build_instance("router")))
    await harness.converged()
    assert api.get(NETWORK, LAN)["status"]["routes"][0]["reason"] == "NoAddress"
    for address, reason in (("192.0.2.7", "OffLink"), ("fd00::7", "FamilyMismatch")):
        api.patch_status(INSTANCE, Key("default", "router"), {"privateIP": address})
        await harness.converged()
        assert api.get(NETWORK, LAN)["status"]["routes"][0]["reason"] == reason
        assert not view(api).routes[0].resolved
    for address in ("10.0.0.7", "10.0.0.8"):
        api.patch_status(INSTANCE, Key("default", "router"), {"privateIP": address})
        await harness.converged()
        assert view(api).routes[0].next_hop == address
    assert condition(api, NETWORK, LAN, "Ready") == ("True", "InPlace")
    assert condition(api, NETWORK, LAN, "RoutesResolved") == ("True", "Resolved")


async def test_route_that_drops_packets_is_not_called_resolved(
    multus: FakeApi, harness: OperatorHarness
) -> None:
    """The network data of guests has no such route; it may have been stored before the rule."""
    multus.settings.check_rules = False
    multus.create(build_provider())
    multus.create(bare(build_attached(poolRef=POOL, routes=hop(blackhole="Reject"))))
    await harness.converged()

    (route,) = view(multus).routes
    assert (route.next_hop, route.resolved) == ("", False)
    assert condition(multus, NETWORK, LAN, "RoutesResolved") == ("False", "Unresolved")
    assert "Egress rule of a Firewall" in message(multus, "Ready")


async def test_routes_that_no_guest_receives_are_not_called_resolved(
    multus: FakeApi, harness: OperatorHarness
) -> None:
    """A Network of PodNetwork may have been stored with routes before they were refused."""
    api = multus
    api.settings.check_rules = False
    api.create(build_provider())
    api.create(bare(build_attached(routes=hop(ip="10.0.0.9"))))
    await harness.converged()
    for type_ in ("RoutesResolved", "Ready"):
        assert condition(api, NETWORK, LAN, type_) == ("False", "RoutesNotApplied")
    assert "spec.poolRef" in message(api, "Ready")

    api.create(bare(build_network("pods", routes=hop(ip="10.0.0.9"))))
    await harness.converged()
    pods = Key("default", "pods")
    assert condition(api, NETWORK, pods, "Ready") == ("False", "RoutesNotApplied")
    assert condition(api, NETWORK, pods, "Isolated") == ("True", "InPlace"), "machines still start"


# Attachments.


async def test_multus_network_waits_for_the_kinds_that_it_needs(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = api.create(bare(build_instance("vm", firewall="web")))["metadata"]["uid"]
    api.create(build_provider())
    api.create(bare(build_attached()))
    api.create(bare(build_firewall("web", build_rule("ssh", ports=[22]))))
    await harness.converged()

    def protects() -> bool:
        return FirewallView.parse(api.get(FIREWALL, WEB)).protects(uid)

    assert condition(api, NETWORK, LAN, "Isolated") == ("False", "MultiPolicyMissing")
    assert condition(api, NETWORK, LAN, "Attachable") == ("False", "MultusMissing")
    assert condition(api, FIREWALL, WEB, "Ready") == ("False", "SecondaryInterface")
    assert not protects(), "nothing would close the interface"

    for kind in (NETWORK_ATTACHMENT_DEFINITION, MULTI_NETWORK_POLICY):
        api.register(build_loose_crd(kind, None, ()))
    await harness.eventually(protects)
    await harness.eventually(lambda: condition(api, NETWORK, LAN, "Ready") == ("True", "InPlace"))

    assert condition(api, FIREWALL, WEB, "Enforced") == ("Unknown", "ImplementationUnknown")
    policy = api.get(MULTI_NETWORK_POLICY, Key("default", "firewall-web"))
    assert policy["metadata"]["annotations"][POLICY_FOR] == "default/network-lan"
    assert (config_of(api)["bridge"], config_of(api)["vlan"]) == ("br0", 42)
    assert view(api).attachment == "network-lan"


async def test_mtu_is_that_of_the_provider_unless_the_network_asks_for_less(
    multus: FakeApi, harness: OperatorHarness
) -> None:
    multus.create(build_provider(mtu=9000))
    multus.create(bare(build_attached()))
    await harness.converged()
    assert (config_of(multus)["mtu"], view(multus).mtu) == (9000, 9000)

    multus.patch(NETWORK, LAN, {"spec": {"mtu": 1400}})
    await harness.converged()
    assert (config_of(multus)["mtu"], view(multus).mtu) == (1400, 1400)


@pytest.mark.parametrize(
    ("provider", "network", "reason", "words"),
    [
        (None, {}, "ProviderNetworkMissing", "fabric"),
        ({}, {"providerNetworkRef": None}, "ProviderNetworkMissing", "spec.providerNetworkRef"),
        ({}, {"vlan": 50}, "VlanNotAllowed", "spec.vlan 50"),
        ({}, {"vlan": None}, "VlanNotAllowed", "set spec.vlan"),
        ({"mtu": 1500}, {"mtu": 1501}, "MtuTooLarge", "1500"),
        (
            {"allowedNamespaces": {"matchLabels": {"tenant": "a"}}},
            {},
            "NamespaceNotAllowed",
            "spec.allowedNamespaces",
        ),
    ],
)
async def test_network_attaches_only_to_what_an_administrator_offers(
    multus: FakeApi,
    harness: OperatorHarness,
    provider: Manifest | None,
    network: Manifest,
    reason: str,
    words: str,
) -> None:
    multus.settings.check_rules = False  # One case is a Network of an older CRD.
    if provider is not None:
        multus.create(build_provider(**provider))
    spec = {"providerNetworkRef": {"name": "fabric"}, "vlan": 42, **network}
    spec = {name: value for name, value in spec.items() if value is not None}
    multus.create(bare(build_network(backend="Multus", **spec)))
    await harness.converged()

    assert condition(multus, NETWORK, LAN, "Attachable") == ("False", reason)
    assert condition(multus, NETWORK, LAN, "Ready") == ("False", reason)
    assert words in message(multus, "Attachable")
    assert multus.find(NETWORK_ATTACHMENT_DEFINITION, ATTACHMENT) is None
    assert view(multus).attachment == "", "compute attaches no machine"


async def test_network_hears_of_its_provider_and_of_the_labels_of_its_namespace(
    multus: FakeApi, harness: OperatorHarness
) -> None:
    api = multus
    api.create(bare(build_attached()))
    await harness.converged()
    assert condition(api, NETWORK, LAN, "Attachable") == ("False", "ProviderNetworkMissing")

    api.create(build_provider(allowedNamespaces={"matchLabels": {"tenant": "a"}}))
    await harness.converged()
    assert condition(api, NETWORK, LAN, "Attachable") == ("False", "NamespaceNotAllowed")

    if api.find(NAMESPACE, Key("", "default")) is None:
        api.create(build_object(NAMESPACE, "default"))
    api.patch(NAMESPACE, Key("", "default"), {"metadata": {"labels": {"tenant": "a"}}})
    await harness.eventually(lambda: view(api).attachment == "network-lan")


async def test_network_that_loses_its_permission_attaches_no_further_machine(
    multus: FakeApi, harness: OperatorHarness
) -> None:
    """Machines that run keep their interface: an attachment that disappears would cut them off."""
    multus.create(build_provider())
    multus.create(bare(build_attached()))
    await harness.converged()
    before = config_of(multus)

    multus.patch(PROVIDER_NETWORK, FABRIC, {"spec": {"vlans": [{"first": 7}]}})
    await harness.converged()
    assert condition(multus, NETWORK, LAN, "Attachable") == ("False", "VlanNotAllowed")
    assert view(multus).attachment == ""
    assert config_of(multus) == before
