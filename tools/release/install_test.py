"""The manifest of a release on a real API server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.common import fastyaml
from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from tools.cluster.binaries import ensure_tool, find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.progress import open_progress
from tools.dev.operators import ROOT, list_operators
from tools.images import list_images
from tools.release.chart import Image, build_chart
from tools.release.install import NAMESPACE, render_install

DIGEST = "sha256:" + "5" * 64


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Run an API server of its own, and return the kubectl command for it."""
    try:
        plane = ControlPlane()
        binary = find_kubectl(Cache())
    except (AssetsMissing, ToolError) as err:
        pytest.skip(str(err))
    with plane:
        path = plane.write_kubeconfig(tmp_path_factory.mktemp("kube") / "kubeconfig")
        yield [str(binary), "--kubeconfig", str(path)]


def render(operator: str, folder: Path) -> str:
    """Render the manifest of an operator whose images were pushed."""
    images = {
        name: Image(f"registry.example.com/team/{name}", DIGEST) for name in list_images(operator)
    }
    chart = folder / operator
    build_chart(ROOT / "helm" / operator, chart, images[operator], images.get(f"{operator}-app"))
    return render_install(ensure_tool("helm", open_progress("test")), chart, operator, "0.1.0")


@pytest.mark.parametrize("operator", list_operators())
def test_manifest_separates_the_operator_from_its_users_and_runs_the_pushed_image(
    operator: str, tmp_path: Path
) -> None:
    manifests: list[dict[str, Any]] = list(fastyaml.load_all(render(operator, tmp_path)))
    metadata = [one["metadata"] for one in manifests]
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert manifests[0]["kind"] == "Namespace"
    assert {one["namespace"] for one in metadata if "namespace" in one} == {NAMESPACE, "default"}
    for one in manifests:
        # Users edit objects in `default`, and nobody does that in the namespace of the operator.
        if one["metadata"].get("namespace") == "default":
            assert one["kind"] in ("Role", "RoleBinding")
    assert container["image"] == f"registry.example.com/team/{operator}@{DIGEST}"
    assert not [one["name"] for one in metadata if "helm.sh/hook" in one.get("annotations", {})]
    assert not [one["name"] for one in metadata if "helm.sh/chart" in one.get("labels", {})]
    # A test Pod and a clean-up Job are for Helm alone.
    assert {one["kind"] for one in manifests}.isdisjoint({"Pod", "Job"})


def apply(command: list[str]) -> str:
    """Run a command until the API server has read what policies refer to; return the error."""
    while True:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if "not yet synced" not in run.stderr:
            return run.stderr if run.returncode else ""


@pytest.mark.apiserver
def test_server_takes_the_manifests_of_all_operators_twice(
    kubectl: list[str], tmp_path: Path
) -> None:
    for operator in list_operators():
        path = tmp_path / f"{operator}.yaml"
        path.write_text(render(operator, tmp_path / "charts"))
        command = [*kubectl, "apply", "--server-side", "--validate=strict", "--filename", str(path)]
        for _ in range(2):
            assert apply(command) == ""
    found = subprocess.run(
        [*kubectl, "get", "deployments", "--namespace", NAMESPACE, "--output", "name"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert found.split() == [f"deployment.apps/{operator}" for operator in list_operators()]
