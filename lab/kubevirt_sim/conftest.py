"""Fixtures of these tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lab.kubevirt_sim.fixtures import kubevirt_sim
from lab.kubevirt_sim.parity.site import Images, Site, open_real, open_simulated
from lab.kubevirt_sim.registration import API_SERVICE, NAME, WEBHOOKS, build_registration
from lab.kubevirt_sim.server import ActionServer
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import Timing
from libs.common.client import Client
from libs.common.config import load_config
from libs.common.kinds import SERVICE, STORAGE_CLASS, Key, Kind, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.certificates import create_certificates
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi

__all__ = [
    "clock",
    "history",
    "kubevirt_sim",
    "real_sim",
    "site",
    "site_with_webhooks",
    "timed_sim",
]

_KUBECONFIG: Final = os.environ.get("SLIPWAY_KUBEVIRT_KUBECONFIG", "")
_IMAGES: Final = os.environ.get(
    "SLIPWAY_KUBEVIRT_IMAGES", "http://guest-image.slipway-guest.svc"
).rstrip("/")
_SIMULATOR, _REAL = "simulator", "real"
_RUN: Final = uuid.uuid4().hex[:5]
_numbers = itertools.count()


class History:
    """All versions of all objects.

    Args:
        api: API server that is listened to.
    """

    def __init__(self, api: FakeApi) -> None:
        self._changes: list[tuple[tuple[str, str], Key, str, Manifest]] = []
        api.store.listeners.append(self._notice)

    def _notice(self, change: Any) -> None:
        self._changes.append((change.table, change.key, change.type, change.record.obj))

    def versions(self, kind: Kind, name: str = "") -> list[Manifest]:
        """Return the versions of the objects of a kind, those that were deleted left out."""
        return [
            obj
            for table, key, type_, obj in self._changes
            if table == (kind.group, kind.plural) and type_ != "DELETED" and name in ("", key.name)
        ]

    def seen(self, kind: Kind, name: str, read: Callable[[Manifest], Any]) -> list[Any]:
        """Return what was read of each version of an object, repetitions left out."""
        values: list[Any] = []
        for obj in self.versions(kind, name):
            value = read(obj)
            if not values or values[-1] != value:
                values.append(value)
        return values


@pytest.fixture
def history(fake_api: FakeApi) -> History:
    return History(fake_api)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def timed_sim(fake_api: FakeApi, clock: FakeClock) -> AsyncIterator[KubeVirtSim]:
    """Simulate with KubeVirt's own delays, on a clock that the test moves."""
    async with KubeVirtSim(fake_api.config, timing=Timing(), clock=clock) as sim:
        yield sim


@pytest.fixture
async def real_sim(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str, tmp_path: Path
) -> AsyncIterator[KubeVirtSim]:
    """Simulate together with a real API server, which sends actions and reviews."""
    create_certificates(tmp_path, (f"{NAME}.{kube_namespace}.svc",))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    async with (
        KubeVirtSim(kube_apiserver.config) as sim,
        ActionServer(sim.client, sim.clock, "127.0.0.1", 0, tls) as server,
    ):
        service = build_object(
            SERVICE,
            NAME,
            kube_namespace,
            spec={"type": "ExternalName", "externalName": "localhost"},
        )
        await kube_client.create(SERVICE, service)
        authority = (tmp_path / "ca.crt").read_bytes()
        kinds = (API_SERVICE, WEBHOOKS)
        made = build_registration(kube_namespace, server.port, authority)
        for kind, manifest in zip(kinds, made, strict=True):
            await kube_client.apply(kind, manifest, field_manager="test")
        try:
            yield sim
        finally:
            for kind, manifest in zip(kinds, made, strict=True):
                key = Key("", manifest["metadata"]["name"])
                uid = (await kube_client.get(kind, key))["metadata"]["uid"]
                await kube_client.delete(kind, key, uid=uid)


@contextlib.asynccontextmanager
async def _open_real() -> AsyncIterator[Site]:
    if not _KUBECONFIG:
        pytest.skip("SLIPWAY_KUBEVIRT_KUBECONFIG names no cluster with the real KubeVirt")
    images = Images(*(f"{_IMAGES}/{each}.img" for each in ("guest", "empty", "missing")))
    namespace = f"parity-{_RUN}-{next(_numbers)}"
    async with open_real(await load_config(_KUBECONFIG), namespace, images) as real:
        assert real.real
        yield real


@pytest.fixture(params=[_SIMULATOR, _REAL])
async def site(request: pytest.FixtureRequest, fake_api: FakeApi) -> AsyncIterator[Site]:
    """Give a cluster with KubeVirt and CDI: simulated, and then the real one, if it is there."""
    if request.param == _REAL:
        async with _open_real() as real:
            yield real
        return
    async with open_simulated(fake_api) as simulated:
        yield simulated
    assert fake_api.objects(STORAGE_CLASS), "the test ran on the simulator"


@pytest.fixture(params=[_SIMULATOR, _REAL])
async def site_with_webhooks(
    request: pytest.FixtureRequest,
    real_sim: KubeVirtSim,
    kube_apiserver: ControlPlane,
    kube_namespace: str,
) -> AsyncIterator[Site]:
    """Give such a cluster whose API server calls webhooks, which the fake one does not."""
    if request.param == _REAL:
        async with _open_real() as real:
            yield real
        return
    yield Site(real_sim.client, kube_apiserver.config, kube_namespace)
