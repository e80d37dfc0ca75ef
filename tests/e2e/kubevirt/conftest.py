"""One small guest on the real KubeVirt, which the tests of this folder take turns with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from lab.guest.serve import deploy, deploy_slow
from lab.kubevirt.state import find_state
from libs.common.errors import AlreadyExists, NotFound
from libs.common.kinds import NAMESPACE, NODE, Key, Manifest, build_object, key_of
from libs.common.reading import text_map_at
from libs.contracts.compute import INSTANCE, INSTANCE_SIZE
from libs.contracts.instancetypes import CLUSTER_PREFERENCE, MATCHED_KINDS
from tests.e2e.cluster import Cluster, Serve
from tests.e2e.kubevirt.machine import (
    LARGER,
    NAMESPACE_NAME,
    SIZE,
    WEB,
    Machine,
    build_instancetype,
    build_machine,
)
from tools.cluster import csi
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME, KindCluster
from tools.cluster.progress import open_progress
from tools.dev.options import CLUSTER_VARIABLE

SHARED_CLASS_VARIABLE: Final = "SLIPWAY_SHARED_CLASS"
"""Name of a StorageClass with ReadWriteMany, for migrations."""
MOVABLE: Final = Key(NAMESPACE_NAME, "movable")
SAVED: Final = Key(NAMESPACE_NAME, "saved")
TYPED: Final = Key(NAMESPACE_NAME, "e2e-typed")
_SATA: Final = {"devices": {"preferredDiskBus": "sata"}}
SCHEDULABLE: Final = "kubevirt.io/schedulable"
"""Label of the nodes that run machines."""


@pytest.fixture(scope="session")
def kind_cluster() -> KindCluster:
    """Return the kind cluster; without the real KubeVirt the whole run ends here."""
    name = os.environ.get(CLUSTER_VARIABLE, DEFAULT_NAME)
    cluster = KindCluster(name)
    try:
        state = find_state(cluster.kubectl()) if cluster.is_up() else None
    except ToolError as err:
        pytest.exit(str(err), returncode=1)
    if state is None or not state.ready or state.simulated:
        found = state.describe() if state else "no cluster"
        pytest.exit(
            f"Cluster {name} has no real KubeVirt ({found}): run `./dev up --with kubevirt`, or set"
            f" {CLUSTER_VARIABLE} to the name of another kind cluster",
            returncode=1,
        )
    return cluster


@pytest.fixture(scope="session")
def guest_image(kind_cluster: KindCluster) -> None:
    """Serve the guest image in the cluster."""
    deploy(kind_cluster, open_progress("guest-image"))


@pytest.fixture(scope="module", autouse=True)
def operators(guest_image: None, serve: Serve) -> None:
    """Install the operators."""
    # No load balancer is needed: the nodes route the addresses, which the tests ask from a node.
    serve("ipam", settings__announcement="ExternalIPs")
    serve("compute")


@pytest.fixture
async def web(cluster: Cluster, kind_cluster: KindCluster) -> AsyncIterator[Machine]:
    """Give the one machine, Ready, as a test before left it or new.

    A test that fails leaves no machine to the next one.
    """
    await _prepare(cluster)
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(INSTANCE, build_machine())
    machine = Machine(cluster, kind_cluster)
    completed = False
    try:
        await cluster.wait_ready(INSTANCE, WEB)
        yield machine
        completed = await machine.exists() and await machine.is_ready()
    finally:
        if not completed:
            await remove(cluster)


@pytest.fixture
async def saved(cluster: Cluster, kind_cluster: KindCluster) -> AsyncIterator[Machine]:
    """Give a machine whose disk is on a CSI driver with snapshots, Ready, in place of the other."""
    csi.install_csi(kind_cluster, open_progress("csi", kind_cluster.cache))
    disk = {"accessModes": ["ReadWriteOnce"], "storageClassName": csi.NAME}
    async with _replace(cluster, build_machine(SAVED, disk)):
        yield Machine(cluster, kind_cluster, SAVED)


@pytest.fixture
async def typed(cluster: Cluster, kind_cluster: KindCluster) -> AsyncIterator[Machine]:
    """Give a machine by instancetype and preference, Ready, in place of the other."""
    await _prepare(cluster)
    made = (
        build_instancetype(TYPED.name, "288Mi"),
        build_object(CLUSTER_PREFERENCE, TYPED.name, spec=_SATA),
    )
    for each in made:
        with contextlib.suppress(AlreadyExists):
            await cluster.client.create(MATCHED_KINDS[each["kind"]], each)
    machine = build_machine(TYPED, {"accessModes": ["ReadWriteOnce"], "size": "64Mi"})
    del machine["spec"]["size"]
    names = {"name": TYPED.name}
    machine["spec"] |= {"instancetype": names, "preference": names}
    try:
        async with _replace(cluster, machine):
            yield Machine(cluster, kind_cluster, TYPED)
    finally:
        for each in made:
            with contextlib.suppress(NotFound):
                await cluster.delete(MATCHED_KINDS[each["kind"]], Key("", TYPED.name))


@contextlib.asynccontextmanager
async def _replace(cluster: Cluster, machine: Manifest) -> AsyncIterator[None]:
    """Run another machine in place of the one that the tests share: one guest at a time."""
    await _prepare(cluster)
    await remove(cluster)
    await cluster.client.create(INSTANCE, machine)
    try:
        await cluster.wait_ready(INSTANCE, key_of(machine))
        yield
    finally:
        await remove(cluster, key_of(machine))


async def _prepare(cluster: Cluster) -> None:
    for kind, manifest in (
        (NAMESPACE, build_object(NAMESPACE, NAMESPACE_NAME)),
        (INSTANCE_SIZE, build_object(INSTANCE_SIZE, SIZE, spec=_size("256Mi"))),
        (INSTANCE_SIZE, build_object(INSTANCE_SIZE, LARGER, spec=_size("288Mi"))),
    ):
        with contextlib.suppress(AlreadyExists):
            await cluster.client.create(kind, manifest)


@pytest.fixture(scope="session")
def slow_image(guest_image: None, kind_cluster: KindCluster) -> None:
    """Serve the guest image slowly in the cluster."""
    deploy_slow(kind_cluster, open_progress("slow-image"))


@pytest.fixture
async def movable(
    web: Machine, cluster: Cluster, kind_cluster: KindCluster
) -> AsyncIterator[Machine]:
    """Give a second machine, whose disk all nodes can mount, Ready."""
    name = os.environ.get(SHARED_CLASS_VARIABLE, "")
    if not name:
        pytest.skip(f"{SHARED_CLASS_VARIABLE} names no StorageClass with ReadWriteMany")
    nodes = (await cluster.client.list(NODE)).items
    runs = [text_map_at(each, "metadata", "labels").get(SCHEDULABLE) == "true" for each in nodes]
    if sum(runs) < 2:
        pytest.skip("a migration needs two nodes that run machines")
    disk = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
    await cluster.client.create(INSTANCE, build_machine(MOVABLE, disk))
    try:
        await cluster.wait_ready(INSTANCE, MOVABLE)
        yield Machine(cluster, kind_cluster, MOVABLE)
    finally:
        await remove(cluster, MOVABLE)


@pytest.fixture(scope="module", autouse=True)
def clean_up(operators: None, kind_cluster: KindCluster) -> Iterator[None]:
    """Remove the machine and its namespace while the operators still run."""
    yield
    kubectl = kind_cluster.kubectl()
    snapshots = ("delete", "virtualmachinesnapshots.snapshot.kubevirt.io", "--all")
    where = ("--namespace", NAMESPACE_NAME, "--ignore-not-found", "--timeout=180s")
    with contextlib.suppress(ToolError):
        kubectl.read("delete", "operations,ipclaims,instances", "--all", *where, seconds=200)
        kubectl.read(*snapshots, *where, seconds=200)
        kubectl.read("delete", "namespace", NAMESPACE_NAME, "--ignore-not-found", seconds=200)


async def remove(cluster: Cluster, key: Key = WEB) -> None:
    """Delete a machine with its disk, and wait until it is gone."""
    with contextlib.suppress(NotFound):
        await cluster.delete(INSTANCE, key)
    await cluster.wait_gone(INSTANCE, key)


def _size(memory: str) -> dict[str, object]:
    return {"cpus": 1, "memory": memory, "disk": "64Mi"}
