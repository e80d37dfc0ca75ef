"""Which machines the policies of a Network select, told by the labels of their pods."""

from __future__ import annotations

from typing import Any

from libs.common.kinds import NETWORK_POLICY, POD, Key, Manifest, build_object
from libs.common.labels import APPLIED_HASH, matches_selector
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL
from libs.contracts.network import FirewallView, NetworkView
from operators.network.api.v1alpha1 import FIREWALL, NETWORK
from operators.network.conformance_test import bare
from operators.network.naming import KEPT_FOR
from operators.network.samples import build_firewall, build_instance, build_network
from operators.network.shown import condition

LAN, WEB = Key("default", "lan"), Key("default", "web")
DENY, OPEN = "network-lan-deny", "network-lan-open"
UNLABELLED = "network-lan-unlabelled"


def add_instance(api: FakeApi, name: str, **fields: Any) -> str:
    """Create an instance and return its UID."""
    return str(api.create(bare(build_instance(name, **fields)))["metadata"]["uid"])


def add_pod(api: FakeApi, name: str, uid: str, network: str = "") -> Key:
    """Create a launcher pod: with the label of a network, or as one was made before there was."""
    labels = {INSTANCE_UID_LABEL: uid}
    if network:
        labels[NETWORK_LABEL] = network
    spec = {"containers": [{"name": "compute", "image": "launcher"}]}
    api.create(build_object(POD, name, "default", metadata={"labels": labels}, spec=spec))
    return Key("default", name)


def policies_of(api: FakeApi, **labels: str) -> set[str]:
    """Name the policies that select a pod with the labels of an instance."""
    names = {"uid": INSTANCE_UID_LABEL, "network": NETWORK_LABEL}
    worn = {names[name]: value for name, value in labels.items()}
    return {
        policy["metadata"]["name"]
        for policy in api.objects(NETWORK_POLICY, "default")
        if matches_selector(policy["spec"]["podSelector"], worn)
    }


