"""Tests of the single file and of the layout of krew: they run with Python and kubectl alone."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import yaml

from libs.common.testing.apiserver import ControlPlane, find_assets
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


def install_as_krew_does(manifest: Path, archive: Path, root: Path) -> Path:
    """Install an archive into the folders of krew, and return the folder for PATH."""
    described = yaml.safe_load(manifest.read_text())
    name, spec = described["metadata"]["name"], described["spec"]
    (platform,) = spec["platforms"]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    store = root / "store" / name / spec["version"]
    with tarfile.open(archive) as unpacked, tempfile.TemporaryDirectory() as folder:
        unpacked.extractall(folder, filter="data")
        for each in platform["files"]:
            target = store / each["to"] / each["from"]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(folder) / each["from"], target)
    (root / "bin").mkdir()
    # Dashes of a name would be words of the command.
    link = root / "bin" / f"kubectl-{name.replace('-', '_')}"
    link.symlink_to(store / platform["bin"])
    return link.parent


def test_kubectl_runs_the_plugin_that_krew_installs(
    tmp_path: Path, kube_apiserver: ControlPlane
) -> None:
    main(["--output", str(tmp_path)])
    archive = tmp_path / "kubectl-slipway.tar"
    folder = install_as_krew_does(tmp_path / "slipway.yaml", archive, tmp_path / "krew")
    (folder / "python3").symlink_to(sys.executable)
    (folder / "kubectl").symlink_to(find_assets() / "kubectl")
    kubeconfig = kube_apiserver.write_kubeconfig(tmp_path / "kubeconfig")
    # -I and -S as above are not possible in the first line of a file.
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(
        ["kubectl", "slipway", "check", "-o", "yaml", "--kubeconfig", str(kubeconfig)],
        env={**environment, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert yaml.safe_load(done.stdout)[0]["check"] == "Kubernetes version"
