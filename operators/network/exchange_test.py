"""What the policies allow at every version, while an Instance exchanges one Firewall for another.

Policies add up, and a pod that no policy selects accepts every packet. So each version that the API
server ever had is judged, and not only what is left in the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.kinds import NETWORK_POLICY, Key, Manifest, build_object, key_of, uid_of
from libs.common.labels import matches_selector
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.fakeapi.store import Change
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL
from libs.contracts.network import FirewallView
from operators.network.api.v1alpha1 import FIREWALL, Firewall, Network, ProviderNetwork
from operators.network.conformance_test import bare
from operators.network.controller import OPERATOR
from operators.network.isolation_test import add_instance
from operators.network.movers_test import CLOSED_DB, CLOSED_WEB, DB, VM, WEB, move
from operators.network.samples import build_firewall, build_network, build_rule
from operators.network.shown import condition

PORTS: Final = {"web": frozenset({8080, 443}), "db": frozenset({9090, 443})}
"""What each Firewall allows."""


def list_open_ports(policies: Iterable[Manifest], labels: Mapping[str, str]) -> frozenset[int]:
    """List the ports that accept connections from everywhere, as the API of policies defines it.

    A pod that no policy selects has all ports open: these are port 0.
    """
    selecting = [each for each in policies if matches_selector(each["spec"]["podSelector"], labels)]
    for direction in ("Ingress", "Egress"):
        if not any(direction in each["spec"]["policyTypes"] for each in selecting):
            return frozenset({0})
    return frozenset(
        int(port["port"])
        for each in selecting
        for rule in each["spec"].get("ingress") or ()
        for port in rule.get("ports") or ({"port": 0},)
    )


class History:
    """What the policies of the namespace allowed for one pod, version by version.

    Attributes:
        faults: Versions that allowed more than was permitted then.
        seen: Ports that were open, by version.
    """

    def __init__(self, api: FakeApi, labels: Mapping[str, str]) -> None:
        """Judge each change of a policy from now on."""
        self.faults: list[str] = []
        self.seen: list[frozenset[int]] = []
        self._api, self._labels = api, labels
        self._table = api.registry.of(NETWORK_POLICY)[0].table
        self._permitted: frozenset[int] = frozenset()
        api.store.listeners.append(self._evaluate)

    def permit(self, *firewalls: str) -> None:
        """Permit what some firewalls allow, until `settle`."""
        self._permitted |= {port for name in firewalls for port in PORTS.get(name, ())}

    def settle(self, firewall: str) -> None:
        """Permit from now on only what one firewall allows."""
        self._permitted = PORTS.get(firewall, frozenset())
        assert self.open_ports == self._permitted

    @property
    def open_ports(self) -> frozenset[int]:
        """The ports that are open now."""
        return list_open_ports(self._api.objects(NETWORK_POLICY, "default"), self._labels)

    def _evaluate(self, change: Change) -> None:
        if change.table != self._table:
            return
        ports = self.open_ports
        self.seen.append(ports)
        if not ports <= self._permitted:
            self.faults.append(
                f"version {change.version}, {change.type} {change.key}: {sorted(ports)}"
                f" open, {sorted(self._permitted)} permitted"
            )


def add_firewalls(api: FakeApi) -> None:
    """Create the firewalls `web` and `db`."""
    for name, ports in PORTS.items():
        api.create(bare(build_firewall(name, build_rule("open", ports=sorted(ports)))))


async def start(api: FakeApi, harness: OperatorHarness, network: str = "") -> History:
    """Create firewalls and an Instance that names `web`, and judge what follows."""
    if network:
        api.create(bare(build_network(network)))
    add_firewalls(api)
    uid = add_instance(api, "vm", network=network, firewall="web")
    await harness.converged()
    labels = {INSTANCE_UID_LABEL: uid, **({NETWORK_LABEL: network} if network else {})}
    history = History(api, labels)
    history.settle("web")
    return history


@pytest.mark.parametrize("network", ["", "lan"])
@pytest.mark.parametrize("seed", range(2))
async def test_no_version_allows_more_than_the_firewalls_of_the_exchange(
    api: FakeApi, harness: OperatorHarness, network: str, seed: int
) -> None:
    chosen = random.Random(seed)
    history = await start(api, harness, network)
    rounds = [chosen.choices(("web", "db", "absent"), k=chosen.randint(1, 4)) for _ in range(6)]
    for names in (*rounds, ["db"], ["web"], ["db"]):
        for name in names:
            history.permit(name)
            move(api, name)
            # Each is a round trip, after which the operator is somewhere in its own.
            for _ in range(chosen.randint(0, 6)):
                await harness.client.list(NETWORK_POLICY, "default")
        await harness.converged()
        history.settle(names[-1])

    assert history.faults == []
    assert set(PORTS.values()) <= set(history.seen)


async def test_rules_change_as_a_whole(api: FakeApi, harness: OperatorHarness) -> None:
    history = await start(api, harness)
    history.permit("db")
    rule = build_rule("open", ports=sorted(PORTS["db"]))
    api.patch(FIREWALL, WEB, {"spec": {"rules": [rule]}})
    await harness.converged()

    history.settle("db")
    assert history.faults == []
    assert set(history.seen) <= {PORTS["web"], PORTS["db"]}


async def test_two_firewalls_do_not_let_go_of_an_instance_at_the_same_time(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Each of them saw that the other one had it, a moment before."""
    history = await start(api, harness)
    history.permit("db")
    await return_during_deletion(api, harness, CLOSED_WEB, to="db", back="web")

    history.settle("web")
    assert history.faults == []
    assert api.find(NETWORK_POLICY, Key("default", CLOSED_DB)) is None


