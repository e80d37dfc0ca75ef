"""The ipam operator withstands what every operator must, from the claim to the release."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

from lab.kubevirt_sim.instant_balancer import announce
from libs.common.crd import build_crd
from libs.common.kinds import (
    ENDPOINT_SLICE,
    SERVICE,
    Key,
    Manifest,
    build_object,
    is_deleting,
    key_of,
)
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import Run
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_pool

ENDING = Key("default", "ending")
CRDS = tuple(build_crd(model) for model in RESOURCES)


def build_target(name: str, address: str) -> list[Manifest]:
    """Build a Service, and the slice that its controller keeps."""
    ports = [{"name": "http", "port": 80}]
    service = build_object(
        SERVICE, name, "default", spec={"selector": {"app": name}, "ports": ports}
    )
    endpoints = build_object(
        ENDPOINT_SLICE,
        f"{name}-x",
        "default",
        addressType="IPv4",
        endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
    )
    endpoints["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    return [service, endpoints]


def build_initial_objects() -> list[Manifest]:
    """Build the initial objects: a pool of one address, and two Services as targets."""
    pool = build_pool(addresses=["203.0.113.0"])
    # What the suite makes vanish is the first by name, which has to be ours.
    return [pool, *build_target("x-one", "10.0.0.1"), *build_target("x-two", "10.0.0.2")]


def build_bound() -> list[Manifest]:
    """Build a claim with a Service as its target."""
    return [build_claim(target={"kind": "Service", "name": "x-one"})]


def build_ending() -> list[Manifest]:
    """Build a claim that stays, and one that ends."""
    return [build_claim("web", poolRef={"name": "six"}), build_claim("ending")]


def build_ending_objects() -> list[Manifest]:
    """Build a pool of each family."""
    return [build_pool(), build_pool("six", family="IPv6", addresses=["2001:db8::/64"])]


def end_claim(api: FakeApi) -> None:
    """Delete the second claim once it has its address."""
    claim = api.find(IP_CLAIM, ENDING)
    given = (claim or {}).get("status", {}).get("address")
    if claim is not None and given and not is_deleting(claim):
        api.delete(IP_CLAIM, ENDING)


class TestBoundClaimConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=CRDS,
        objects=build_bound,
        drive=announce,
        change={"spec": {"target": {"kind": "Service", "name": "x-two"}}},
        children=(IP_ALLOCATION, SERVICE, ENDPOINT_SLICE),
        rules=OPERATOR.rules(),
        initial_objects=build_initial_objects,
    )

    def outcome(self, api: FakeApi, mark: int) -> Run:
        return _blur(super().outcome(api, mark))


class TestEndingClaimConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=CRDS,
        objects=build_ending,
        change={"spec": {"priority": 7}},
        children=(IP_ALLOCATION,),
        rules=OPERATOR.rules(),
        initial_objects=build_ending_objects,
        drive=end_claim,
    )

    def outcome(self, api: FakeApi, mark: int) -> Run:
        return _blur(super().outcome(api, mark))

    async def apply_again(self, harness: OperatorHarness, manifest: Manifest) -> None:
        if key_of(manifest) != ENDING:
            await super().apply_again(harness, manifest)


def _blur(run: Run) -> Run:
    """Hide UIDs, cluster IPs, and how often the place was counted: that is a matter of timing."""
    state = json.dumps(run.state)
    state = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "uid", state)
    state = re.sub(r"10\.96\.\d+\.\d+", "cluster-ip", state)
    state = re.sub(r'"(ipam.slipway.dev/)?epoch": ("\d+"|\d+)', '"epoch": 0', state)
    return replace(run, state=json.loads(state), creates=Counter(run.creates))
