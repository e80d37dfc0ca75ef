"""All operators are restored from a backup: without statuses, UIDs and owners, in several orders.

Everything is exported from a system that runs, lost, and created again as backup tools and GitOps
do. Then each operator must reach the same state, run nothing twice, and be silent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pytest

from libs.common.kinds import (
    CONFIG_MAP,
    POD,
    PVC,
    SECRET,
    SERVICE,
    Kind,
    Manifest,
    is_deleting,
    key_of,
)
from libs.common.ownership import controller_uid
from libs.common.reading import text_at
from libs.common.testing.differences import render_differences
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.outcome import writes_of_the_operator
from libs.common.testing.trial import Trial, scope_of
from operators.clusters import conformance_test as clusters
from operators.ipam import conformance_test as ipam
from operators.jmxexporter import conformance_test as jmxexporter
from operators.network import conformance_test as network
from operators.podset import conformance_test as podset
from operators.pulsarconsumer import conformance_test as pulsarconsumer
from operators.volumes import conformance_test as volumes

TRIALS: Final[Sequence[type[Trial]]] = (
    podset.TestPodSetConformance,
    volumes.TestGrowingVolumeConformance,
    pulsarconsumer.TestConsumerWithoutBrokerConformance,
    jmxexporter.TestJmxExporterConformance,
    ipam.TestBoundClaimConformance,
    network.TestNetworkConformance,
    network.TestFirewallConformance,
    clusters.TestClustersConformance,
)
"""One workload of each operator. Machines have `operators/compute/restore_test.py`."""
DATA: Final = (SECRET, CONFIG_MAP, PVC)
"""Kinds of objects that no operator can make again."""

EXPECTED: Final = (
    "appliedHash",  # It covers the UIDs of Instances.
    "revision",  # Revisions are counted from 1 if none was restored.
    "ephemeralContainers",  # A restored pod has those of its own containers.
    "ephemeralContainerStatuses",
)
"""Fields that differ after a restore."""


def list_kinds(trial: Trial) -> list[Kind]:
    """List what a backup contains: first what users create, then what is made for it."""
    subject = trial.subject
    custom = [
        Kind(
            crd["spec"]["group"],
            crd["spec"]["versions"][0]["name"],
            crd["spec"]["names"]["kind"],
            crd["spec"]["names"]["plural"],
            namespaced=crd["spec"]["scope"] == "Namespaced",
        )
        for crd in subject.crds
    ]
    return list(dict.fromkeys([*custom, *DATA, *subject.children, SERVICE]))


def clean(held: Manifest) -> Manifest:
    """Return what a backup tool restores of an object."""
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {name: value for name, value in held["metadata"].items() if name in kept}
    restored = {name: value for name, value in held.items() if name != "status"}
    if held["kind"] in (POD.kind, SERVICE.kind):
        # The API server assigns addresses, and accepts no new pod with ephemeral containers.
        given = {"ephemeralContainers"}
        if text_at(held, "spec", "clusterIP") != "None":
            given |= {"clusterIP", "clusterIPs"}
        spec = {name: value for name, value in held["spec"].items() if name not in given}
        restored["spec"] = spec
    return {**restored, "metadata": metadata}


def run_pod(api: FakeApi, former: Manifest) -> None:
    """Run a restored pod, as a kubelet does: without the ephemeral containers that it had."""
    status = {
        name: value for name, value in former["status"].items() if not name.startswith("ephemeral")
    }
    api.patch_status(POD, key_of(former), status)


def take_state(trial: Trial, api: FakeApi, kinds: Sequence[Kind]) -> dict[str, Manifest]:
    """Return the state of a workload, with names in place of UIDs, by which lists are sorted."""
    names = {
        each["metadata"]["uid"]: f"{kind.kind} {key_of(each)}"
        for kind in kinds
        for each in list_objects(api, kind)
    }

    def name_all(part: Manifest) -> Manifest:
        if isinstance(values := part.get("values"), list):
            part["values"] = sorted(names.get(value, value) for value in values)
        for each in EXPECTED:
            part.pop(each, None)
        return part

    text = json.dumps(trial.outcome(api, 0).state)
    state: dict[str, Manifest] = json.loads(text, object_hook=name_all)
    return state


@pytest.mark.parametrize("runs", [False, True], ids=["stopped", "running"])
@pytest.mark.parametrize("order", ["children last", "children first", "no children"])
@pytest.mark.parametrize("trial", TRIALS, ids=lambda each: each.__name__[4:-11])
async def test_restored_objects_are_the_same_and_nothing_runs_twice(
    trial: type[Trial], order: str, runs: bool
) -> None:
    tried = trial()
    kinds = list_kinds(tried)
    async with tried.api() as api, tried.harness(api) as harness:
        await tried.workload(api, harness)
        before = take_state(tried, api, kinds)
        backup = {kind: list_objects(api, kind) for kind in kinds}
        if not runs:
            await harness.stop()
        for kind in kinds:
            for each in api.objects(kind, scope_of(kind)):
                api.vanish(kind, key_of(each))
        ordered = kinds if order != "children first" else kinds[::-1]
        # While operators run, data come first, as Velero restores them.
        for kind in sorted(ordered, key=lambda kind: runs and kind not in DATA):
            for held in backup[kind]:
                made = kind in tried.subject.children and kind not in DATA and controller_uid(held)
                if api.find(kind, key_of(held)) is None and not (made and order == "no children"):
                    api.create(clean(held))
                    if kind == POD:
                        run_pod(api, held)
            if runs:
                await tried.settle(api, harness)
        if not runs:
            await harness.restart()
        await tried.settle(api, harness)

        after = take_state(tried, api, kinds)
        assert after == before, render_differences(before, after)
        uids = {each["metadata"]["uid"] for kind in kinds for each in list_objects(api, kind)}
        owners = {controller_uid(each) for kind in kinds for each in list_objects(api, kind)}
        assert owners - {""} <= uids, "no child has an owner that no longer exists"
        mark = api.mark()
        await harness.restart()
        await tried.settle(api, harness)
        assert writes_of_the_operator(api, mark) == []


def list_objects(api: FakeApi, kind: Kind) -> list[Manifest]:
    return [each for each in api.objects(kind, scope_of(kind)) if not is_deleting(each)]
