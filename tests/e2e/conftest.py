"""Fixtures of the end-to-end tests: the cluster, the images, and an account of failures."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.config import load_config
from tests.e2e.cluster import Cluster
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


@pytest.fixture
async def cluster(
    kind_cluster: KindCluster, images: dict[str, str], request: pytest.FixtureRequest
) -> AsyncIterator[Cluster]:
    """Give the cluster; on failure tell what happened on it, and clean up in any case."""
    kubeconfig: Path = kind_cluster.kubeconfig
    config = await load_config(str(kubeconfig))
    async with Client(config, user_agent="slipway-e2e") as client:
        made = Cluster(
            kubeconfig, ensure_tool("helm"), find_kubectl(kind_cluster.cache), images, client
        )
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
