"""From the previous release to this one and back on nodes: what users run keeps running.

`tests/upgrade` covers all operators without nodes. Here the kubelet runs the pods of both releases
and of the users. A new operator adds its users to `USERS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.cloud.conftest import KubeVirt, kubevirt
from tests.e2e.cluster import ROOT, TAKE_OVER, Cluster
from tests.e2e.nightly.upgrade.cloud import ClusterUsers, ComputeUsers, IpamUsers, NetworkUsers
from tests.e2e.nightly.upgrade.consumers import ConsumerUsers
from tests.e2e.nightly.upgrade.images import build_previous_images, previous_image
from tests.e2e.nightly.upgrade.users import Place, Users
from tests.e2e.nightly.upgrade.workloads import JmxUsers, PodSetUsers, VolumeUsers
from tests.upgrade.release import unpack_previous
from tools.cluster.kind_cluster import KindCluster
from tools.dev.operators import list_operators

__all__ = ["kubevirt"]

USERS: Final[Mapping[str, type[Users]]] = {
    "podset": PodSetUsers,
    "volumes": VolumeUsers,
    "pulsarconsumer": ConsumerUsers,
    "jmxexporter": JmxUsers,
    "compute": ComputeUsers,
    "network": NetworkUsers,
    "ipam": IpamUsers,
    "clusters": ClusterUsers,
}
"""Users by the operator that they depend on."""
CLOUD: Final = ("compute", "network", "ipam", "clusters")
"""Operators that work together, in the order in which they are upgraded; their machines are
simulated."""
GROUPS: Final = (
    *((operator,) for operator in USERS if operator not in CLOUD),
    CLOUD,
)
"""Operators that are upgraded in one namespace."""
STAGES: Final = (
    (False, "upgrade"),
    (False, "rollback"),
    (True, "upgrade"),
    (True, "rollback"),
)
"""What happens, each with whether users create objects meanwhile."""
_LOAD_SECONDS: Final = 5.0


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_previous(tmp_path_factory.mktemp("previous"))


def test_each_operator_of_the_previous_release_has_users(previous: Path) -> None:
    assert set(USERS) == set(list_operators(previous))


@pytest.fixture(params=GROUPS, ids="-".join)
def operators(
    request: pytest.FixtureRequest,
    kind_cluster: KindCluster,
    images: Mapping[str, str],
    previous: Path,
) -> Sequence[str]:
    """Return the operators of a group, with the images of both releases in the nodes."""
    group: tuple[str, ...] = request.param
    build_previous_images(group, previous, kind_cluster, images)
    if group is CLOUD:
        simulated: KubeVirt = request.getfixturevalue("kubevirt")
        if not simulated.simulated:
            pytest.skip("KubeVirt is real here: the image of these machines is not")
    return group


async def test_users_notice_neither_upgrade_nor_rollback(
    cluster: Cluster, kind_cluster: KindCluster, previous: Path, operators: Sequence[str]
) -> None:
    """At rest, and while users create objects all the time."""
    namespace = await cluster.make_namespace("from-previous")
    releases = Releases(cluster, namespace, previous)
    place = Place(cluster, kind_cluster, namespace)
    users = [USERS[operator](place) for operator in operators]
    for operator in operators:
        await releases.install_previous(operator)
    async with closing(users):
        for one in users:
            await one.create()
        for one in users:
            await one.wait_ready()
        for one in users:
            await one.check()
        before = await snapshot(users)

        for number, (loaded, direction) in enumerate(STAGES):
            stage = f"{direction}, {loaded=}"
            async with keep_creating(users, f"load-{number}", loaded) as created:
                await releases.move(operators, direction, keep_values=not loaded)
            for one in users:
                # The new leader works before anything is compared.
                name = f"after-{number}"
                await place.create(*one.build(name))
                created.append((one, name))
            for one, name in created:
                await one.wait_observed(name)
            for one in users:
                await one.wait_ready()
            for one in users:
                await one.check()
            after = await snapshot(users)
            changed = {
                name: (state, after.get(name))
                for name, state in before.items()
                if after.get(name) != state
            }
            assert not changed, f"{stage}: replaced or restarted {changed}"
            for one, name in created:  # A node runs 110 pods.
                await place.delete(one.build(name)[0], name)


@asynccontextmanager
async def closing(users: Sequence[Users]) -> AsyncIterator[None]:
    """Delete the objects of the users at the end, while the operators run."""

    async def close() -> None:
        for one in users:
            await one.close()
        for one in users:
            await one.wait_closed()

    try:
        yield
    except BaseException:
        with suppress(AssertionError):  # The first failure is the cause.
            await close()
        raise
    await close()


async def snapshot(users: Sequence[Users]) -> dict[str, Any]:
    """Return what must not change."""
    return {name: state for one in users for name, state in (await one.snapshot()).items()}


@asynccontextmanager
async def keep_creating(
    users: Sequence[Users], prefix: str, loaded: bool
) -> AsyncIterator[list[tuple[Users, str]]]:
    """Create objects all the time, as a busy namespace does; yield them with their users."""
    created: list[tuple[Users, str]] = []

    async def work() -> None:
        number = 0
        while True:
            for one in users:
                name = f"{prefix}-{number}"
                await one.place.create(*one.build(name))
                created.append((one, name))
            number += 1
            await asyncio.sleep(_LOAD_SECONDS)

    if not loaded:
        yield created
        return
    task = asyncio.create_task(work())
    try:
        yield created
        assert created and not task.done(), "users could create objects all the time"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Releases:
    """The Helm releases of operators in a namespace."""

    def __init__(self, cluster: Cluster, namespace: str, previous: Path) -> None:
        self._cluster, self._namespace, self._previous = cluster, namespace, previous
        self._where = ("--namespace", namespace, "--wait", "--timeout", "15m")

    async def install_previous(self, operator: str) -> None:
        """Install the previous release of an operator."""
        repository, _, tag = previous_image(operator).rpartition(":")
        values = {"image.repository": repository, "image.tag": tag, "image.pullPolicy": "Never"}
        if operator == "pulsarconsumer":
            values["settings.consumerImage"] = previous_image("pulsarconsumer-app")
        for name, value in USERS[operator].values.items():
            values[name.replace("__", ".")] = str(value)
        chosen = ",".join(f"{name}={value}" for name, value in {**values, "replicas": 2}.items())
        chart = str(self._previous / "helm" / operator)
        await self._helm("upgrade", "--install", operator, chart, *TAKE_OVER, "--set", chosen)
        self._cluster.remember(operator, self._namespace)

    async def move(self, operators: Sequence[str], direction: str, *, keep_values: bool) -> None:
        """Upgrade operators to this release, or roll them back to the previous one.

        Args:
            operators: In the order of an upgrade.
            direction: `upgrade` or `rollback`.
            keep_values: Whether an upgrade keeps the values of the previous release, such as the
                image of consumers.
        """
        for operator in operators if direction == "upgrade" else reversed(operators):
            if direction == "rollback":
                await self._helm("rollback", operator)
            elif keep_values:
                repository, _, tag = self._cluster.images[operator].rpartition(":")
                image = f"image.repository={repository},image.tag={tag}"
                chart = str(ROOT / "helm" / operator)
                reuse = ("--reset-then-reuse-values", "--set", image)
                await self._helm("upgrade", operator, chart, *TAKE_OVER, *reuse)
            else:
                values = {"replicas": 2, **USERS[operator].values}
                await self._cluster.install(operator, self._namespace, wait=True, **values)

    async def _helm(self, *command: str) -> None:
        await self._cluster.run(self._cluster.helm, *command, *self._where)
