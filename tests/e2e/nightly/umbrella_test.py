"""The chart of all operators on nodes, under the rules of a company.

`helm/umbrella_test.py` tests what the API server admits; here the pods run. The images come from a
mirror, users and groups from the range of the namespace, and the namespace denies all traffic.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from helm.umbrella_test import (
    BINDING,
    MIRROR,
    POLICY,
    build_values,
    enforce,
    umbrella,
    wait_enforced,
)
from libs.common.kinds import NETWORK_POLICY, POD, Key, Manifest, build_object
from libs.common.testing.helm import find_charts
from tests.e2e.cluster import TAKE_OVER, Cluster, build_busybox, eventually
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

__all__ = ["umbrella"]

USER: Final = 1000680000
"""User and group that a platform assigns to the namespace."""
_VERSION: Final = "0.1.0"


@pytest.fixture(scope="module", autouse=True)
def _mirror(kind_cluster: KindCluster, images: Mapping[str, str]) -> None:
    """Give the nodes the images under the names that they have in the mirror."""
    progress = open_progress("e2e-umbrella", kind_cluster.cache)
    docker = ensure_docker(progress, kind_cluster.cache)
    names = {chart: f"{MIRROR}/slipway/{chart}:{_VERSION}" for chart in find_charts()}
    for chart, name in names.items():
        docker.read("tag", images[chart], name)
    kind_cluster.load(list(names.values()), progress)


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    """Create a namespace with the rules: restricted pods, the policy, and no traffic."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted", "rules": "company"}
    name = await cluster.make_namespace("platform", **restricted)
    deny = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    await cluster.client.create(
        NETWORK_POLICY, build_object(NETWORK_POLICY, "deny-all", name, spec=deny)
    )
    await enforce(cluster.client)
    yield name
    for kind in (BINDING, POLICY):
        await cluster.delete(kind, Key("", "company"))


async def test_all_operators_run_under_the_rules(
    cluster: Cluster, umbrella: Path, namespace: str
) -> None:
    metadata = {"labels": {"cost-center": "4711"}}
    spec = build_busybox("true")
    spec["containers"][0]["image"] = f"{MIRROR}/busybox"
    spec["securityContext"] = {}
    await wait_enforced(
        cluster.client,
        namespace,
        build_object(POD, "probe", namespace, metadata=metadata, spec=spec),
    )
    values = build_values()
    users = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    for chart in find_charts():
        values[chart] |= {"podSecurityContext": users, "image": {"pullPolicy": "Never"}}
    # Without a platform that assigns users, the values do.
    values["global"]["platformAssignsUserIds"] = False
    where = ("--namespace", namespace, "--timeout", "15m")
    command = ("install", "p", str(umbrella), *where, *TAKE_OVER, "--wait", "--values", "-")
    cluster.remember("p", namespace)
    await cluster.run(cluster.helm, *command, stdin=json.dumps(values))

    async def all_run() -> list[Manifest]:
        pods = await cluster.running_pods(namespace, "app.kubernetes.io/component=operator")
        ready = [all(one["ready"] for one in pod["status"]["containerStatuses"]) for pod in pods]
        assert ready == [True] * len(find_charts())
        return pods

    await eventually(all_run, "all operators are ready")
    for pod in await all_run():
        assert pod["spec"]["securityContext"]["runAsUser"] == USER
        assert all(one["image"].startswith(MIRROR) for one in pod["spec"]["containers"])
    # Test pods and clean-up Jobs need their traffic allowed as well.
    await cluster.run(cluster.helm, "test", "p", *where)
