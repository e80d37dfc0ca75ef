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
_CHART: Final = f"{_REGISTRY}/charts/podset@sha256:{'7' * 64}"
_JQ: Final = f"""#!/bin/sh
# Prints the two fields of a bill that the workflow reads.
case "$2" in
.metadata.component.name) echo slipway/podset ;;
--compact-output) echo '[]' ;;
".metadata.component.hashes[0].content") echo {_DIGEST.partition(":")[2]} ;;
*) exit 1 ;;
esac
"""
_PROGRAMS: Final = ("sudo", "cosign", "curl", "docker", "gh", "rm", "sha256sum", "trivy")
_PIN: Final = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
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
        f"echo {_IMAGE} | tee {folder}/podset-0.1.0-{{images,signed}}.txt\n"
        f"echo {_CHART} >> {folder}/podset-0.1.0-signed.txt\n"
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
                "GITHUB_REPOSITORY": "team/slipway",
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
        f"cosign sign --yes --recursive {_CHART}",
        *(f"cosign attest --yes --type cyclonedx --predicate {bill} {image}" for bill in bills),
        f"cosign sign-blob --yes --bundle {folder}/SHA256SUMS.sigstore.json {folder}/SHA256SUMS",
    ]
    assert not [call for call in calls if "secret" in call]
    assert (checkout / "password").read_text().strip() == "secret"


def test_files_are_published_after_signatures_and_provenance(checkout: Path) -> None:
    (checkout / "release").mkdir()
    (checkout / "release" / "podset-0.1.0.tgz").touch()
    jobs = yaml.safe_load(_WORKFLOW.read_text())["jobs"]

    (published,) = run_steps(checkout, "publish")
    assert published == (
        "gh release create podset/v0.1.0 --repo team/slipway"
        " --notes-file release/podset-0.1.0.md release/podset-0.1.0.tgz"
    )
    assert jobs["publish"]["needs"] == ["release", "provenance"]
    image = jobs["provenance"]["strategy"]["matrix"]["image"]
    assert image == "${{ fromJSON(needs.release.outputs.images) }}", "of each image"
    for name, job in jobs.items():
        writes = {scope for scope, right in job["permissions"].items() if right == "write"}
        assert ("contents" in writes) == (name == "publish"), "no other job may change the code"


def list_uses() -> list[str]:
    """List the actions of all workflows, with their comments."""
    return [
        line.partition("uses: ")[2]
        for path in sorted(_WORKFLOW.parent.glob("*.yml"))
        for line in path.read_text().splitlines()
        if "uses: " in line
    ]


def test_every_action_is_pinned_to_a_commit() -> None:
    found = list_uses()

    assert len(found) > 20
    assert [one for one in found if not _PIN.fullmatch(one)] == []
    # Their tags were replaced by commits that stole credentials.
    assert not [one for one in found if one.startswith("aquasecurity/")]
