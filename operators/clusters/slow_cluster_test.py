"""A cluster that is slow gets each change once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from libs.common.background import PATIENCE
from libs.common.client import Client
from libs.common.conditions import is_true
from libs.common.crd import build_crd
from libs.common.kinds import Key
from libs.common.runtime import Operator
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.controller import OPERATOR, build_controller
from operators.clusters.fake_workloads import FakeWorkloads, drive
from operators.clusters.nodes import ClusterStep
from operators.clusters.observed import Workload
from operators.clusters.samples import build_cluster
from operators.clusters.workload import Access

EDGE = Key("default", "edge")


@dataclass(slots=True)
class SlowWorkloads(FakeWorkloads):
    """A cluster that stops answering questions after a change, until it is let.

    Attributes:
        answering: Set while questions are answered.
        waiting: Whether a question has come after the change that made it slow.
        taken: Changes, as logs show them.
        slow: Whether a change makes it slow.
    """

    answering: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: bool = False
    taken: list[str] = field(default_factory=list)
    slow: bool = False

    async def look(self, access: Access) -> Workload:
        self.waiting = not self.answering.is_set()
        await self.answering.wait()
        return await FakeWorkloads.look(self, access)

    async def take(self, access: Access, step: ClusterStep, now: datetime) -> str:
        self.taken.append(str(step))
        if self.slow:
            self.answering.clear()
        return await FakeWorkloads.take(self, access, step, now)


async def test_change_is_sent_once_while_the_cluster_is_slow(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.register(build_crd(KubernetesCluster))
    for kind in (INSTANCE, OPERATION, IP_CLAIM, FIREWALL, NETWORK):
        fake_api.register(kind)
    cluster = build_cluster()
    for name in ("uid", "generation"):
        del cluster["metadata"][name]
    workloads = SlowWorkloads(fake_api, {}, {})
    workloads.answering.set()
    fakes = Operator(
        OPERATOR.id,
        (lambda settings: build_controller(settings, lambda _: workloads),),
        settings=OPERATOR.settings,
        metrics=OPERATOR.metrics,
        summary=OPERATOR.summary,
    )

    def is_ready() -> bool:
        drive(fake_api)
        return is_true(fake_api.get(KUBERNETES_CLUSTER, EDGE))

    async with OperatorHarness(fakes, fake_api.config, api_poll_seconds=1) as operator:
        fake_api.create(cluster)
        await operator.eventually(is_ready, "the cluster is ready")
        workloads.taken.clear()
        workloads.slow = True
        pool = {"name": "web", "count": 1, "size": "large", "labels": {"tier": "web"}}
        fake_api.patch(KUBERNETES_CLUSTER, EDGE, {"spec": {"pools": [pool]}})
        await operator.eventually(lambda: bool(workloads.taken), "the node gets its label")

        # The next reconcile, one per poll, sends a request and gets no response.
        await operator.eventually(lambda: workloads.waiting, "it asks")
        await asyncio.wait({asyncio.create_task(operator.converged())}, timeout=4 * PATIENCE)
        workloads.slow = False
        workloads.answering.set()
        await operator.eventually(is_ready, "the cluster is ready")

    assert workloads.taken == ["mark Node edge-web-0"]
