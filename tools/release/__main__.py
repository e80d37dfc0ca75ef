"""Release an operator: `./dev release podset --registry registry.example.com/team`."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from libs.common.kinds import Manifest
from tools.cluster.binaries import ensure_tool
from tools.cluster.command_line import Parser, run
from tools.cluster.docker import Docker, ensure_docker
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress, open_progress
from tools.images import build_together, list_images, push
from tools.release.chart import Image, build_chart
from tools.release.install import render_install
from tools.release.notes import Release, read_release
from tools.release.scan import scan_bills
from tools.sbom.contents import list_contents
from tools.sbom.document import build_document

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parse(argv)
    progress = open_progress(f"release-{options.operator}")
    release = read_release(options.operator, ROOT)
    if not options.allow_dirty:
        check_clean(ROOT)
    folder = Path(options.output) / release.name
    images = make_images(release, options.registry, progress)
    bills = list_bills(release, images, progress)
    if options.vulnerabilities:
        scan_bills(bills, options.vulnerabilities, progress)
    chart = write_files(release, folder, images, bills, progress)
    if options.registry:
        push_chart(chart, options, progress)
    for path in sorted(folder.iterdir()):
        print(path)
    _say_next(release, chart, options, progress)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="./dev release",
        description="Make the release of an operator that its chart and changelog describe: image, "
        "chart, bills of materials, notes. With --registry, push image and chart there.",
    )
    parser.add_argument("operator", help="id of the operator, such as podset")
    parser.add_argument("--registry", default="", help="such as registry.example.com/team")
    parser.add_argument(
        "--plain-http",
        action="store_true",
        help="the registry speaks HTTP, such as one on this machine",
    )
    parser.add_argument(
        "--vulnerabilities",
        type=Path,
        metavar="DIR",
        help="cache directory of trivy with its database; refuse a release with vulnerabilities"
        " that newer packages fix",
    )
    parser.add_argument("--output", default="dist/release", help="folder (default dist/release)")
    parser.add_argument(
        "--allow-dirty", action="store_true", help="release files that are not committed, to try it"
    )
    return parser.parse_args(argv)


def check_clean(root: Path) -> None:
    """Refuse to release what nobody could check out again.

    Raises:
        ToolError: There are changes that are not committed.
    """
    command = ["git", "status", "--porcelain"]
    changed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    if changed:
        raise ToolError(
            f"{len(changed.splitlines())} files are not committed; commit them, or try it with "
            f"--allow-dirty:\n{changed.rstrip()}"
        )


def make_images(release: Release, registry: str, progress: Progress) -> dict[str, Image]:
    """Build the images of an operator; with a registry, push them and return what they are there.

    Raises:
        ToolError: A build failed, or the registry refused.
    """
    names = list_images(release.operator)
    build_together(names, release.version, progress)
    if not registry:
        return {}
    docker = ensure_docker(progress)
    pushed = {}
    for name in names:
        remote = push(name, registry, release.version, progress)
        pushed[name] = Image(remote.rpartition(":")[0], _digest_of(docker, remote))
    return pushed


def _digest_of(docker: Docker, remote: str) -> str:
    text = docker.read("image", "inspect", "--format", "{{json .RepoDigests}}", remote)
    repository = remote.rpartition(":")[0]
    for each in json.loads(text):
        name, _, digest = each.partition("@")
        if name == repository:
            return str(digest)
    raise ToolError(f"Image {remote} has no digest after its push; push it again")


def list_bills(
    release: Release, images: Mapping[str, Image], progress: Progress
) -> dict[str, Manifest]:
    """Return the bill of materials of each image of a release.

    Raises:
        ToolError: The base image or the jars cannot be built.
    """
    return {
        name: build_document(
            name,
            list_contents(name, progress),
            version=release.version,
            digest=images[name].digest if name in images else "",
        )
        for name in list_images(release.operator)
    }


def write_files(
    release: Release,
    folder: Path,
    images: Mapping[str, Image],
    bills: Mapping[str, Manifest],
    progress: Progress,
) -> Path:
    """Write chart, manifest, bills of materials, notes and checksums; return the chart's path."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch, progress.step(f"Chart {release.name}"):
        chart = Path(scratch) / release.operator
        app = images.get(f"{release.operator}-app")
        build_chart(ROOT / "helm" / release.operator, chart, images.get(release.operator), app)
        helm = ensure_tool("helm", progress)
        progress.run([helm, "package", chart, "--destination", folder])
    package = folder / f"{release.name}.tgz"
    if images:
        # Without a registry there is no image that a cluster could pull.
        text = render_install(helm, package, release.operator, release.version)
        (folder / f"{release.name}-install.yaml").write_text(text)
    for name, bill in bills.items():
        path = folder / f"{name}-{release.version}.cdx.json"
        path.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n")
    (folder / f"{release.name}.md").write_text(release.notes)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return package


def push_chart(chart: Path, options: argparse.Namespace, progress: Progress) -> None:
    """Push a chart into the folder `charts` of the registry that has the images.

    Raises:
        CommandFailed: The registry refused it.
    """
    helm = ensure_tool("helm", progress)
    flags = ["--plain-http"] if options.plain_http else []
    target = f"oci://{options.registry}/charts"
    with progress.step(f"Push of {target}/{options.operator}"):
        progress.run([helm, "push", chart, target, *flags])


def _say_next(
    release: Release, chart: Path, options: argparse.Namespace, progress: Progress
) -> None:
    where = str(chart)
    if options.registry:
        where = f"oci://{options.registry}/charts/{release.operator} --version {release.version}"
        where += " --plain-http" if options.plain_http else ""
    progress.say(f"Install it: helm install {release.operator} {where}")
    progress.say(f"Mark it:    git tag {release.operator}/v{release.version}")


if __name__ == "__main__":
    raise SystemExit(run(main))
