"""A cluster is restored from a backup, in any order: without UIDs, owners and statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from libs.common.kinds import ENDPOINT_SLICE, SECRET, SERVICE, Key, Kind, Manifest, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.reading import text_map_at
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from operators.clusters.controller_test import EDGE, Cloud, cloud, create
from operators.clusters.naming import authorities_name, kubeconfig_name
from operators.clusters.samples import ADDRESS

__all__ = ["cloud"]

CHILDREN: Final = (SECRET, IP_CLAIM, FIREWALL, INSTANCE, SERVICE, ENDPOINT_SLICE)
FIRST: Final = (*CHILDREN, KUBERNETES_CLUSTER)
LAST: Final = (KUBERNETES_CLUSTER, *reversed(CHILDREN))
MINIMUM: Final = (SECRET, KUBERNETES_CLUSTER, INSTANCE, IP_CLAIM)
"""Without objects that the operator can build again."""


def clean(held: Manifest) -> Manifest:
    """Return what a backup tool restores of an object."""
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {name: value for name, value in held["metadata"].items() if name in kept}
    return {name: value for name, value in held.items() if name != "status"} | {
        "metadata": metadata
    }


def erase(cloud: Cloud, kind: Kind, key: Key) -> None:
    """Delete an object without anybody's clean-up, as if the cluster were lost."""
    cloud.api.patch(kind, key, {"metadata": {"finalizers": []}})
    cloud.api.delete(kind, key)


async def lose_and_restore(cloud: Cloud, order: Sequence[Kind]) -> None:
    await cloud.operator.stop()
    backup = {kind: [clean(held) for held in cloud.api.objects(kind)] for kind in FIRST}
    machines = {key_of(held): held for held in cloud.api.objects(INSTANCE)}
    for kind in LAST:
        for held in cloud.api.objects(kind):
            erase(cloud, kind, key_of(held))
    for kind in order:
        for manifest in backup[kind]:
            created = cloud.api.create(manifest)
            if kind == INSTANCE:
                # Its machine runs from its old disk, as compute would report.
                former = machines[key_of(manifest)]
                cloud.restored[uid_of(created)] = uid_of(former)
                cloud.api.patch_status(INSTANCE, key_of(manifest), former["status"])
    await cloud.operator.restart()


def keys_of(cloud: Cloud) -> Mapping[str, Mapping[str, str]]:
    names = (authorities_name("edge"), kubeconfig_name("edge"))
    secrets = {name: cloud.api.get(SECRET, Key("default", name)) for name in names}
    return {name: text_map_at(held, "data") for name, held in secrets.items()}


@pytest.mark.parametrize("order", [FIRST, LAST, MINIMUM], ids=["parts first", "last", "minimum"])
async def test_restored_cluster_is_the_same_one(cloud: Cloud, order: Sequence[Kind]) -> None:
    recycle = [{"node": "edge-web-0", "token": "1"}]
    create(cloud, workers=2, recycle=recycle)
    await cloud.ready()
    keys, names = keys_of(cloud), cloud.instances()

    await lose_and_restore(cloud, order)
    machines = {key_of(held).name: uid_of(held) for held in cloud.api.objects(INSTANCE)}
    await cloud.ready()

    assert keys_of(cloud) == keys
    assert cloud.instances() == names
    assert {key_of(held).name: uid_of(held) for held in cloud.api.objects(INSTANCE)} == machines
    assert cloud.api.objects(OPERATION) == []
    owner = uid_of(cloud.api.get(KUBERNETES_CLUSTER, EDGE))
    for kind in CHILDREN:
        assert {controller_uid(held) for held in cloud.api.objects(kind)} == {owner}


async def test_restored_cluster_requests_its_former_address(cloud: Cloud) -> None:
    create(cloud)
    await cloud.ready()
    assert "address" not in claim_of(cloud)["spec"]

    await lose_and_restore(cloud, (SECRET, KUBERNETES_CLUSTER, INSTANCE))
    await cloud.ready()

    assert claim_of(cloud)["spec"]["address"] == ADDRESS


async def test_restored_claim_with_another_address_is_reported(cloud: Cloud) -> None:
    """Without the ledger, it gets any address; the certificates are not valid for it."""
    create(cloud)
    await cloud.ready()
    keys = keys_of(cloud)
    cloud.driving = False
    await lose_and_restore(cloud, MINIMUM)
    cloud.api.patch_status(IP_CLAIM, Key("default", "edge-api"), {"address": "203.0.113.99"})

    def message() -> str:
        ready = cloud.condition("Ready")
        return str(ready.get("message")) if ready.get("reason") == "AddressChanged" else ""

    await cloud.until(lambda: bool(message()), "it is reported")
    assert ADDRESS in message() and "203.0.113.99" in message()
    assert keys_of(cloud) == keys, "the kubeconfig keeps the address of the certificates"

    cloud.api.delete(IP_CLAIM, Key("default", "edge-api"))
    cloud.driving = True
    await cloud.ready()
    assert claim_of(cloud)["spec"]["address"] == ADDRESS
    assert keys_of(cloud) == keys


def claim_of(cloud: Cloud) -> Manifest:
    return cloud.api.get(IP_CLAIM, Key("default", "edge-api"))


async def test_secret_of_somebody_else_is_neither_adopted_nor_to_be_deleted(cloud: Cloud) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "edge-authorities", "namespace": "default"},
        "data": {},
    }
    cloud.api.create(foreign)
    create(cloud)

    def message() -> str:
        ready = cloud.condition("Ready")
        return str(ready.get("message")) if ready.get("reason") == "NameTaken" else ""

    await cloud.until(lambda: bool(message()), "the conflict is reported")
    assert "delete" not in message()
    held = cloud.api.get(SECRET, Key("default", "edge-authorities"))
    assert controller_uid(held) == ""


async def test_orphaned_cluster_goes_on_and_the_next_one_takes_it_over(cloud: Cloud) -> None:
    create(cloud, workers=1)
    await cloud.ready()
    keys = keys_of(cloud)
    machines = {key_of(held).name: uid_of(held) for held in cloud.api.objects(INSTANCE)}
    assert cloud.api.get(KUBERNETES_CLUSTER, EDGE)["metadata"]["finalizers"]

    cloud.api.delete(KUBERNETES_CLUSTER, EDGE, propagation="Orphan")
    await cloud.until(
        lambda: cloud.api.find(KUBERNETES_CLUSTER, EDGE) is None, "the cluster is deleted"
    )
    await cloud.operator.converged()

    def show() -> dict[str, str]:
        return {key_of(held).name: uid_of(held) for held in cloud.api.objects(INSTANCE)}

    assert (show(), keys_of(cloud)) == (machines, keys)
    for kind in CHILDREN:
        assert {controller_uid(held) for held in cloud.api.objects(kind)} == {""}

    create(cloud, workers=1)
    await cloud.ready()

    assert (show(), keys_of(cloud)) == (machines, keys)
    owner = uid_of(cloud.api.get(KUBERNETES_CLUSTER, EDGE))
    for kind in CHILDREN:
        assert {controller_uid(held) for held in cloud.api.objects(kind)} == {owner}
