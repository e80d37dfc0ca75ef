"""The volumes operator with a CSI driver: growth, clones, snapshots, and the data in them.

The driver is the one of `./dev up --with csi`; its volumes have the size that they are asked for.
`SLIPWAY_E2E_STORAGE_CLASS` and `SLIPWAY_E2E_SNAPSHOT_CLASS` name the classes of another driver that
is installed in the cluster. Both bind volumes immediately.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import POD, PVC, Key, Manifest, build_object
from libs.contracts.snapshots import VOLUME_SNAPSHOT
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.e2e.cluster import Cluster, Serve, build_busybox, eventually, names_of
from tools.cluster import csi
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

STORAGE_CLASS = os.environ.get("SLIPWAY_E2E_STORAGE_CLASS", csi.NAME)
SNAPSHOT_CLASS = os.environ.get("SLIPWAY_E2E_SNAPSHOT_CLASS", csi.NAME)
MIB = 1 << 20
GROWTH_SECONDS = 300.0
"""A kubelet grows the file system of a running pod when it synchronizes it, about once a minute."""


@pytest.fixture(scope="module", autouse=True)
def driver(kind_cluster: KindCluster) -> None:
    """Install the driver, unless the tests run on the classes of another one."""
    if STORAGE_CLASS == csi.NAME:
        csi.install_csi(kind_cluster, open_progress("csi", kind_cluster.cache))


@pytest.fixture(scope="module", autouse=True)
def operator(driver: None, serve: Serve) -> None:
    """Install the operator for all tests here."""
    serve("volumes")


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Make a namespace for one test."""
    return await cluster.make_namespace("volumes-csi")


async def create_volume(
    cluster: Cluster, namespace: str, name: str = "data", **spec: object
) -> Key:
    """Create a DemoVolume and return its key, which is also the key of its claim."""
    values = {"size": "64Mi", "storageClassName": STORAGE_CLASS, **spec}
    await cluster.client.create(
        DEMO_VOLUME, build_object(DEMO_VOLUME, name, namespace, spec=values)
    )
    return Key(namespace, name)


async def resize(cluster: Cluster, volume: Key, size: str) -> None:
    """Set the size of a DemoVolume."""
    await cluster.client.patch(DEMO_VOLUME, volume, {"spec": {"size": size}})


async def run_pod(cluster: Cluster, claim: Key) -> Key:
    """Run a pod on a claim until it is deleted; the claim is mounted at /data."""
    pod = Key(claim.namespace, f"uses-{claim.name}")
    spec = build_busybox("sleep", "3600", mounts={claim.name: "/data"})
    await cluster.client.create(POD, build_object(POD, pod.name, pod.namespace, spec=spec))

    async def running() -> bool:
        return pod.name in names_of(await cluster.running_pods(pod.namespace, ""))

    await eventually(running, f"pod {pod.name} runs")
    return pod


async def execute(cluster: Cluster, pod: Key, script: str) -> str:
    """Run a shell script in a pod and return what it printed."""
    return await cluster.kubectl_run(pod.namespace, "exec", pod.name, "--", "sh", "-c", script)


async def write_bytes(cluster: Cluster, pod: Key, name: str = "bytes") -> str:
    """Write 4 MiB of random bytes into a file of the volume and return their checksum."""
    script = f"head -c {4 * MIB} /dev/urandom > /data/{name}; sync; sha256sum < /data/{name}"
    return await execute(cluster, pod, script)


async def read_checksum(cluster: Cluster, pod: Key, name: str = "bytes") -> str:
    """Return the checksum of a file of the volume."""
    return await execute(cluster, pod, f"sha256sum < /data/{name}")


async def read_size(cluster: Cluster, pod: Key) -> int:
    """Return the bytes of the file system of the volume, as `df` shows them in the pod."""
    line = (await execute(cluster, pod, "df -k /data")).splitlines()[-1]
    return int(line.split()[1]) * 1024


async def wait_snapshot_ready(cluster: Cluster, snapshot: Key) -> None:
    """Wait until a volume can be restored from a VolumeSnapshot."""

    async def ready() -> bool:
        held = await cluster.client.get(VOLUME_SNAPSHOT, snapshot)
        return bool((held.get("status") or {}).get("readyToUse"))

    await eventually(ready, f"snapshot {snapshot.name} is ready")


async def find_snapshots(cluster: Cluster, volume: Key) -> list[Manifest]:
    """Return the snapshots that the operator took of a DemoVolume."""
    label = f"storage.slipway.dev/demovolume={volume.name}"
    listing = await cluster.client.list(VOLUME_SNAPSHOT, volume.namespace, label_selector=label)
    return list(listing.items)


