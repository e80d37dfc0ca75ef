"""Programs are found in their folders, and requested by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster import versions
from tools.cluster.binaries import build_version_flags, ensure_assets, ensure_tool
from tools.cluster.errors import ToolError


def test_components_report_the_version() -> None:
    flags = build_version_flags("v1.36.3")

    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=36" in flags


def test_unknown_tool_is_refused_with_the_names_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"choose one of .*\bkind\b.*\bkustomize\b"):
        ensure_tool("terraform")


@pytest.mark.parametrize(
    ("folder", "module"),
    [
        ("argo_cd", versions.ARGO_CD_MODULE),
        ("cert_manager", versions.CERT_MANAGER_MODULE),
        *(("flux", module) for module in versions.FLUX_MODULES),
        ("keda", versions.KEDA_MODULE),
        ("metallb", versions.METALLB_MODULE),
        ("olm_verify", versions.OLM_MODULE),
    ],
)
def test_crds_and_programs_are_of_the_same_version(folder: str, module: str) -> None:
    path = Path(versions.__file__).parent / folder / "go.mod"

    assert tuple(module.split("@")) in _read_requirements(path)


def _read_requirements(path: Path) -> set[tuple[str, ...]]:
    lines = (line.partition("//")[0] for line in path.read_text(encoding="utf-8").splitlines())
    return {tuple(line.split()[-2:]) for line in lines}


def test_chosen_assets_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (tmp_path / name).touch()

    assert ensure_assets(environ={"KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path


def test_incomplete_assets_are_an_error_that_names_what_lacks(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch()

    with pytest.raises(ToolError, match="kube-apiserver, kubectl not found there"):
        ensure_assets(environ={"KUBEBUILDER_ASSETS": str(tmp_path)})
