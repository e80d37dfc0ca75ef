"""Fixtures of the end-to-end tests: the cluster, the images, and an account of failures."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.config import load_config
from tests.e2e.cluster import Cluster, Serve
from tools.cluster.binaries import ensure_tool, find_kubectl
from tools.cluster.kind_cluster import KindCluster, up
from tools.cluster.progress import open_progress
from tools.dev.images import load_operator

_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def kind_cluster() -> KindCluster:
    """Bring the kind cluster up; it stays for the next run."""
    return up()


class Images(dict[str, str]):
    """Images in the nodes by operator; each is built and loaded when it is first asked for."""

    def __init__(self, cluster: KindCluster) -> None:
        """Begin with none."""
        super().__init__()
        self._cluster = cluster
        self._progress = open_progress("e2e", cluster.cache)

    def __missing__(self, operator: str) -> str:
        """Build and load the image of an operator."""
        self[operator] = load_operator(operator, self._cluster, self._progress)
        return self[operator]


@pytest.fixture(scope="session")
def images(kind_cluster: KindCluster) -> Images:
    """Give the images of the operators."""
    return Images(kind_cluster)


@pytest.fixture(scope="module")
def serve(kind_cluster: KindCluster, images: Images) -> Iterator[Serve]:
    """Give a function that installs an operator for all namespaces until the module ends.

    One release serves all tests of the module, each in a namespace of its own. What a release does
    in its own namespace, with the rights that it has by default, is the matter of release_test.
    """
    served: list[tuple[str, str]] = []

    async def install(operator: str, values: Mapping[str, Any]) -> None:
        async with _connect(kind_cluster, images) as cluster:
            namespace = await cluster.make_namespace(f"serve-{operator}")
            served.append((operator, namespace))
            await cluster.install(operator, namespace, watch__clusterWide=True, **values)

    async def remove() -> None:
        async with _connect(kind_cluster, images) as cluster:
            await cluster.remove(served)

    yield lambda operator, **values: asyncio.run(install(operator, values))
    asyncio.run(remove())


@asynccontextmanager
async def _connect(kind_cluster: KindCluster, images: Images) -> AsyncIterator[Cluster]:
    config = await load_config(str(kind_cluster.kubeconfig))
    async with Client(config, user_agent="slipway-e2e") as client:
        kubectl = find_kubectl(kind_cluster.cache)
        yield Cluster(kind_cluster.kubeconfig, ensure_tool("helm"), kubectl, images, client)


@pytest.fixture
async def cluster(
    kind_cluster: KindCluster, images: Images, request: pytest.FixtureRequest
) -> AsyncIterator[Cluster]:
    """Provide the cluster, report what happened on it after a failure, and always clean up."""
    async with _connect(kind_cluster, images) as made:
        yield made
        if request.node.stash.get(_FAILED, False):
            sys.stderr.write(await made.explain(made.namespaces))
        await made.clean_up()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Remember whether a test failed, for the fixtures."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here as end-to-end."""
    for item in items:
        if "tests/e2e" in str(item.path):
            item.add_marker(pytest.mark.e2e)
