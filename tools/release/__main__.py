"""Release an operator: `./dev release podset --registry registry.example.com/team`."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.cluster.binaries import ensure_tool
from tools.cluster.command_line import Parser, run
from tools.cluster.docker import ensure_docker
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress, open_progress
from tools.release.bundle import pack_bundle, read_chart, render_bundle
from tools.release.chart import Image, build_chart
from tools.release.images import (
    Bills,
    check_unpublished,
    join_images,
    make_images,
    read_bills,
)
from tools.release.install import render_install
from tools.release.notes import Release, read_release
from tools.release.scan import scan_bills

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parse(argv)
    progress = open_progress(f"release-{options.operator}")
    release = read_release(options.operator, ROOT)
    if not options.allow_dirty:
        check_clean(ROOT)
    folder = Path(options.output) / release.name
    if options.registry:
        docker = ensure_docker(progress)
        check_unpublished(release, options.registry, docker, plain_http=options.plain_http)
    if options.images_from:
        bills = read_bills(release, options.images_from)
    else:
        bills = make_images(release, options.registry, progress)
    if options.vulnerabilities:
        scan_bills(bills, options.vulnerabilities, progress)
    shutil.rmtree(folder, ignore_errors=True)
    write_bills(folder, bills)
    if not options.images_only:
        _publish(release, folder, bills, options, progress)
    for path in sorted(folder.iterdir()):
        print(path)
    return 0


def _publish(
    release: Release,
    folder: Path,
    bills: Bills,
    options: argparse.Namespace,
    progress: Progress,
) -> None:
    images: Mapping[str, Image] = {}
    if options.registry:
        docker = ensure_docker(progress)
        images = join_images(
            release, bills, options.registry, docker, progress, plain_http=options.plain_http
        )
    chart = write_files(release, folder, images, progress)
    if options.registry:
        pushed = push_chart(chart, options, progress)
        # What is to be signed: images by their index, and the chart.
        lines = [f"{reference}\n" for reference in (*images.values(), pushed)]
        (folder / f"{release.name}-signed.txt").write_text("".join(lines))
    _say_next(release, chart, options, progress)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="./dev release",
        description="Build a release of an operator: image, chart, bills of materials (SBOMs) and "
        "release notes. Chart and changelog state its version. With --registry, push image and "
        "chart.",
    )
    parser.add_argument("operator", metavar="ID", help="id of the operator, such as podset")
    parser.add_argument(
        "--registry", default="", help="registry to push to, such as registry.example.com/team"
    )
    parser.add_argument(
        "--plain-http",
        action="store_true",
        help="use HTTP for the registry, such as for one on this machine",
    )
    parser.add_argument(
        "--vulnerabilities",
        type=Path,
        metavar="DIR",
        help="cache directory of trivy with its database; refuse a release with vulnerabilities"
        " that newer packages fix",
    )
    parser.add_argument(
        "--output",
        default="dist/release",
        metavar="DIR",
        help="output folder. Defaults to dist/release",
    )
    parser.add_argument(
        "--allow-dirty",
        action="store_true",
        help="accept uncommitted changes, to try out a release",
    )
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument(
        "--images-only",
        action="store_true",
        help="push the images for the architecture of this machine and write their bills of"
        " materials, without chart and index",
    )
    steps.add_argument(
        "--images-from",
        type=Path,
        metavar="DIR",
        help="build no images: release those whose bills of materials are in DIR, which"
        " --images-only wrote on a machine of each architecture",
    )
    options = parser.parse_args(argv)
    if (options.images_only or options.images_from) and not options.registry:
        parser.error("--images-only and --images-from require --registry")
    return options


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


def write_bills(folder: Path, bills: Bills) -> None:
    """Write bills of materials."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, bill in bills.items():
        (folder / name).write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n")


def write_files(
    release: Release, folder: Path, images: Mapping[str, Image], progress: Progress
) -> Path:
    """Write everything but the bills of materials; return the path of the chart.

    Args:
        release: What is released.
        folder: Folder that has the bills of materials.
        images: Images in a registry by name; empty without a registry.
        progress: Shows the step.
    """
    with tempfile.TemporaryDirectory() as scratch, progress.step(f"Chart {release.name}"):
        chart = Path(scratch) / release.operator
        app = images.get(f"{release.operator}-app")
        image = images.get(release.operator)
        build_chart(ROOT / "helm" / release.operator, chart, image, app, release.version)
        helm = ensure_tool("helm", progress)
        progress.run([helm, "package", chart, "--destination", folder])
    package = folder / f"{release.name}.tgz"
    if images:
        # Without a registry there is no image that a cluster could pull.
        text = render_install(helm, package, release.operator, release.version)
        (folder / f"{release.name}-install.yaml").write_text(text)
        bundle = render_bundle(helm, read_chart(package), [str(one) for one in images.values()])
        pack_bundle(bundle, folder / f"{release.name}-bundle.tgz")
        lines = [f"{image}\n" for image in images.values()]
        (folder / f"{release.name}-images.txt").write_text("".join(lines))
    (folder / f"{release.name}.md").write_text(release.notes)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return package


def push_chart(chart: Path, options: argparse.Namespace, progress: Progress) -> str:
    """Push a chart into the folder `charts` of the registry; return its reference by digest.

    Raises:
        CommandFailed: The registry refused it.
        ToolError: helm printed no digest.
    """
    helm = ensure_tool("helm", progress)
    flags = ["--plain-http"] if options.plain_http else []
    target = f"oci://{options.registry}/charts"
    with progress.step(f"Push of {target}/{options.operator}"):
        output = progress.run([helm, "push", chart, target, *flags])
    found = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", output, re.MULTILINE)
    if found is None:
        raise ToolError(f"helm push printed no digest of {target}/{options.operator}")
    return f"{options.registry}/charts/{options.operator}@{found[1]}"


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
