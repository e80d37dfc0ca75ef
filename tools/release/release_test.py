"""Releases of real charts, up to where a registry begins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from tools.cluster.binaries import ensure_tool
from tools.cluster.docker import Docker
from tools.cluster.errors import ToolError
from tools.cluster.progress import open_progress
from tools.dev.operators import ROOT, list_operators
from tools.images import list_images
from tools.release.__main__ import check_clean, write_bills, write_files
from tools.release.chart import Image, replace_values
from tools.release.images import check_base, check_unpublished
from tools.release.notes import Release, read_release
from tools.release.scan import scan_bill

DIGEST = "sha256:" + "5" * 64


def build_image(name: str) -> Image:
    return Image(f"registry.example.com:5000/team/{name}", DIGEST)


@pytest.mark.parametrize("operator", list_operators())
def test_package_installs_the_images_that_were_pushed_with_it(
    operator: str, tmp_path: Path
) -> None:
    release = read_release(operator, ROOT)
    images = {name: build_image(name) for name in list_images(operator)}
    bills: dict[str, Manifest] = {f"{name}-{release.version}-amd64.cdx.json": {} for name in images}
    progress = open_progress("test-release")
    write_bills(tmp_path / "out", bills)
    chart = write_files(release, tmp_path / "out", images, progress)

    rendered = subprocess.run(
        [ensure_tool("helm"), "template", "x", chart], capture_output=True, text=True, check=True
    ).stdout
    deployments = [
        each for each in fastyaml.load_all(rendered) if each and each["kind"] == "Deployment"
    ]
    (container,) = deployments[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == str(images[operator])
    messages = {each.get("value") for each in container["env"]}
    assert all(str(image) in messages for name, image in images.items() if name != operator)
    lines = (tmp_path / "out" / f"{release.name}-images.txt").read_text().splitlines()
    assert lines == [str(image) for image in images.values()]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "SHA256SUMS",
        f"{release.name}-bundle.tgz",
        f"{release.name}-images.txt",
        f"{release.name}-install.yaml",
        *bills,
        f"{release.name}.md",
        f"{release.name}.tgz",
    }


def write_operator(root: Path, version: str = "0.2.0", app: str = "0.2.0", log: str = "") -> None:
    (root / "helm/web").mkdir(parents=True)
    (root / "operators/web").mkdir(parents=True)
    (root / "helm/web/Chart.yaml").write_text(f"version: {version}\nappVersion: {app}\n")
    (root / "operators/web/CHANGELOG.md").write_text(log)


def test_notes_are_the_section_of_the_version(tmp_path: Path) -> None:
    log = (
        "# Changes\n\n## 0.2.0 (2027-01-01)\n\nFaster.\n\n### Fixed\n\nAll.\n\n## 0.1.0\n\nFirst.\n"
    )
    write_operator(tmp_path, log=log)
    notes = "Faster.\n\n### Fixed\n\nAll.\n"
    assert read_release("web", tmp_path) == Release("web", "0.2.0", notes)


def commit_all(root: Path) -> None:
    """Make the folder a git repository with one commit."""
    flags = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "--quiet"), ("add", "-A"), (*flags, "commit", "-qm", "One")):
        subprocess.run(["git", "-C", root, *words], check=True)


def test_unreleased_changes_are_a_pre_release_of_the_commit(tmp_path: Path) -> None:
    write_operator(tmp_path, log="# Changes\n\n## Unreleased\n\nNew.\n\n## 0.2.0\n\nFirst.\n")
    with pytest.raises(ToolError, match="Cannot name the commit"):
        read_release("web", tmp_path)
    commit_all(tmp_path)
    commit = subprocess.run(
        ["git", "-C", tmp_path, "rev-parse", "--short=8", "HEAD"], capture_output=True, check=True
    ).stdout.decode()

    release = read_release("web", tmp_path)
    assert release == Release("web", f"0.2.1-dev.1.g{commit.strip()}", "New.\n")

    (tmp_path / "operators/web/CHANGELOG.md").write_text("## Unreleased\n\n## 0.2.0\n\nFirst.\n")
    assert read_release("web", tmp_path).version == "0.2.0", "nothing is unreleased"


def test_base_image_that_the_commit_does_not_record_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "base.lock"
    lock.write_text("# Versions\nlibc6 2.41-12\nzlib1g 1.3-1\n")

    def build(**versions: str) -> list[Manifest]:
        return [{"name": name, "version": version} for name, version in versions.items()]

    check_base(build(libc6="2.41-12", zlib1g="1.3-1+b2"), lock)
    for packages, message in (
        (build(libc6="2.41-13", zlib1g="1.3-1"), "libc6: 2.41-12 -> 2.41-13; run .*update"),
        (build(libc6="2.41-12"), "zlib1g: 1.3-1 -> none"),
        (build(libc6="2.41-12", zlib1g="1.3-1", bash="5"), "bash: none -> 5"),
    ):
        with pytest.raises(ToolError, match=message):
            check_base(packages, lock)


def test_version_that_the_registry_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    release = Release("podset", "0.1.0", "First.")
    answers = {
        "echo no such manifest: x >&2; exit 1": "",
        "echo '{}'": "r.example.com/podset:0.1.0 exists already",
        "echo unauthorized >&2; exit 1": "Cannot ask the registry .*unauthorized",
        "case $* in *charts/*) echo '{}';; *) echo manifest unknown >&2; exit 1;; esac": (
            "r.example.com/charts/podset:0.1.0 exists already"
        ),
    }
    for script, messages in answers.items():
        docker.write_text(f"#!/bin/sh\n{script}\n")
        docker.chmod(0o755)
        if not messages:
            check_unpublished(release, "r.example.com", Docker())
            continue
        with pytest.raises(ToolError, match=messages):
            check_unpublished(release, "r.example.com", Docker())


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"version": "2"}, "version: 2 is not a version"),
        ({"app": "0.1.0"}, "appVersion: 0.1.0 is not 0.2.0"),
        ({"log": "# Changes\n\n## 0.1.0\n\nFirst.\n"}, "no section `## 0.2.0`"),
        ({"log": "## 0.2.0\n\n## 0.1.0\n\nFirst.\n"}, "## 0.2.0 is empty"),
    ],
)
def test_release_that_is_not_in_order_is_refused(
    tmp_path: Path, fields: dict[str, str], messages: str
) -> None:
    write_operator(tmp_path, **fields)
    with pytest.raises(ToolError, match=messages):
        read_release("web", tmp_path)


def test_unknown_operator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="There is no operator 'ghost'"):
        read_release("ghost", tmp_path)


def test_files_that_are_not_committed_are_not_released(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    check_clean(tmp_path)
    (tmp_path / "new.py").touch()
    with pytest.raises(ToolError, match=r"1 files are not committed.*\n.*new\.py"):
        check_clean(tmp_path)


def test_value_that_the_chart_does_not_have_is_refused() -> None:
    text = "image:\n  # Where.\n  registry: ''\nother:\n  digest: ''\n"
    assert '# Where.\n  registry: "r"' in replace_values(text, {"image": {"registry": "r"}})
    with pytest.raises(ToolError, match=r"image\.digest: no such field"):
        replace_values(text, {"image": {"digest": DIGEST}})


@pytest.mark.parametrize(
    ("script", "messages"), [("exit 0", ""), ("echo CVE-2026-1; exit 1", "CVE-2026-1")]
)
def test_bill_is_scanned_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, messages: str
) -> None:
    scanner, database = tmp_path / "bin" / "trivy", tmp_path / "cache"
    scanner.parent.mkdir()
    scanner.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{script}\n')
    scanner.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scanner.parent}:/usr/bin:/bin")
    bill = tmp_path / "podset-0.1.0.cdx.json"
    progress = open_progress("test-scan")

    with pytest.raises(ToolError, match="has no folder db"):
        scan_bill(bill, database, progress)
    (database / "db").mkdir(parents=True)
    if messages:
        with pytest.raises(ToolError, match=messages):
            scan_bill(bill, database, progress)
    else:
        scan_bill(bill, database, progress)

    asked = (tmp_path / "asked").read_text().split()
    assert {"--offline-scan", "--skip-db-update"} <= set(asked)
    assert asked[-1] == str(bill)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match="trivy is not on PATH"):
        scan_bill(bill, database, progress)
