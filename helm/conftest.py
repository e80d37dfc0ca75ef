"""Brings helm to the tests of the charts."""

import os

import pytest

from libs.common.testing.helm import HELM_VARIABLE, HelmMissing, find_helm
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError

pytest.register_assert_rewrite("helm.suite")


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
