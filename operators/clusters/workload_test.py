"""Steps in the cluster that was made, over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

import pytest

from libs.common.kinds import CONFIG_MAP, NODE, POD, Key, build_object, key_of, uid_of
from libs.common.reading import text_at, text_map_at
from libs.common.testing.fakeapi import FakeApi
from operators.clusters.certificates import Pair
from operators.clusters.node_metadata import NodeUpdate
from operators.clusters.nodes import NodeStep, NodeStepKind
from operators.clusters.version_writer import DAEMON_SET
from operators.clusters.workload import Access, KubernetesWorkloads

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def add_pod(api: FakeApi, name: str, node: str) -> None:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
    api.create(build_object(POD, name, "default", spec=spec))


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (500, "", "Internal error occurred"),
        (403, 'admission webhook "a.b" denied the request: no', "denied the request: no"),
        (429, "", ""),
        (429, 'admission webhook "a.b" denied the request: it is migrated first', ""),
    ],
    ids=["two budgets", "webhook", "budget", "webhook that wants time"],
)
async def test_pod_that_cannot_be_evicted_does_not_keep_the_others(
    fake_api: FakeApi, status: int, message: str, words: str
) -> None:
    """With two PodDisruptionBudgets, the API server answers 500; 429 means later."""
    node = fake_api.create(build_object(NODE, "edge-web-0"))
    for name in ("a", "b", "c"):
        add_pod(fake_api, name, "edge-web-0")
    add_pod(fake_api, "elsewhere", "edge-web-1")
    fake_api.fail(
        "create", POD, status=status, message=message, name="a", subresource="eviction", times=None
    )
    workloads = KubernetesWorkloads(30)
    access = Access(fake_api.url, "", "", Pair("", ""))

    step = NodeStep(NodeStepKind.EVICT, "edge-web-0", uid_of(node))
    problem = await workloads.take(access, step, NOW)

    left = [
        key_of(pod) for pod in fake_api.objects(POD) if "deletionTimestamp" not in pod["metadata"]
    ]
    assert left == [Key("default", "a"), Key("default", "elsewhere")]
    assert words in problem if words else not problem


async def test_change_of_a_node_that_changed_in_between_is_not_taken_for_done(
    fake_api: FakeApi,
) -> None:
    """The taints of somebody else, which the change would replace, may have come since."""
    node = fake_api.create(build_object(NODE, "edge-web-0"))
    fake_api.patch(NODE, key_of(node), {"metadata": {"labels": {"rack": "7"}}})
    workloads = KubernetesWorkloads(30)
    access = Access(fake_api.url, "", "", Pair("", ""))

    marks = NodeUpdate({"tier": "web"}, (), "")
    version = text_at(node, "metadata", "resourceVersion")
    step = NodeStep(NodeStepKind.MARK, "edge-web-0", uid_of(node), marks, version)
    problem = await workloads.take(access, step, NOW)

    held = fake_api.get(NODE, key_of(node))
    assert "mark Node edge-web-0: " in problem
    assert text_map_at(held, "metadata", "labels").keys() & {"rack", "tier"} == {"rack"}


async def test_node_that_is_gone_needs_no_removal(fake_api: FakeApi) -> None:
    workloads = KubernetesWorkloads(30)
    access = Access(fake_api.url, "", "", Pair("", ""))

    step = NodeStep(NodeStepKind.REMOVE, "edge-web-0", "u1")
    assert not await workloads.take(access, step, NOW)


async def test_failed_query_leaves_no_request_behind(fake_api: FakeApi) -> None:
    """Requests that outlive the client would open connections that nobody closes."""
    fake_api.create(build_object(NODE, "edge-web-0"))
    fake_api.hang("get", CONFIG_MAP, times=None)
    fake_api.fail("get", DAEMON_SET, status=403)
    workloads = KubernetesWorkloads(30)

    found = await workloads.look(Access(fake_api.url, "", "", Pair("", "")))

    assert "403" in found.message
    assert not {"read_record", "read_version"} & {
        getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()
    }


async def test_cluster_that_sends_too_much_counts_as_unreachable(fake_api: FakeApi) -> None:
    """Whoever is root on its control plane chooses what its API server returns."""
    labels = {f"l{number}": "" for number in range(5_000)}
    for number in range(5):
        node = build_object(NODE, f"edge-web-{number}")
        node["metadata"]["labels"] = labels
        fake_api.create(node)

    found = await KubernetesWorkloads(30).look(Access(fake_api.url, "", "", Pair("", "")))

    assert not found.reachable
    assert "more than 20000 nodes, labels and taints" in found.message
