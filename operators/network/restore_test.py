"""Networks and Firewalls are restored: without status, UID and owner references, in any order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final

import pytest

from libs.common.kinds import NETWORK_POLICY, Key, Kind, Manifest, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE
from libs.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
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

PARENTS: Final = (PROVIDER_NETWORK, NETWORK, FIREWALL, INSTANCE)
CHILDREN: Final = (NETWORK_POLICY, MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION)
ORDERS: Final = [
    *((*order, *CHILDREN) for order in permutations(PARENTS)),
    (*CHILDREN, *PARENTS),
    PARENTS,
]


def strip(manifest: Manifest) -> Manifest:
    """Return what a backup tool restores of an object."""
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {name: value for name, value in manifest["metadata"].items() if name in kept}
    return {name: value for name, value in manifest.items() if name != "status"} | {
        "metadata": metadata
    }


def name_all(part: Manifest, uids: Mapping[str, str]) -> Manifest:
    """Replace the UIDs in a selector, which are sorted, by names."""
    if isinstance(values := part.get("values"), list):
        part["values"] = sorted(uids.get(value, value) for value in values)
    return part


def show(api: FakeApi) -> dict[str, str]:
    """Return what policies and attachments say, with names instead of UIDs."""
    uids = {uid_of(each): key_of(each).name for each in api.objects(INSTANCE)}
    shown = {}
    for kind in CHILDREN:
        for each in api.objects(kind):
            spec = json.loads(
                json.dumps(each["spec"]), object_hook=lambda part: name_all(part, uids)
            )
            shown[f"{kind.kind} {key_of(each).name}"] = json.dumps(spec, sort_keys=True)
    return shown


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(k.kind for k in order))
async def test_restored_networks_isolate_and_open_the_same(
    api: FakeApi, harness: OperatorHarness, order: Sequence[Kind]
) -> None:
    for kind in (NETWORK_ATTACHMENT_DEFINITION, MULTI_NETWORK_POLICY):
        api.register(build_loose_crd(kind, None, ()))
    api.create(build_provider())
    for manifest in (
        build_network(isolation="Network"),
        build_attached("office"),
        build_firewall("web", build_rule("http", ports=[80], cidrs=["192.0.2.0/24"])),
        build_firewall("db", build_rule("web", peers=[{"firewallRef": {"name": "web"}}])),
        build_instance("one", firewall="web"),
        build_instance("two", firewall="db"),
        build_instance("plain"),
        build_instance("routed", network="office"),
    ):
        api.create(bare(manifest))
    await harness.converged()
    await harness.eventually(
        lambda: condition(api, NETWORK, Key("default", "office"), "Attachable")[0] == "True"
    )
    await harness.eventually(lambda: len(show(api)) == 7, "all policies and the attachment")
    await harness.converged()
    before = show(api)

    backup = {kind: [strip(each) for each in api.objects(kind)] for kind in ORDERS[0]}
    for kind in ORDERS[0]:
        for each in api.objects(kind):
            api.vanish(kind, key_of(each))
    await harness.converged()
    for kind in order:
        for manifest in backup[kind]:
            if api.find(kind, key_of(manifest)) is None:
                api.create(manifest)
        await harness.converged()
    await harness.eventually(
        lambda: condition(api, NETWORK, Key("default", "office"), "Attachable")[0] == "True"
    )
    await harness.eventually(lambda: len(show(api)) == 7, "all policies and the attachment")
    await harness.converged()

    assert show(api) == before
    for kind in (NETWORK, FIREWALL):
        for each in api.objects(kind):
            assert condition(api, kind, key_of(each), "Ready")[0] == "True", key_of(each).name
    owners = {uid_of(each) for kind in (NETWORK, FIREWALL) for each in api.objects(kind)}
    left = {controller_uid(each) for kind in CHILDREN for each in api.objects(kind)}
    assert left <= owners | {""}, "nothing refers to an owner that no longer exists"
