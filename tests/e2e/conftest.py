"""Fixtures of the end-to-end tests: the cluster, the images, and an account of failures."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Generator, Iterator
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
from tools.dev.operators import list_operators

_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def kind_cluster() -> KindCluster:
    """Bring the kind cluster up; it stays for the next run."""
    return up()


@pytest.fixture(scope="session")
def images(kind_cluster: KindCluster) -> dict[str, str]:
    """Build the images of all operators and load them into the nodes."""
    progress = open_progress("e2e")
    return {name: load_operator(name, kind_cluster, progress) for name in list_operators()}


@pytest.fixture(scope="module")
def serve(kind_cluster: KindCluster, images: dict[str, str]) -> Iterator[Serve]:
    """Give a function that installs an operator for all namespaces until the module ends.

    One release serves all tests of the module, each in a namespace of its own. What a release does
    in its own namespace, with the rights that it has by default, is the matter of release_test.
    """
    served: list[tuple[str, str]] = []

    async def change(install: str = "") -> None:
        async with _connect(kind_cluster, images) as cluster:
            if install:
                namespace = await cluster.make_namespace(f"serve-{install}")
                served.append((install, namespace))
                await cluster.install(install, namespace, watch__clusterWide=True)
            else:
                await cluster.remove(served)

    yield lambda operator: asyncio.run(change(operator))
    asyncio.run(change())


@asynccontextmanager
async def _connect(kind_cluster: KindCluster, images: dict[str, str]) -> AsyncIterator[Cluster]:
    config = await load_config(str(kind_cluster.kubeconfig))
    async with Client(config, user_agent="slipway-e2e") as client:
        kubectl = find_kubectl(kind_cluster.cache)
        yield Cluster(kind_cluster.kubeconfig, ensure_tool("helm"), kubectl, images, client)


@pytest.fixture
async def cluster(
    kind_cluster: KindCluster, images: dict[str, str], request: pytest.FixtureRequest
) -> AsyncIterator[Cluster]:
    """Give the cluster; on failure tell what happened on it, and clean up in any case."""
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