async def test_machine_that_names_no_network_is_selected_by_no_policy(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = add_instance(api, "stranger", network="")
    add_pod(api, "launcher", uid)
    add_instance(api, "plain")
    api.create(bare(build_network(isolation="Network")))
    await harness.converged()

    assert policies_of(api, uid=uid) == set()
    assert policies_of(api) == set()
    assert policies_of(api, uid=uid, network="other") == set()


async def test_machine_is_closed_from_its_first_moment(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Nothing knows the Instance when its pod starts: the label alone closes it."""
    api.create(bare(build_network()))
    await harness.converged()
    assert NetworkView.parse(api.get(NETWORK, LAN)).isolated
    assert policies_of(api, uid="fresh", network="lan") == {DENY}

    uid = add_instance(api, "vm")
    add_pod(api, "launcher", uid, "lan")
    await harness.converged()
    assert policies_of(api, uid=uid, network="lan") == {DENY, OPEN}
    assert api.find(NETWORK_POLICY, Key("default", UNLABELLED)) is None


async def test_name_too_long_for_a_label_is_cut_as_compute_cuts_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    long = "n" * 100
    api.create(bare(build_network(long)))
    await harness.converged()

    (policy,) = api.objects(NETWORK_POLICY, "default")
    value = policy["spec"]["podSelector"]["matchLabels"][NETWORK_LABEL]
    assert len(value) == 63
    assert value[:54] == "n" * 54


async def test_machine_without_the_label_is_closed_by_its_uid_until_it_restarts(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = add_instance(api, "old")
    pod = add_pod(api, "launcher-1", uid)
    api.create(bare(build_network(isolation="Network")))
    await harness.converged()
    assert policies_of(api, uid=uid) == {UNLABELLED, OPEN}
    (entrance,) = api.get(NETWORK_POLICY, Key("default", OPEN))["spec"]["ingress"]
    peers = [peer["podSelector"] for peer in entrance["from"]]
    assert any(matches_selector(peer, {INSTANCE_UID_LABEL: uid}) for peer in peers)

    api.patch(INSTANCE, Key("default", "old"), {"spec": {"firewallRef": {"name": "web"}}})
    api.create(bare(build_firewall()))
    await harness.converged()
    assert policies_of(api, uid=uid) == {UNLABELLED, "firewall-web"}
    assert FirewallView.parse(api.get(FIREWALL, WEB)).protects(uid), "nothing opens it elsewhere"

    api.delete(POD, pod)
    add_pod(api, "launcher-2", uid, "lan")
    await harness.converged()
    assert api.find(NETWORK_POLICY, Key("default", UNLABELLED)) is None
    assert policies_of(api, uid=uid, network="lan") == {DENY, "firewall-web"}


async def test_pod_that_has_ended_keeps_nothing_selected_by_uid(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = add_instance(api, "old")
    pod = add_pod(api, "launcher", uid)
    api.create(bare(build_network()))
    await harness.converged()
    assert UNLABELLED in policies_of(api, uid=uid)

    api.patch_status(POD, pod, {"phase": "Failed"})
    await harness.converged()
    assert UNLABELLED not in policies_of(api, uid=uid)


async def test_peers_of_an_isolated_network_do_not_change_with_its_machines(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network(isolation="Network")))
    first = add_instance(api, "a")
    await harness.converged()
    before = api.get(NETWORK_POLICY, Key("default", OPEN))["spec"]["ingress"]
    assert before == [{"from": [{"podSelector": {"matchLabels": {NETWORK_LABEL: "lan"}}}]}]

    second = add_instance(api, "b")
    await harness.converged()
    policy = api.get(NETWORK_POLICY, Key("default", OPEN))
    assert policy["spec"]["ingress"] == before
    assert all(OPEN in policies_of(api, uid=uid) for uid in (first, second))


def build_old_deny(network_uid: str) -> Manifest:
    """Build the policy that closes machines as version 0.1.0 wrote it."""
    selector = {"matchExpressions": [{"key": INSTANCE_UID_LABEL, "operator": "Exists"}]}
    return build_object(
        NETWORK_POLICY,
        DENY,
        "default",
        metadata={"annotations": {KEPT_FOR: network_uid, APPLIED_HASH: "older"}},
        spec={
            "podSelector": selector,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": [],
        },
    )


async def test_upgrade_closes_old_machines_before_it_lets_go_of_strangers(
    api: FakeApi, harness: OperatorHarness
) -> None:
    await harness.stop()
    network = api.create(bare(build_network()))
    api.create(build_old_deny(network["metadata"]["uid"]))
    old, stranger = add_instance(api, "old"), add_instance(api, "stranger", network="")
    for uid in (old, stranger):
        add_pod(api, f"launcher-{uid[:8]}", uid)
    assert policies_of(api, uid=stranger) == {DENY}
    await harness.restart()
    await harness.converged()

    assert policies_of(api, uid=stranger) == set()
    assert policies_of(api, uid=old) == {UNLABELLED, OPEN}
    first, then = (
        int(api.get(NETWORK_POLICY, Key("default", name))["metadata"]["resourceVersion"])
        for name in (UNLABELLED, DENY)
    )
    assert first < then
    assert condition(api, NETWORK, LAN, "Ready") == ("True", "InPlace")


async def test_upgrade_that_cannot_close_old_machines_keeps_the_wider_policy(
    api: FakeApi, harness: OperatorHarness
) -> None:
    await harness.stop()
    network = api.create(bare(build_network()))
    api.create(build_old_deny(network["metadata"]["uid"]))
    uid = add_instance(api, "old", firewall="web")
    add_pod(api, "launcher", uid)
    api.fail(status=403, times=None, where=lambda each: UNLABELLED.encode() in each.raw)
    await harness.restart()
    await harness.eventually(
        lambda: condition(api, NETWORK, LAN, "Isolated") == ("False", "WriteRefused")
    )

    assert policies_of(api, uid=uid) == {DENY}