async def test_instance_that_returns_to_a_deleted_firewall_is_never_open(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The firewall stays in force if it has seen the return, or it is gone and all is closed."""
    history = await start(api, harness)
    move(api, "db")
    history.permit("db")
    await harness.converged()
    api.delete(FIREWALL, DB)
    await harness.eventually(lambda: condition(api, FIREWALL, DB, "Terminating")[0] == "True")
    await return_during_deletion(api, harness, CLOSED_DB, to="web", back="db")

    history.settle("absent" if api.find(FIREWALL, DB) is None else "db")
    assert history.faults == []


async def return_during_deletion(
    api: FakeApi, harness: OperatorHarness, policy: str, *, to: str, back: str
) -> None:
    """Move the Instance to a Firewall, and back while the policy that it left is being deleted."""

    def is_known() -> bool:
        held = harness.manager.cache.store(INSTANCE).get(VM) or {}
        return bool(held["spec"]["firewallRef"]["name"] == back)

    deletion = api.hang("delete", NETWORK_POLICY, name=policy)
    move(api, to)
    await harness.eventually(lambda: deletion.hits)
    move(api, back)
    await harness.eventually(is_known)
    # Each is a round trip, in which the operator can go on.
    for _ in range(30):
        await harness.client.list(NETWORK_POLICY, "default")
    deletion.release()
    await harness.converged()


@pytest.mark.apiserver
async def test_no_version_of_a_real_api_server_opens_more(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    """Its watch shows each version of each policy, in the order of the writes."""
    crds = (Network, Firewall, ProviderNetwork, build_loose_crd(INSTANCE, None, ("status",)))
    await serve(kube_client, *crds)

    async def add(kind: Any, name: str, **spec: Any) -> str:
        manifest = build_object(kind, name, kube_namespace, spec=spec)
        return uid_of(await kube_client.create(kind, manifest))

    async def protects(name: str, uid: str) -> bool:
        held = await kube_client.get(FIREWALL, Key(kube_namespace, name))
        return FirewallView.parse(held).protects(uid)

    async with OperatorHarness(
        OPERATOR, kube_apiserver.config, watch_namespaces=(kube_namespace,)
    ) as harness:
        for name, ports in PORTS.items():
            rule = {"name": "open", "protocol": "TCP", "ports": sorted(ports)}
            await add(FIREWALL, name, networkRef={"name": "lan"}, rules=[rule])
        uid = await add(INSTANCE, "vm", firewallRef={"name": "web"})
        await harness.eventually(lambda: protects("web", uid))
        first = await kube_client.list(NETWORK_POLICY, kube_namespace)
        for name in ("db", "web") * 3:
            patch = {"spec": {"firewallRef": {"name": name}}}
            await kube_client.patch(INSTANCE, Key(kube_namespace, "vm"), patch)
            await harness.eventually(partial(protects, name, uid))
        await harness.converged()
        await add(NETWORK_POLICY, "end", podSelector={}, policyTypes=["Egress"])

    held = {key_of(each): each for each in first.items}
    seen = []
    stream = kube_client.watch(
        NETWORK_POLICY, kube_namespace, resource_version=first.resource_version
    )
    async with aclosing(stream):
        async for event in stream:
            if event.type == "BOOKMARK":
                continue
            key = key_of(event.object)
            if key.name == "end":
                break
            held[key] = event.object
            if event.type == "DELETED":
                del held[key]
            seen.append(list_open_ports(held.values(), {INSTANCE_UID_LABEL: uid}))
    union = PORTS["web"] | PORTS["db"]
    assert all(ports <= union for ports in seen), seen
    assert set(PORTS.values()) <= set(seen)
