"""From the previous release to this one and back on nodes: the pods of users keep running.

`tests/upgrade` covers all operators without nodes. Here the kubelet runs the pods of both releases
and of the users.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common.kinds import POD, PVC, Key, Manifest, build_object
from operators.podset.controller import PODSET
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.e2e.cluster import Cluster, build_busybox, eventually
from tests.upgrade.release import unpack_previous
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

OPERATORS: Final = ("podset", "volumes")
"""Operators that own what users run: pods, and the claims that pods mount."""
_DOCKERFILE: Final = """
FROM slipway/{operator}:dev
ENV PYTHONPATH=/previous
COPY libs /previous/libs
COPY operators /previous/operators
"""
"""The previous code with the packages of this release, found before the code of this release."""
_USER: Final = {"created-by": "user"}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_previous(tmp_path_factory.mktemp("previous"))


@pytest.fixture(scope="module")
def previous_images(
    kind_cluster: KindCluster, images: Mapping[str, str], previous: Path
) -> dict[str, str]:
    """Build the images of the previous release and load them into the nodes."""
    progress = open_progress("e2e-upgrade", kind_cluster.cache)
    docker = ensure_docker(progress, kind_cluster.cache)
    found = {operator: f"slipway/{operator}:previous" for operator in OPERATORS}
    for operator, image in found.items():
        assert images[operator], "the image that it extends is built"
        file = previous / "Dockerfile"
        file.write_text(_DOCKERFILE.format(operator=operator), encoding="utf-8")
        command = ["docker", "build", "--tag", image, str(previous)]
        progress.run(command, env=docker.environment())
    kind_cluster.load(list(found.values()), progress)
    return found


def build_podset(name: str, replicas: int = 2) -> Manifest:
    spec = {"replicas": replicas, "template": {"spec": build_busybox("sleep", "infinity")}}
    return build_object(PODSET, name, spec=spec)


def build_volume(name: str) -> Manifest:
    return build_object(DEMO_VOLUME, name, spec={"name": name, "size": 1})


def build_writer(name: str, claim: str) -> Manifest:
    """Build a pod of a user that mounts a claim."""
    spec = build_busybox("sleep", "infinity", mounts={claim: "/data"})
    return build_object(POD, name, metadata={"labels": _USER}, spec=spec)


class Users:
    """The objects of the users of a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    async def create(self, name: str) -> None:
        """Create a PodSet, a DemoVolume, and a pod that mounts its claim."""
        for kind, manifest in (
            (PODSET, build_podset(name)),
            (DEMO_VOLUME, build_volume(name)),
            (POD, build_writer(f"{name}-writer", name)),
        ):
            manifest["metadata"]["namespace"] = self._namespace
            await self._cluster.client.create(kind, manifest)

    async def wait_ready(self, name: str) -> None:
        """Wait until the operators report on the current specs, and all pods run."""
        await self._cluster.wait_ready(PODSET, Key(self._namespace, name))
        await self._cluster.wait_ready(DEMO_VOLUME, Key(self._namespace, name))

        async def writes() -> bool:
            pod = await self._cluster.client.get(POD, Key(self._namespace, f"{name}-writer"))
            statuses = pod.get("status", {}).get("containerStatuses", ())
            return bool(statuses) and all(one["ready"] for one in statuses)

        await eventually(writes, f"pod {name}-writer runs")

    async def snapshot(self) -> dict[str, Any]:
        """Return what must not change: identities, and the containers with their restarts."""
        found: dict[str, Any] = {}
        for kind in (POD, PVC):
            for item in (await self._cluster.client.list(kind, self._namespace)).items:
                if item["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "slipway":
                    continue  # The operators are replaced.
                statuses = item.get("status", {}).get("containerStatuses", ())
                found[f"{kind.kind}/{item['metadata']['name']}"] = (
                    item["metadata"]["uid"],
                    [(one["restartCount"], one.get("containerID")) for one in statuses],
                )
        return found

    @asynccontextmanager
    async def keep_creating(self, prefix: str) -> AsyncIterator[list[str]]:
        """Create PodSets all the time, as a busy namespace does."""
        names: list[str] = []

        async def work() -> None:
            while True:
                name = f"{prefix}-{len(names)}"
                manifest = build_podset(name, replicas=1)
                manifest["metadata"]["namespace"] = self._namespace
                await self._cluster.client.create(PODSET, manifest)
                names.append(name)
                await asyncio.sleep(5)

        task = asyncio.create_task(work())
        try:
            yield names
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_pods_of_users_keep_running_through_upgrade_and_rollback(
    cluster: Cluster, previous: Path, previous_images: Mapping[str, str]
) -> None:
    """Both operators, at rest and while a user creates objects all the time."""
    namespace = await cluster.make_namespace("from-previous")
    users = Users(cluster, namespace)
    where = ("--namespace", namespace, "--wait", "--timeout", "4m")
    for operator in OPERATORS:
        repository, _, tag = previous_images[operator].rpartition(":")
        values = f"image.repository={repository},image.tag={tag},image.pullPolicy=Never,replicas=2"
        chart = str(previous / "helm" / operator)
        # The CRDs of this release exist already in a cluster that ran other tests.
        command = ("upgrade", "--install", operator, chart, *where, "--take-ownership")
        await cluster.run(cluster.helm, *command, "--set", values)
        cluster.remember(operator, namespace)
    await users.create("first")
    await users.wait_ready("first")
    before = await users.snapshot()
    assert len(before) == 4, "two pods of the PodSet, the writer and its claim"

    for number, loaded in enumerate((False, True)):
        for direction in ("upgrade", "rollback"):
            created: list[str] = []
            async with AsyncExitStack() as stack:
                if loaded:
                    load = users.keep_creating(f"{direction}-{number}")
                    created = await stack.enter_async_context(load)
                for operator in OPERATORS:
                    await _move(cluster, operator, namespace, direction)
            await users.wait_ready("first")
            for name in created:
                await cluster.wait_ready(PODSET, Key(namespace, name))
            after = await users.snapshot()
            changed = {name for name, state in before.items() if after.get(name) != state}
            assert not changed, f"{direction}, {loaded=}: replaced or restarted {changed}"
            assert bool(created) == loaded
            for name in created:  # A node runs 110 pods.
                await cluster.delete(PODSET, Key(namespace, name))


async def _move(cluster: Cluster, operator: str, namespace: str, direction: str) -> None:
    """Upgrade an operator to this release, or roll it back to the previous one."""
    if direction == "upgrade":
        await cluster.install(operator, namespace, replicas=2)
        return
    command = ("rollback", operator, "--namespace", namespace, "--wait", "--timeout", "4m")
    await cluster.run(cluster.helm, *command)
