"""200 namespaces, 20 of them unreadable and 5 being deleted: all others are reconciled."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from subprocess import Popen

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import NotFound
from libs.common.kinds import (
    CONFIG_MAP,
    LEASE,
    NAMESPACE,
    POD,
    ROLE_BINDING,
    Key,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from operators.podset.controller import OPERATOR, PODSET
from tests.namespaces.plane import (
    create_namespace,
    delete_namespace,
    install_crds,
    install_rights,
    is_gone,
    wait_allowed,
)
from tools.generate.sources import ROOT

HOME = "home"
NAMES = tuple(f"tenant-{number:03}" for number in range(200))
UNREADABLE = NAMES[0:200:10]
GOING = NAMES[1:50:10]
GOOD = tuple(sorted(set(NAMES) - set(UNREADABLE) - set(GOING)))
LEASE_SECONDS = 15
BUSY_SECONDS = 15.0
"""What a busy machine may add to the time of a takeover."""


async def together(works: Iterable[Awaitable[object]]) -> None:
    """Do many things, some at a time."""
    places = asyncio.Semaphore(32)

    async def do(work: Awaitable[object]) -> None:
        async with places:
            await work

    await asyncio.gather(*map(do, works))


def build_podset(namespace: str, name: str = "web") -> Manifest:
    return build_object(PODSET, name, namespace, spec={"replicas": 1})


async def prepare(plane: ControlPlane, admin: Client) -> ConnectionConfig:
    """Make the namespaces, with a PodSet in each, and spoil some of them."""
    await install_crds(admin, ["podset"])
    await create_namespace(admin, HOME)
    await together(create_namespace(admin, name) for name in NAMES)
    values = {"watch": {"namespaces": list(NAMES)}}
    config = await install_rights(plane, admin, "podset", values, HOME)
    await wait_allowed(config, PODSET, NAMES[-1])
    await together(admin.create(PODSET, build_podset(name)) for name in NAMES)
    await together(delete_binding(admin, name) for name in UNREADABLE)
    # What somebody else has a finalizer on keeps a namespace from going.
    keeper = {"finalizers": ["example.com/keep"]}
    await together(
        admin.create(CONFIG_MAP, build_object(CONFIG_MAP, "keep", name, metadata=keeper))
        for name in GOING
    )
    await together(delete_namespace(admin, name) for name in GOING)
    for name in GOING:
        while not await is_gone(admin, ROLE_BINDING, Key(name, "podset")):
            await asyncio.sleep(0.1)
    return config


async def delete_binding(admin: Client, namespace: str) -> None:
    live = await admin.get(ROLE_BINDING, Key(namespace, "podset"))
    await admin.delete(ROLE_BINDING, Key(namespace, "podset"), uid=uid_of(live))


async def list_served(admin: Client, name: str = "web") -> set[str]:
    """Return the namespaces in which a PodSet has its pod."""
    pods = (await admin.list(POD, metadata_only=True)).items
    mine = (pod["metadata"] for pod in pods if pod["metadata"]["name"].startswith(f"{name}-"))
    return {metadata["namespace"] for metadata in mine}


async def read_lease(admin: Client) -> Manifest:
    spec: Manifest = (await admin.get(LEASE, Key(HOME, "podset")))["spec"]
    return spec


def build_replica(plane: ControlPlane, config: ConnectionConfig) -> OperatorHarness:
    return OperatorHarness(
        OPERATOR,
        config,
        admin=plane.config,
        watch_namespaces=NAMES,
        leader_elect=True,
        pod_namespace=HOME,
        lease_duration_seconds=LEASE_SECONDS,
        cache_sync_timeout_seconds=120,
        request_timeout_seconds=30,
    )


@contextmanager
def run_process(plane: ControlPlane, token: str, folder: Path) -> Iterator[Popen[bytes]]:
    """Run a replica as a process of its own, which can be killed without a word."""
    settings = {
        "kubeconfig": plane.write_kubeconfig(folder / "kubeconfig", token, HOME),
        "watch-namespaces": ",".join(NAMES),
        "pod-namespace": HOME,
        "lease-duration-seconds": LEASE_SECONDS,
        "metrics-bind-address": "0",
        "health-probe-bind-address": "0",
    }
    flags = [f"--{name}={value}" for name, value in settings.items()]
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "operators.podset", *flags]
        process = Popen(command, stdout=log, stderr=log, cwd=ROOT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def test_all_other_namespaces_are_reconciled_through_restart_and_takeover(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with Client(plane.config, max_in_flight=64) as admin:
        config = await prepare(plane, admin)
        token = (await config.authorization()).removeprefix("Bearer ")
        standby = build_replica(plane, config)
        with run_process(plane, token, tmp_path) as leader:
            await check_leader(admin, standby)
            await standby.start(wait=False)
            for name in NAMES:
                readable = standby.metric("operator_cache_scope_up", watched_namespace=name)
                assert readable == (name in GOOD), name
            before = await read_lease(admin)
            leader.kill()
            await check_takeover(admin, standby, before)

        await standby.restart()
        await check_works(admin, standby, "again", GOOD[-5:])

        # The namespaces that are being deleted finish while others stay unreadable.
        await together(release_keeper(admin, name) for name in GOING)

        async def are_gone() -> bool:
            return all([await is_gone(admin, NAMESPACE, Key("", name)) for name in GOING])

        await standby.eventually(are_gone, "deleted namespaces are gone", timeout=120)
        await standby.stop()
        await standby.client.close()


async def check_leader(admin: Client, harness: OperatorHarness) -> None:
    """Check that the leader serves each namespace that it can read, and no other."""

    async def serves_all() -> bool:
        return set(GOOD) <= await list_served(admin)

    await harness.eventually(serves_all, "each readable namespace has its pod", timeout=120)
    assert await list_served(admin) == set(GOOD)


async def check_takeover(admin: Client, standby: OperatorHarness, before: Manifest) -> None:
    """Check that the standby leads when the Lease has expired, and works."""
    await check_works(admin, standby, "late", GOOD[:5])
    after = await read_lease(admin)
    assert after["holderIdentity"] != before["holderIdentity"]
    renewed = datetime.fromisoformat(before["renewTime"])
    gap = (datetime.fromisoformat(after["acquireTime"]) - renewed).total_seconds()
    # The last renewal may be one period later than the renewal that was read.
    assert gap <= LEASE_SECONDS + 2 * standby.manager.settings.retry_period_seconds + BUSY_SECONDS


async def check_works(
    admin: Client, harness: OperatorHarness, name: str, namespaces: Sequence[str]
) -> None:
    """Create PodSets and wait for their pods."""
    await together(admin.create(PODSET, build_podset(each, name)) for each in namespaces)

    async def serves() -> bool:
        return set(namespaces) <= await list_served(admin, name)

    await harness.eventually(serves, f"the PodSets {name} have their pods", timeout=120)


async def release_keeper(admin: Client, namespace: str) -> None:
    with contextlib.suppress(NotFound):
        await admin.patch(CONFIG_MAP, Key(namespace, "keep"), {"metadata": {"finalizers": None}})