async def test_running_pod_sees_its_volume_grow(cluster: Cluster, namespace: str) -> None:
    volume = await create_volume(cluster, namespace)
    pod = await run_pod(cluster, volume)
    checksum = await write_bytes(cluster, pod)
    before = await read_size(cluster, pod)
    assert before >= 60 * MIB  # A file system needs some of the bytes for itself.

    await resize(cluster, volume, "128Mi")

    async def grown() -> bool:
        return await read_size(cluster, pod) >= before + 60 * MIB

    await eventually(grown, "df in the pod shows the growth", timeout=GROWTH_SECONDS)
    held = await cluster.wait_ready(DEMO_VOLUME, volume, "Resized")
    assert held["status"]["capacity"] == "128Mi"
    # The bytes that did not fit before, and those that were there.
    await execute(cluster, pod, f"head -c {80 * MIB} /dev/zero > /data/more")
    assert await read_checksum(cluster, pod) == checksum


async def test_clones_that_are_made_at_once_have_the_data_of_their_source(
    cluster: Cluster, namespace: str
) -> None:
    source = await create_volume(cluster, namespace)
    writer = await run_pod(cluster, source)
    checksum = await write_bytes(cluster, writer)

    sizes = {"a": 64, "b": 64, "c": 96, "d": 128}
    clones = [
        await create_volume(cluster, namespace, name, size=f"{size}Mi", source={"volume": "data"})
        for name, size in sizes.items()
    ]
    pods = await asyncio.gather(*(run_pod(cluster, clone) for clone in clones))

    for pod, size in zip(pods, sizes.values(), strict=True):
        assert await read_checksum(cluster, pod) == checksum
        assert await read_size(cluster, pod) >= (size - 4) * MIB
    # A clone is a copy: neither sees what is written to the other.
    await execute(cluster, pods[0], "echo changed > /data/bytes")
    assert await read_checksum(cluster, writer) == checksum
    assert await read_checksum(cluster, pods[1]) == checksum


async def test_restored_volume_has_the_data_of_the_snapshot_and_grows(
    cluster: Cluster, namespace: str
) -> None:
    volume = await create_volume(cluster, namespace)
    writer = await run_pod(cluster, volume)
    checksum = await write_bytes(cluster, writer)
    snapshot = Key(namespace, "before")
    spec = {
        "volumeSnapshotClassName": SNAPSHOT_CLASS,
        "source": {"persistentVolumeClaimName": volume.name},
    }
    await cluster.client.create(
        VOLUME_SNAPSHOT, build_object(VOLUME_SNAPSHOT, snapshot.name, namespace, spec=spec)
    )
    await wait_snapshot_ready(cluster, snapshot)
    await execute(cluster, writer, "echo changed > /data/bytes")

    restored = await create_volume(
        cluster, namespace, "restored", source={"snapshot": snapshot.name}
    )
    await cluster.wait_ready(DEMO_VOLUME, restored, "Bound")
    await resize(cluster, restored, "128Mi")

    # No pod uses the volume, so nobody can grow its file system: this is no reason to wait.
    async def pending() -> bool:
        held = await cluster.client.get(DEMO_VOLUME, restored)
        resized = find_condition(held, "Resized") or {}
        return resized.get("reason") == "FileSystemPending"

    await eventually(pending, "Resized has reason FileSystemPending")
    await cluster.wait_ready(DEMO_VOLUME, restored)
    reader = await run_pod(cluster, restored)
    assert await read_checksum(cluster, reader) == checksum
    assert await read_size(cluster, reader) >= 120 * MIB
    await cluster.wait_ready(DEMO_VOLUME, restored, "Resized")


async def test_last_snapshot_has_what_was_written_until_the_last_pod_ended(
    cluster: Cluster, namespace: str
) -> None:
    volume = await create_volume(
        cluster, namespace, reclaimPolicy="Snapshot", snapshotClassName=SNAPSHOT_CLASS
    )
    pod = await run_pod(cluster, volume)
    early = await write_bytes(cluster, pod, "early")
    await cluster.delete(DEMO_VOLUME, volume)

    async def waiting() -> bool:
        held = await cluster.client.get(DEMO_VOLUME, volume)
        found = find_condition(held, "Terminating") or {}
        return found.get("reason") == "InUse" and pod.name in found.get("message", "")

    await eventually(waiting, "Terminating names the pod that uses the claim")
    late = await write_bytes(cluster, pod, "late")
    assert await find_snapshots(cluster, volume) == []
    await cluster.delete(POD, pod)

    await cluster.wait_gone(DEMO_VOLUME, volume)
    await cluster.wait_gone(PVC, volume)
    (snapshot,) = await find_snapshots(cluster, volume)
    restored = await create_volume(
        cluster, namespace, "restored", source={"snapshot": snapshot["metadata"]["name"]}
    )
    reader = await run_pod(cluster, restored)
    assert await read_checksum(cluster, reader, "early") == early
    assert await read_checksum(cluster, reader, "late") == late
