"""Brings helm and promtool to the tests of the charts."""

import os
from pathlib import Path

import pytest

from libs.common.testing.helm import HELM_VARIABLE, HelmMissing, find_helm
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError
from tools.cluster.prometheus import ensure_prometheus

pytest.register_assert_rewrite("tests.charts")


@pytest.fixture(scope="session", autouse=True)
def helm_binary() -> None:
    """Use the pinned helm, built once into the user's cache, else any that is on PATH."""
    if os.environ.get(HELM_VARIABLE):
        return
    try:
        os.environ[HELM_VARIABLE] = str(ensure_tool("helm"))
    except ToolError as err:
        try:
            find_helm()
        except HelmMissing:
            pytest.skip(f"helm cannot be had: {err}")


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Return the promtool of Debian, or skip the test if it is not available."""
    try:
        return ensure_prometheus() / "promtool"
    except (OSError, ToolError) as err:
        pytest.skip(f"promtool is not available: {err}")
