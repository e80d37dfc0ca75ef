"""Tests of the kustomize bases: they are what helm makes of the charts, and up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.errors import GenerateError
from libs.common.testing.helm import HelmMissing, find_helm
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError
from tools.generate.bases import render_bases
from tools.generate.drift import OWNED_BASES, find_drift, render_report
from tools.generate.sources import ROOT, find_operators


@pytest.fixture(scope="module")
def helm() -> Path:
    """Find helm, or build it once into the user's cache."""
    try:
        return find_helm()
    except HelmMissing:
        try:
            return ensure_tool("helm")
        except ToolError as err:
            pytest.skip(f"helm cannot be had: {err}")


@pytest.fixture(scope="module")
def bases(helm: Path) -> dict[Path, str]:
    """Render the bases of all operators."""
    return render_bases(helm, ROOT)


def test_bases_are_up_to_date(bases: dict[Path, str]) -> None:
    drifts = find_drift(ROOT, bases, OWNED_BASES)

    assert not drifts, render_report(drifts)


@pytest.mark.parametrize("operator_id", find_operators(ROOT))
def test_base_has_everything_that_an_operator_needs(
    bases: dict[Path, str], operator_id: str
) -> None:
    manifests = _load(bases, Path("deploy/kustomize/base", operator_id))

    kinds = {manifest["kind"] for manifest in manifests}
    assert kinds >= {"Deployment", "Role", "ServiceAccount", "Service"}
    assert "CustomResourceDefinition" not in kinds, "the chart has them"
    listing = fastyaml.load(bases[Path("deploy/kustomize/base", operator_id, "kustomization.yaml")])
    assert f"../../crds/{operator_id}" in listing["resources"]
    assert not any("hook" in str(manifest["metadata"].get("annotations")) for manifest in manifests)


@pytest.mark.parametrize("operator_id", find_operators(ROOT))
def test_monitoring_has_only_what_it_adds(bases: dict[Path, str], operator_id: str) -> None:
    folder = Path("deploy/kustomize/components/monitoring", operator_id)

    kinds = {manifest["kind"] for manifest in _load(bases, folder)}
    assert kinds == {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
    component = fastyaml.load(bases[folder / "kustomization.yaml"])
    assert (component["kind"], component["components"]) == ("Component", ["../dashboard"])
    shared = bases[Path("deploy/kustomize/components/monitoring/dashboard/dashboard.yaml")]
    assert "slipway-operators.json" in shared
    assert "slipway-operators.json" not in bases[folder / "manifests.yaml"]


def test_words_of_helm_are_passed_on(helm: Path, tmp_path: Path) -> None:
    chart = tmp_path / "helm/broken"
    chart.mkdir(parents=True)
    chart.joinpath("Chart.yaml").write_text("name: broken\n")

    with pytest.raises(GenerateError, match=r"helm/broken: Error: .*is required"):
        render_bases(helm, tmp_path, ["broken"])


def test_operator_without_a_chart_has_no_base(helm: Path, tmp_path: Path) -> None:
    assert render_bases(helm, tmp_path, ["ghost"]) == {}


def _load(bases: dict[Path, str], folder: Path) -> list[Manifest]:
    return list(fastyaml.load_all(bases[folder / "manifests.yaml"]))
