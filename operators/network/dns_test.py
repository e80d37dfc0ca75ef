"""Names are resolved although the addresses of pods are protected, wherever the DNS pods listen."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import NETWORK_POLICY, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.network.conformance_test import bare
from operators.network.controller import OPERATOR
from operators.network.samples import build_firewall, build_instance, build_network


@pytest.mark.parametrize(
    ("settings", "namespace", "numbers"),
    [
        ({}, "kube-system", [53]),
        ({"dns_namespace": "openshift-dns", "dns_port": 5353}, "openshift-dns", [53, 5353]),
    ],
    ids=["kube-system", "OpenShift"],
)
@pytest.mark.parametrize("firewall", ["web", ""], ids=["firewall", "network"])
async def test_machine_reaches_the_dns_pods_that_the_settings_name(
    api: FakeApi, firewall: str, settings: dict[str, Any], namespace: str, numbers: list[int]
) -> None:
    async with OperatorHarness(
        OPERATOR,
        api.config,
        watch_namespaces=("default",),
        protected_cidrs="10.128.0.0/14,172.30.0.0/16",
        **settings,
    ) as harness:
        api.create(bare(build_network(isolation="None")))
        api.create(bare(build_firewall()))
        api.create(bare(build_instance("vm", firewall=firewall)))
        await harness.converged()

    name = "firewall-web" if firewall else "network-lan-open"
    egress = api.get(NETWORK_POLICY, Key("default", name))["spec"]["egress"]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    (rule,) = [each for each in egress if {"namespaceSelector": selector} in each.get("to", ())]
    wanted = [(protocol, number) for protocol in ("TCP", "UDP") for number in numbers]
    assert sorted((each["protocol"], each["port"]) for each in rule["ports"]) == sorted(wanted)
    blocked = [part for each in egress for part in each.get("to", ()) if "ipBlock" in part]
    v4 = [each["ipBlock"] for each in blocked if ":" not in each["ipBlock"]["cidr"]]
    assert v4 and all("10.128.0.0/14" in each["except"] for each in v4)
