"""Tests of the files for Argo CD and Flux: they install charts that exist with values they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.testing.helm import CHARTS, HelmError, find_charts, render_chart

_FOLDER: Final = Path(__file__).parent / "gitops"
_REGISTRY: Final = "registry.example.com/team/charts"


def load(tool: str, operator: str) -> dict[str, Manifest]:
    """Load a file; its objects are keyed by kind."""
    text = (_FOLDER / tool / f"{operator}.yaml").read_text(encoding="utf-8")
    return {manifest["kind"]: manifest for manifest in fastyaml.load_all(text)}


def read_version(chart: str) -> str:
    return str(fastyaml.load((CHARTS / chart / "Chart.yaml").read_text())["version"])


def install(operator: str, values: dict[str, Any], namespace: str) -> dict[str, Manifest]:
    """Render the chart as the tool does; a released chart names its registry itself."""
    released = {"image": {"registry": "registry.example.com"}}
    manifests = render_chart(operator, {**released, **values}, namespace=namespace)
    return {manifest["kind"]: manifest for manifest in manifests}


@pytest.mark.parametrize("tool", ["argocd", "flux"])
def test_each_operator_has_a_file_and_nothing_else_has(tool: str) -> None:
    assert sorted(path.stem for path in (_FOLDER / tool).iterdir()) == find_charts()


@pytest.mark.parametrize("operator", find_charts())
def test_application_of_argo_cd_installs_the_chart(operator: str) -> None:
    spec = load("argocd", operator)["Application"]["spec"]
    source = spec["source"]

    assert (source["repoURL"], source["chart"]) == (_REGISTRY, operator)
    assert source["targetRevision"] == read_version(operator)
    assert "ServerSideApply=true" in spec["syncPolicy"]["syncOptions"]

    made = install(operator, source["helm"]["valuesObject"], spec["destination"]["namespace"])
    assert made["Deployment"]["spec"]["replicas"] == 2
    # Argo CD excludes Leases, so an Application that contains one never becomes Synced.
    assert "Lease" not in made


@pytest.mark.parametrize("operator", find_charts())
def test_release_of_flux_installs_the_chart(operator: str) -> None:
    objects = load("flux", operator)
    repository, release = objects["OCIRepository"], objects["HelmRelease"]

    assert repository["spec"]["url"] == f"oci://{_REGISTRY}/{operator}"
    assert repository["spec"]["ref"] == {"semver": f"{read_version(operator).rpartition('.')[0]}.x"}
    assert release["metadata"]["namespace"] == repository["metadata"]["namespace"]
    assert release["spec"]["chartRef"]["name"] == repository["metadata"]["name"]

    values, namespace = release["spec"]["values"], release["metadata"]["namespace"]
    made = install(operator, values, namespace)
    assert made["Deployment"]["spec"]["replicas"] == 2
    assert "Lease" in made
    # What `crds: Skip` leaves out is a folder that the chart does not have.
    assert "CustomResourceDefinition" in made
    assert not (CHARTS / operator / "crds").exists()


def test_values_are_checked_by_the_schema_of_the_chart() -> None:
    values = {**load("flux", "podset")["HelmRelease"]["spec"]["values"], "replicaCount": 2}

    with pytest.raises(HelmError, match="replicaCount"):
        install("podset", values, "team-a")
