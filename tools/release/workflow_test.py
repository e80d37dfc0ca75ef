"""A dry run of the release workflow: its scripts, with programs that only note their arguments."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools.dev.operators import ROOT

_WORKFLOW: Final = ROOT / ".github" / "workflows" / "release.yml"
_REGISTRY: Final = "registry.example.com/team"
_DIGEST: Final = "sha256:" + "5" * 64
_IMAGE: Final = f"{_REGISTRY}/podset@sha256:{'6' * 64}"
"""The index, which has another digest than the images in it."""
_JQ: Final = f"""#!/bin/sh
# Prints the two fields of a bill that the workflow reads.
case "$2" in
.metadata.component.name) echo slipway/podset ;;
".metadata.component.hashes[0].content") echo {_DIGEST.partition(":")[2]} ;;
*) exit 1 ;;
esac
"""
_PROGRAMS: Final = ("sudo", "cosign", "docker", "gh", "trivy")
_EXPRESSION: Final = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout whose ./dev writes the files of a release, and programs that note calls."""
    programs = tmp_path / "bin"
    programs.mkdir()
    note = f'#!/bin/bash\necho "$(basename "$0") $*" >> {tmp_path}/calls\n'
    for name in _PROGRAMS:
        (programs / name).write_text(note)
    (programs / "docker").write_text(
        note + f'[ "$1" = login ] && cat > {tmp_path}/password\nexit 0\n'
    )
    (programs / "jq").write_text(_JQ)
    folder = "dist/release/podset-0.1.0"
    (tmp_path / "dev").write_text(
        note + f"mkdir -p {folder} && touch {folder}/podset-0.1.0.{{tgz,md}}\n"
        f"touch {folder}/podset-0.1.0-{{amd64,arm64}}.cdx.json\n"
        f"echo {_IMAGE} > {folder}/podset-0.1.0-images.txt\n"
    )
    for path in (*programs.iterdir(), tmp_path / "dev"):
        path.chmod(0o755)
    return tmp_path


def run_steps(checkout: Path, job: str) -> list[str]:
    """Run every script of a job, and return the calls of programs."""
    values = {"REGISTRY": _REGISTRY, "GITHUB_TOKEN": "secret", "token": "secret"}
    outputs = checkout / "outputs"
    outputs.touch()
    workflow = yaml.safe_load(_WORKFLOW.read_text())
    steps: list[dict[str, Any]] = workflow["jobs"][job]["steps"]
    for step in steps:
        if "run" not in step:
            continue
        known = {
            **values,
            **dict(line.split("=", 1) for line in outputs.read_text().splitlines()),
        }
        environment = {
            name: fill_in(value, known) for name, value in (step.get("env") or {}).items()
        }
        # A script that names an expression can be changed by anyone who names a tag.
        assert not _EXPRESSION.search(step["run"]), step
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step["run"]],
            cwd=checkout,
            env={
                "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
                "GITHUB_REF_NAME": "podset/v0.1.0",
                "GITHUB_ACTOR": "releaser",
                "GITHUB_OUTPUT": str(outputs),
                "RUNNER_TEMP": "/runner",
                **environment,
            },
            check=True,
        )
    return (checkout / "calls").read_text().splitlines()


def fill_in(text: str, values: dict[str, str]) -> str:
    """Replace expressions by the values of their last names."""
    return _EXPRESSION.sub(lambda found: values[found[1].rpartition(".")[2]], text)


def test_images_are_scanned_and_pushed_on_each_architecture(checkout: Path) -> None:
    calls = run_steps(checkout, "images")
    jobs = yaml.safe_load(_WORKFLOW.read_text())["jobs"]

    assert jobs["images"]["strategy"]["matrix"]["runner"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert "trivy image --download-db-only --cache-dir /runner/trivy" in calls
    assert (
        f"dev release podset --registry {_REGISTRY} --images-only --vulnerabilities /runner/trivy"
        in calls
    )
    assert not [call for call in calls if call.startswith(("cosign", "gh")) or "secret" in call]


def test_release_is_signed_attested_and_published(checkout: Path) -> None:
    calls = run_steps(checkout, "release")
    image, folder = f"{_REGISTRY}/podset@{_DIGEST}", "dist/release/podset-0.1.0"
    bills = [f"{folder}/podset-0.1.0-{name}.cdx.json" for name in ("amd64", "arm64")]

    assert f"dev release podset --registry {_REGISTRY} --images-from /runner/images" in calls
    assert [call for call in calls if call.startswith("cosign")] == [
        f"cosign sign --yes --recursive {_IMAGE}",
        *(f"cosign attest --yes --type cyclonedx --predicate {bill} {image}" for bill in bills),
    ]
    (published,) = [call for call in calls if call.startswith("gh ")]
    assert published.startswith(
        f"gh release create podset/v0.1.0 --notes-file {folder}/podset-0.1.0.md"
    )
    assert all(bill in published for bill in bills)
    assert not [call for call in calls if "secret" in call]
    assert (checkout / "password").read_text().strip() == "secret"
    assert calls.index(f"cosign sign --yes --recursive {_IMAGE}") < calls.index(published)
    outputs = dict(line.split("=", 1) for line in (checkout / "outputs").read_text().splitlines())
    assert f"{outputs['name']}@{outputs['digest']}" == _IMAGE, "what the provenance is of"
