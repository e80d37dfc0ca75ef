"""Users of the operators that own pods, claims of pods, and agents in JVMs."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import (
    CONFIG_MAP,
    ENDPOINT_SLICE,
    POD,
    PVC,
    SERVICE,
    Kind,
    Manifest,
    build_object,
)
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.podset.controller import PODSET
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.e2e.cluster import build_busybox, eventually
from tests.e2e.jmx_pods import CONFIG, build_pod, load_sample
from tests.e2e.nightly.upgrade.users import FIRST, Users, build_client

_CREATED_BY: Final = {"created-by": "user"}


class PodSetUsers(Users):
    """A set of two pods."""

    own_kinds = (PODSET,)
    kinds = (POD,)

    def build(self, name: str, replicas: int = 1) -> tuple[Kind, Manifest]:
        spec = {"replicas": replicas, "template": {"spec": build_busybox("sleep", "infinity")}}
        return PODSET, build_object(PODSET, name, spec=spec)

    async def create(self) -> None:
        await self.place.create(*self.build(FIRST, replicas=2))

    async def wait_ready(self) -> None:
        await self.place.cluster.wait_ready(PODSET, self.place.key(FIRST))


class VolumeUsers(Users):
    """A volume, and a pod that mounts its claim."""

    own_kinds = (DEMO_VOLUME,)
    kinds = (PVC, POD)

    def build(self, name: str) -> tuple[Kind, Manifest]:
        return DEMO_VOLUME, build_object(DEMO_VOLUME, name, spec={"name": name, "size": 1})

    async def create(self) -> None:
        await self.place.create(*self.build(FIRST))
        spec = build_busybox("sleep", "infinity", mounts={FIRST: "/data"})
        writer = build_object(POD, "writer", metadata={"labels": _CREATED_BY}, spec=spec)
        await self.place.create(POD, writer)

    async def wait_ready(self) -> None:
        await self.place.cluster.wait_ready(DEMO_VOLUME, self.place.key(FIRST))
        await self.place.wait_running("writer")

    async def close(self) -> None:
        # A claim that a pod mounts is not deleted.
        await self.place.delete(POD, "writer")
        await super().close()


class JmxUsers(Users):
    """A JVM that has metrics, and a Prometheus that scrapes it every second."""

    own_kinds = (PROMETHEUS_JMX_EXPORTER,)
    kinds = (POD, SERVICE, ENDPOINT_SLICE)

    def build(self, name: str) -> tuple[Kind, Manifest]:
        spec = {
            "labelSelector": {"app": name},
            "config": {"configMapName": "jmx-config"},
            "port": 9400,
            "minReadySeconds": 6,
            "service": {},
        }
        return PROMETHEUS_JMX_EXPORTER, build_object(PROMETHEUS_JMX_EXPORTER, name, spec=spec)

    async def create(self) -> None:
        load_sample(self.place.kind_cluster)
        data = {"config.yaml": CONFIG}
        await self.place.create(CONFIG_MAP, build_object(CONFIG_MAP, "jmx-config", data=data))
        pod = build_pod(self.place.namespace)
        pod["metadata"]["labels"] = {"app": FIRST}
        await self.place.create(POD, pod)
        await self.place.create(*self.build(FIRST))
        await self.wait_ready()
        address = (await self.place.wait_running("shop"))["status"]["podIP"]
        client = build_client("prometheus", address, 9400, "/metrics", "shop_orders")
        await self.place.create(POD, client)
        await self.place.wait_running("prometheus")

    async def wait_ready(self) -> None:
        key = self.place.key(FIRST)

        async def is_published() -> bool:
            held = await self.place.cluster.client.get(PROMETHEUS_JMX_EXPORTER, key)
            endpoints = (held.get("status") or {}).get("metricsEndpoints") or ()
            return [one["state"] for one in endpoints] == ["Serving"]

        await eventually(is_published, "the endpoint is shown")
        await self.place.cluster.wait_ready(PROMETHEUS_JMX_EXPORTER, key)

    async def check(self) -> None:
        await self.place.check_client("prometheus")
