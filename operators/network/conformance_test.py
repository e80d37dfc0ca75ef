"""The network operator withstands what every operator must, for both of its kinds."""

from __future__ import annotations

from dataclasses import replace

from libs.common.crd import build_crd
from libs.common.kinds import NETWORK_POLICY, Manifest
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.outcome import Run
from libs.contracts.compute import INSTANCE
from operators.network.api.v1alpha1 import Firewall, Network, ProviderNetwork
from operators.network.controller import OPERATOR
from operators.network.naming import KEPT_FOR
from operators.network.samples import (
    build_firewall,
    build_instance,
    build_network,
    build_rule,
)

CRDS = (
    build_crd(Network),
    build_crd(Firewall),
    build_crd(ProviderNetwork),
    build_loose_crd(INSTANCE, None, ("status",)),
)


def bare(manifest: Manifest) -> Manifest:
    """Leave to the API server what it gives: UID and generation."""
    metadata = {name: manifest["metadata"][name] for name in ("name", "namespace")}
    return {**manifest, "metadata": metadata}


def build_initial_objects() -> list[Manifest]:
    """Build the initial objects: an instance with a firewall, and one without."""
    return [bare(build_instance("vm", firewall="web")), bare(build_instance("plain"))]


def build_network_first() -> list[Manifest]:
    """Build a network whose instances reach one another."""
    return [bare(build_network("lan", isolation="Network"))]


def build_firewall_first() -> list[Manifest]:
    """Build a firewall with a rule, whose network is not there yet."""
    rule = build_rule("ssh", ports=[22], cidrs=["192.0.2.0/24"])
    return [bare(build_firewall("web", rule))]


class TestNetworkConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=CRDS,
        objects=build_network_first,
        change={"spec": {**build_network()["spec"], "isolation": "None"}},
        children=(NETWORK_POLICY,),
        rules=OPERATOR.rules(),
        initial_objects=build_initial_objects,
    )

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the outcome without the UID of the Network, which is in a mark."""
        run = super().outcome(api, mark)
        for held in run.state.values():
            held["metadata"].get("annotations", {}).pop(KEPT_FOR, None)
        return run


class TestFirewallConformance(OperatorConformance):
    subject = Subject(
        replace(OPERATOR, controllers=tuple(reversed(OPERATOR.controllers))),
        crds=CRDS,
        objects=build_firewall_first,
        change={
            "spec": {
                **build_firewall()["spec"],
                "rules": [
                    build_rule("web", ports=[443], peers=[{"firewallRef": {"name": "web"}}]),
                    build_rule("ping", protocol="ICMP"),
                ],
            }
        },
        children=(NETWORK_POLICY,),
        rules=OPERATOR.rules(),
        initial_objects=build_initial_objects,
    )
