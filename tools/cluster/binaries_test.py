"""Programs are found in their folders, and requested by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.cluster import versions
from tools.cluster.binaries import (
    build_version_flags,
    ensure_assets,
    ensure_tool,
    is_recent,
    provide_tool,
)
from tools.cluster.errors import ToolError


def test_components_report_the_version() -> None:
    flags = build_version_flags("v1.36.3")

    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=36" in flags


def test_unknown_tool_is_refused_with_the_names_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"choose one of .*\bkind\b.*\bkustomize\b"):
        ensure_tool("terraform")


def test_pin_is_read_from_the_module_that_requires_it() -> None:
    assert re.fullmatch(r"go\.universe\.tf/metallb@v\d+\.\d+\.\d+", versions.METALLB_MODULE)
    assert re.fullmatch(r"github\.com/kedacore/keda/v2@v2\.\d+\.\d+", versions.KEDA_MODULE)
    with pytest.raises(LookupError, match=r"keda/go\.mod does not require example\.com/none"):
        versions.read_pin("keda", "example.com/none")


def test_renovate_finds_the_tools_that_have_no_module_of_their_own() -> None:
    root = Path(versions.__file__).parents[2]
    (manager,) = json.loads((root / ".github" / "renovate.json").read_text())["customManagers"]
    (pattern,) = manager["matchStrings"]
    found = re.findall(
        pattern.replace("(?<", "(?P<"), Path(versions.__file__).read_text(encoding="utf-8")
    )

    assert {module for module, _ in found} == {
        "github.com/cilium/cilium",
        "github.com/rancher/local-path-provisioner",
        "helm.sh/helm/v4",
        "sigs.k8s.io/kind",
        "sigs.k8s.io/kustomize/kustomize/v5",
        "sigs.k8s.io/kwok",
    }
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", version) for _, version in found)


def test_chosen_assets_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (tmp_path / name).touch()

    assert ensure_assets(environ={"KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path


def test_incomplete_assets_are_an_error_that_names_what_lacks(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch()

    with pytest.raises(ToolError, match="kube-apiserver, kubectl not found there"):
        ensure_assets(environ={"KUBEBUILDER_ASSETS": str(tmp_path)})


@pytest.mark.parametrize(
    ("name", "output", "recent"),
    [
        ("helm", 'version.BuildInfo{Version:"v4.2.4", GitCommit:"1"}', True),
        ("helm", "v5.0.0+g1a2b3c4", True),
        ("helm", "v3.19.0+g1a2b3c4", False),
        ("kind", "kind v0.33.0 go1.26.1 linux/amd64", True),
        ("kind", "kind v0.9.0 go1.15 linux/amd64", False),
        ("kind", "", False),
    ],
)
def test_installed_program_is_used_if_it_is_recent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, output: str, recent: bool
) -> None:
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\necho '{output}'\n")
    program.chmod(0o755)

    assert is_recent(name, program) is recent
    if recent:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert provide_tool(name) == program
