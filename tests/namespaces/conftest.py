"""Fixtures: a control plane for each module, and an administrator in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from libs.common.client import Client
from libs.common.testing.apiserver import ControlPlane
from tests.namespaces.plane import OPERATORS, install_crds, run_plane


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Run a control plane that deletes namespaces."""
    with run_plane() as running:
        yield running


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Client]:
    """Connect with all permissions, and install the CRDs of all operators."""
    async with Client(plane.config, max_in_flight=64) as client:
        await install_crds(client, OPERATORS)
        yield client
