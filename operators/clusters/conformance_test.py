"""The clusters operator withstands what every operator must."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from libs.common.crd import build_crd
from libs.common.kinds import ENDPOINT_SLICE, SECRET, SERVICE, Manifest
from libs.common.runtime import Controller, Operator
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.outcome import Run
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.controller import OPERATOR, build_controller
from operators.clusters.fake_workloads import FakeWorkloads, drive
from operators.clusters.samples import build_cluster
from operators.clusters.settings import Settings
from operators.clusters.workload import Workloads

# Runs go side by side, each in a task of its own with its own fake API and pretended cluster.
_playing: ContextVar[Workloads] = ContextVar("playing")


def play(workloads: Workloads) -> None:
    """Let controllers that are built from now on reach these clusters."""
    _playing.set(workloads)


def build_controller_with_fakes(settings: Settings) -> Controller:
    """Build the controller of a cluster with fakes."""
    return build_controller(settings, lambda _: _playing.get())


FAKES = Operator(
    OPERATOR.id,
    (build_controller_with_fakes,),
    settings=OPERATOR.settings,
    metrics=OPERATOR.metrics,
    summary=OPERATOR.summary,
)


def build_objects() -> list[Manifest]:
    """Build a cluster, as a user applies it."""
    cluster = build_cluster()
    for name in ("uid", "generation"):
        del cluster["metadata"][name]
    return [cluster]


def build_change() -> Mapping[str, Any]:
    """Make the pool larger."""
    return {"spec": {"pools": [{"name": "web", "count": 2, "size": "large"}]}}


class TestClustersConformance(OperatorConformance):
    subject = Subject(
        FAKES,
        crds=(
            build_crd(KubernetesCluster),
            *(
                build_loose_crd(kind, None, ("status",))
                for kind in (INSTANCE, OPERATION, IP_CLAIM, FIREWALL, NETWORK)
            ),
        ),
        objects=build_objects,
        change=build_change(),
        children=(INSTANCE, IP_CLAIM, FIREWALL, SERVICE, ENDPOINT_SLICE, SECRET),
        # The controllers of FAKES can only be built while a test runs.
        rules=OPERATOR.rules(),
        drive=drive,
        settings={"api_poll_seconds": 3600},
        # The groups of what a cluster is made of end one after the other.
        horizon=0.1,
    )

    async def test_child_deleted_in_a_gap_comes_back(self) -> None:
        """Authorities and the only control plane that are gone would come back as others."""
        pytest.skip("controller_test.py shows which children come back, and which must not")

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the outcome without keys, certificates and IPs, which are others each time."""
        run = super().outcome(api, mark)
        return replace(run, state={name: _blur(held) for name, held in run.state.items()})

    @asynccontextmanager
    async def api(self) -> AsyncIterator[FakeApi]:
        """Run the fake API of a test, and a fake cluster."""
        async with super().api() as api:
            play(FakeWorkloads(api, {}, {}))
            yield api


def _blur(held: Manifest) -> Manifest:
    if held["kind"] == SECRET.kind:
        return {**held, "data": sorted(held["data"])}
    if held["kind"] == SERVICE.kind:
        return {**held, "spec": held["spec"]["ports"]}
    return held
