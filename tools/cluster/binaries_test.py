"""Programs are found in their folders, and requested by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster.binaries import build_version_flags, ensure_assets, ensure_tool
from tools.cluster.errors import ToolError


def test_components_report_the_version() -> None:
    flags = build_version_flags("v1.36.3")

    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=36" in flags


def test_unknown_tool_is_refused_with_the_names_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"choose one of .*\bkind\b.*\bkustomize\b"):
        ensure_tool("terraform")


def test_chosen_assets_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (tmp_path / name).touch()

    assert ensure_assets(environ={"KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path


def test_incomplete_assets_are_an_error_that_names_what_lacks(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch()

    with pytest.raises(ToolError, match="kube-apiserver, kubectl not found there"):
        ensure_assets(environ={"KUBEBUILDER_ASSETS": str(tmp_path)})
