"""KubernetesCluster, fuzzed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lab.fuzz.subject import FuzzSubject
from libs.common.kinds import SERVICE, Manifest
from libs.common.plan import Apply, Create
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.compute import InstanceView
from libs.contracts.ip_claims import IpClaimView
from operators.clusters.addons import AddonStep
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.conformance_test import TestClustersConformance, play
from operators.clusters.fake_workloads import FakeWorkloads, join
from operators.clusters.naming import endpoint_name, node_name
from operators.clusters.nodes import ClusterStep
from operators.clusters.observed import Observed, Workload
from operators.clusters.reconcile import plan_cluster
from operators.clusters.samples import (
    ADDRESS,
    NOW,
    SameIssuer,
    authorities,
    build_cluster,
    build_instance,
    view_network,
)
from operators.clusters.workload import Access

_SOON: Final = 1.0
"""Seconds; the next step of a deletion comes sooner, a node is looked at again later."""


def render(manifest: Manifest) -> list[Manifest]:
    """Make all that a cluster has whose first node has joined: access, credentials, machines."""
    cluster = KubernetesCluster.parse(manifest)
    name = cluster.metadata.name
    first = node_name(name, CONTROL_PLANE, 0)
    claim = {"metadata": {"name": endpoint_name(name)}, "status": {"address": ADDRESS}}
    observed = Observed(
        authorities=authorities(),
        claim=IpClaimView.parse(claim),
        instances={first: InstanceView.parse(build_instance(first, CONTROL_PLANE))},
        workload=Workload(True, True, nodes={first: join(first, "")}),
        network=view_network(),
    )
    plan = plan_cluster(cluster, observed, SameIssuer(), NOW)
    steps = [action.step for action in plan.actions]
    made = [step.manifest for step in steps if isinstance(step, Apply | Create)]
    # The kind that a bare API server serves and that covers most comes first: it is offered to the
    # server.
    return sorted(made, key=lambda child: child["kind"] != SERVICE.kind)


class FakeWorkloadFleet:
    """Fake APIs of several clusters, each with its own Instances.

    Args:
        api: Has the Instances.
    """

    def __init__(self, api: FakeApi) -> None:
        """Begin without clusters."""
        self._api = api
        self._fakes: dict[str, FakeWorkloads] = {}

    async def look(self, access: Access) -> Workload:
        """Report the nodes of a cluster."""
        return await self._of(access).look(access)

    async def take(self, access: Access, step: ClusterStep, now: datetime) -> str:
        """Do what is asked in a cluster."""
        return await self._of(access).take(access, step, now)

    def forget(self, host: str) -> None:
        """Forget nothing: clusters of one name are told apart by their authorities."""

    async def apply(self, access: Access, step: AddonStep) -> str:
        """Apply an addon to a cluster."""
        return await self._of(access).apply(access, step)

    def _of(self, access: Access) -> FakeWorkloads:
        # A cluster that is made again under its name is another: it has another authority.
        return self._fakes.setdefault(access.ca, FakeWorkloads(self._api, {}, {}))


@contextmanager
def fake_clusters(api: FakeApi) -> Iterator[Mapping[str, Any]]:
    """Let the clusters that are made have an API."""
    play(FakeWorkloadFleet(api))
    yield {}


SUBJECTS: Final = (
    FuzzSubject(
        "clusters",
        KubernetesCluster,
        build_cluster()["spec"],
        render,
        live=replace(TestClustersConformance.subject, objects=tuple, horizon=_SOON),
        run_external=fake_clusters,
        name="edge",
    ),
)
