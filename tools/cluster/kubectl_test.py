"""Readiness of nodes, pods and Deployments, and kubectl's command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.cluster.kubectl import Kubectl, is_ready, list_unready


def build(kind: str, condition: str = "", status: str = "True", phase: str = "") -> dict[str, Any]:
    conditions = [{"type": condition, "status": status}] if condition else []
    return {
        "kind": kind,
        "metadata": {"name": f"{kind}-x".lower()},
        "status": {"conditions": conditions, "phase": phase},
    }


@pytest.mark.parametrize(
    ("item", "ready"),
    [
        (build("Node", "Ready"), True),
        (build("Node", "Ready", "Unknown"), False),
        (build("Pod", "Ready", "False"), False),
        (build("Pod", "Ready", "False", phase="Succeeded"), True),
        (build("Pod"), False),
        (build("Deployment", "Available"), True),
        (build("Deployment", "Progressing"), False),
    ],
)
def test_readiness_is_that_of_the_kind(item: dict[str, Any], ready: bool) -> None:
    assert is_ready(item) is ready


def test_unready_objects_are_named() -> None:
    assert list_unready([build("Node", "Ready"), build("Pod")]) == ["pod-x"]


def test_command_names_the_cluster() -> None:
    kubectl = Kubectl(Path("/k"), Path("/config"), "there")

    assert kubectl.command("get", "pods") == [
        "/k", "--kubeconfig", "/config", "--context", "there", "get", "pods",
    ]  # fmt: skip  # One command, one line.
