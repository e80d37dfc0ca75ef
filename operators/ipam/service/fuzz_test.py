"""Services of the class of ipam in any order: of one family or two, with what users do to them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest

from libs.common.kinds import SERVICE, Key, Manifest, build_object, uid_of
from libs.common.ownership import controller_uid
from libs.common.reading import text_at
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from operators.ipam.naming import LOAD_BALANCER_CLASS, POOL, SECONDARY_POOL
from operators.ipam.samples import build_pool
from operators.ipam.service.reconcile import claim_name
from operators.ipam.shown import writes

NAMES: Final = ("a", "b", "c", "d")
FAMILIES: Final = (
    {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
    {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"},
    {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"},
    {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"},
    {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack"},
)
POOLS: Final = ("four", "six", "four", "six", "four", "absent", "")
"""Pools that a Service names; more often one that exists."""
WISHES: Final = ("", "", "", "", "203.0.113.1", "2001:db8::2", "198.51.100.1")
"""Addresses that a Service asks for: any, one of each pool, and one of none."""
MODES: Final = ("Enabled", "Enabled", "Draining")
"""Modes that a pool gets."""


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator with Services of its class; `six` is the default pool."""
    api.create(build_pool("four", addresses=["203.0.113.0-203.0.113.1"]))
    api.create(build_pool("six", family="IPv6", addresses=["2001:db8::1-2001:db8::2"]))
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), load_balancer=True, default_pool="six"
    ) as harness:
        yield harness


class Users:
    """Do to Services what users do, by chance.

    Args:
        api: Where the Services are.
        seed: Decides what is done.
    """

    def __init__(self, api: FakeApi, seed: int) -> None:
        """Begin with no Service."""
        self._api = api
        self._chosen = random.Random(seed)

    def act(self) -> None:
        """Do one thing to one Service, to its claim or to a pool."""
        name = self._chosen.choice(NAMES)
        key = Key("default", name)
        if self._api.find(SERVICE, key) is None:
            self._api.create(self._build(name))
            return
        claim = Key("default", claim_name(name))
        match self._chosen.randrange(6):
            case 0:
                self._api.delete(SERVICE, key)
            case 1:
                self._api.delete(SERVICE, key)
                self._api.create(self._build(name))
            case 2:
                plain = {"type": "ClusterIP", "loadBalancerClass": None}
                self._api.patch(SERVICE, key, {"spec": plain})
                # The API server does this in the same write.
                self._api.patch_status(SERVICE, key, {"loadBalancer": None})
            case 3:
                ours = {"type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS}
                self._api.patch(SERVICE, key, {"spec": ours})
            case 4 if self._api.find(IP_CLAIM, claim) is not None:
                self._api.delete(IP_CLAIM, claim)
            case _:
                mode = self._chosen.choice(MODES)
                pool = Key("", self._chosen.choice(POOLS[:2]))
                self._api.patch(IP_POOL, pool, {"spec": {"allocation": mode}})

    def _build(self, name: str) -> Manifest:
        pool, wish = self._chosen.choice(POOLS), self._chosen.choice(WISHES)
        # The API server refuses a claim of one pool for both; the fake one evaluates no such rule.
        second = self._chosen.choice([each for each in POOLS if each != (pool or "six")])
        notes = {name: value for name, value in ((POOL, pool), (SECONDARY_POOL, second)) if value}
        asked = {"loadBalancerIP": wish} if wish else {}
        return build_service(name, notes, {**self._chosen.choice(FAMILIES), **asked})


def build_service(name: str, notes: Mapping[str, str], fields: Mapping[str, Any]) -> Manifest:
    """Build a Service of the class."""
    spec = {"type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS, **fields}
    metadata = {"annotations": dict(notes)}
    ports = [{"port": 80}]
    return build_object(SERVICE, name, "default", metadata=metadata, spec={**spec, "ports": ports})


def list_problems(api: FakeApi) -> list[str]:
    """List what no user may ever see, whatever was done."""
    services = {uid_of(each): each for each in api.objects(SERVICE, "default")}
    claims = api.objects(IP_CLAIM, "default")
    entries = {
        each["spec"]["address"]: each["spec"]["claimRef"]["uid"]
        for each in api.objects(IP_ALLOCATION)
    }
    owners = {uid_of(each): controller_uid(each) for each in claims}
    found = [
        f"{owner} has a claim and is no Service of the class"
        for owner in owners.values()
        if owner not in services or not is_of_class(services[owner])
    ]
    shown = Counter[str]()
    for uid, service in services.items():
        name = service["metadata"]["name"]
        for address in list_ingress(service):
            shown[address] += 1
            if owners.get(entries.get(address, "")) != uid:
                found.append(f"{name} shows {address}, which it does not have")
            family = "IPv6" if ":" in address else "IPv4"
            if family not in service["spec"]["ipFamilies"]:
                found.append(f"{name} shows {address} and has no {family}")
            if not is_of_class(service):
                found.append(f"{name} shows {address} and is of another class")
    found += [f"{address} is shown twice" for address, times in shown.items() if times > 1]
    return found + [
        f"{address} has no claim" for address, uid in entries.items() if uid not in owners
    ]


def is_of_class(service: Manifest) -> bool:
    """Return whether a Service asks for an address of ipam."""
    return text_at(service, "spec", "loadBalancerClass") == LOAD_BALANCER_CLASS


def list_ingress(service: Manifest) -> list[str]:
    """List the addresses that a Service shows."""
    shown = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return [each["ip"] for each in shown]


@pytest.mark.parametrize("seed", range(4))
async def test_services_in_any_order_show_only_addresses_that_they_have(
    api: FakeApi, harness: OperatorHarness, seed: int
) -> None:
    notes = {POOL: "four", SECONDARY_POOL: "six"}
    api.create(build_service("a", notes, FAMILIES[2]))
    await harness.converged()
    assert list_ingress(api.get(SERVICE, Key("default", "a"))) == ["203.0.113.0", "2001:db8::1"]
    users = Users(api, seed)
    for _ in range(30):
        users.act()
        await harness.converged()
        assert list_problems(api) == []

    mark = api.mark()
    await harness.restart(crash=True)
    await harness.converged()
    assert list_problems(api) == []
    assert writes(api, mark) == []
