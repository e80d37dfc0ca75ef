"""Fixtures of these tests."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lab.kubevirt_sim.fixtures import kubevirt_sim
from lab.kubevirt_sim.registration import API_SERVICE, NAME, WEBHOOKS, build_registration
from lab.kubevirt_sim.server import ActionServer
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import Timing
from libs.common.client import Client
from libs.common.kinds import SERVICE, Key, Kind, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.certificates import create_certificates
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi

__all__ = ["clock", "history", "kubevirt_sim", "real_sim", "timed_sim"]


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
