"""Tests of the single file: it runs with nothing but Python."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import yaml

from tools.plugin.__main__ import main
from tools.plugin.build import build_file


def test_the_file_runs_alone_and_krew_gets_its_hash(tmp_path: Path) -> None:
    assert main(["--output", str(tmp_path), "--url", "https://example.com/a.tar"]) == 0
    # -I and -S: neither the checkout nor installed packages.
    command = [sys.executable, "-I", "-S", str(tmp_path / "kubectl-slipway")]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    failed = subprocess.run(
        [*command, "status", "-o", "yaml"],
        env={"KUBECTL": "/nosuch/kubectl"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert version.stdout.startswith("kubectl-slipway ")
    assert "Cannot find /nosuch/kubectl" in failed.stderr
    assert failed.returncode == 5
    with zipfile.ZipFile(tmp_path / "kubectl-slipway") as archive:
        names = archive.namelist()
    assert {"kubectl_slipway/kinds.json", "yaml/dumper.py"} <= set(names)
    assert not [name for name in names if "test" in name]
    assert any("LICENSE" in name for name in names)
    manifest = yaml.safe_load((tmp_path / "slipway.yaml").read_text())
    platform = manifest["spec"]["platforms"][0]
    packed = (tmp_path / "kubectl-slipway.tar").read_bytes()
    assert platform["sha256"] == hashlib.sha256(packed).hexdigest()
    assert platform["uri"] == "https://example.com/a.tar"
    with tarfile.open(tmp_path / "kubectl-slipway.tar") as unpacked:
        assert unpacked.getmember("kubectl-slipway").mode == 0o755


def test_equal_sources_give_equal_bytes() -> None:
    assert build_file() == build_file()
