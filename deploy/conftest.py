"""Brings helm and kustomize to the tests of the manifests."""

import os
from pathlib import Path

import pytest

from libs.common.testing.helm import HELM_VARIABLE
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """Return the pinned kustomize, built once into the user's cache."""
    return _ensure("kustomize")


@pytest.fixture(scope="session", autouse=True)
def helm_binary() -> None:
    """Let render_chart find the pinned helm."""
    if not os.environ.get(HELM_VARIABLE):
        os.environ[HELM_VARIABLE] = str(_ensure("helm"))


def _ensure(name: str) -> Path:
    try:
        return ensure_tool(name)
    except ToolError as err:
        pytest.skip(f"{name} cannot be had: {err}")
