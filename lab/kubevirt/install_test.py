"""KubeVirt and CDI: their source, the changes of their manifests, and the state of a cluster."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.kubevirt.manifests import (
    ManifestOptions,
    build_installation,
    has_image_volumes,
    list_missing_kinds,
)
from lab.kubevirt.source import fetch_published, find_in_folder
from lab.kubevirt.state import ComponentState, State, build_part, is_emulated
from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress

TEXT = """\
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt}
spec: {configuration: {developerConfiguration: {disabledFeatureGates: [Template]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: virt-operator}
spec: {replicas: 2, paused: false}
"""
OLD, NEW = "containerd://1.6.20~ds1", "containerd://2.1.4"


def fit(emulate: bool = True, runtime: str = NEW, nodes: int = 1) -> dict[str, Any]:
    (kubevirt,) = build_installation([TEXT], ManifestOptions(emulate, runtime, nodes)).resources
    return dict(kubevirt["spec"])


@pytest.mark.parametrize("emulate", [True, False])
def test_emulation_is_as_the_machine_needs_it(emulate: bool) -> None:
    spec = fit(emulate=emulate)

    assert spec["configuration"]["developerConfiguration"]["useEmulation"] is emulate
    assert is_emulated({"spec": spec}) is emulate


def test_image_volumes_are_off_where_the_runtime_has_none() -> None:
    gates = fit(runtime=OLD)["configuration"]["developerConfiguration"]["disabledFeatureGates"]

    assert gates == ["ImageVolume", "Template"]
    assert fit()["configuration"]["developerConfiguration"]["disabledFeatureGates"] == ["Template"]


@pytest.mark.parametrize(
    ("runtime", "has"),
    [(OLD, False), ("containerd://2.0.1", False), (NEW, True), ("cri-o://1.34.0", True)],
)
def test_runtime_with_image_volumes(runtime: str, has: bool) -> None:
    assert has_image_volumes(runtime) is has


def test_single_node_gets_one_replica_of_everything() -> None:
    installation = build_installation([TEXT], ManifestOptions(True, NEW, 1))

    (operator,) = installation.operators
    assert operator["spec"] == {"replicas": 1, "paused": False}
    assert fit(nodes=1)["infra"] == {"replicas": 1}
    assert "infra" not in fit(nodes=2)


def test_missing_resource_is_named() -> None:
    installation = build_installation([TEXT], ManifestOptions(True, NEW, 1))

    assert list_missing_kinds(installation) == ["CDI"]


def test_folder_has_manifests_and_archives(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml", "images.tar", "notes.txt"):
        (tmp_path / name).write_text(name)

    source = find_in_folder(tmp_path)

    assert source.read_manifests() == ["a.yaml", "b.yaml"]
    assert [path.name for path in source.archives] == ["images.tar"]


def test_folder_without_images_is_refused_with_what_helps(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")

    with pytest.raises(ToolError, match=r"no \*\.tar.*kubevirt-sim --deploy"):
        find_in_folder(tmp_path)


def test_without_a_registry_one_line_offers_folder_and_simulator(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "log", Console(file=io.StringIO()))

    with pytest.raises(ToolError) as refused:
        fetch_published(progress, Cache(tmp_path), pulls=False)

    (line,) = str(refused.value).splitlines()
    assert "--kubevirt-from" in line and "kubevirt-sim --deploy" in line


def deployed(**status: object) -> dict[str, Any]:
    conditions = [{"type": "Available", "status": "True"}]
    return {
        "metadata": {"generation": 2},
        "status": {"phase": "Deployed", "conditions": conditions, "v": "v1", **status},
    }


def test_part_is_available_once_its_operator_has_acted_on_the_newest_spec() -> None:
    assert build_part("CDI", "v", [deployed()]) == ComponentState("CDI", "v1", "Deployed", True)
    assert not build_part("CDI", "v", [deployed(observedGeneration=1)]).available
    assert not build_part("CDI", "v", [deployed(phase="Deploying")]).available
    assert build_part("CDI", "v", []) == ComponentState("CDI", "", "", False)


def test_state_says_on_one_line_what_is_there() -> None:
    parts = (
        ComponentState("KubeVirt", "v1.9.0", "Deployed", True),
        ComponentState("CDI", "", "", False),
    )

    state = State(parts, emulated=True)

    assert state.describe() == "KubeVirt v1.9.0 with CDI (not installed), software emulation"
    assert (state.installed, state.ready) == (True, False)
