"""Images of a release: built on one machine per architecture, and joined under one reference."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from libs.common.kinds import Manifest
from tools.cluster.cache import Cache
from tools.cluster.docker import Docker, ensure_docker
from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.progress import Progress
from tools.images import build_together, list_images, push
from tools.images.base import BASE_VARIABLE, LOCK, build_archive
from tools.images.build import ROOT
from tools.images.update import compare, read_lock
from tools.release.chart import Image
from tools.release.notes import Release
from tools.sbom.contents import list_contents
from tools.sbom.debian import list_packages
from tools.sbom.document import build_document

_SUFFIX = ".cdx.json"
_UNKNOWN = re.compile(r"no such manifest|manifest unknown|name unknown|not found", re.IGNORECASE)
"""Answers of docker about a tag or a repository that does not exist."""

type Bills = Mapping[str, Manifest]
"""Bills of materials by file name, such as podset-0.1.0-amd64.cdx.json."""


def make_images(release: Release, registry: str, progress: Progress) -> Bills:
    """Build the images of an operator for this machine, and return their bills of materials.

    With a registry, the images are pushed and the bills contain their digests.

    Raises:
        ToolError: A build failed, or the registry refused an image.
    """
    docker = ensure_docker(progress)
    if not os.environ.get(BASE_VARIABLE):
        check_base(list_packages(build_archive(Cache(), progress)))
    architecture = docker.read("version", "--format", "{{.Server.Arch}}").strip()
    tag = f"{release.version}-{architecture}"
    names = list_images(release.operator)
    labels = {"VERSION": release.version, **describe_source()}
    build_together(names, tag, progress, labels)
    bills = {}
    for name in names:
        digest = _digest_of(docker, push(name, registry, tag, progress)) if registry else ""
        contents = list_contents(name, progress)
        bill = build_document(name, contents, version=release.version, digest=digest)
        bills[f"{name}-{tag}{_SUFFIX}"] = bill
    return bills


def check_base(packages: Sequence[Manifest], lock: Path = LOCK) -> None:
    """Refuse a base image whose packages are not the ones that the commit records.

    Raises:
        ToolError: The versions differ; the message lists them.
    """

    def select(versions: Mapping[str, str]) -> dict[str, str]:
        # Debian adds +b1 when it builds a package again for one architecture.
        return {name: re.sub(r"\+b[0-9]+$", "", version) for name, version in versions.items()}

    versions = {each["name"]: each["version"] for each in packages}
    if changes := compare(select(read_lock(lock)), select(versions)):
        raise ToolError(
            f"The base image has other packages than {lock.name} records: {', '.join(changes)};"
            " run `python -m tools.images update`, commit the file and release that commit"
        )


def describe_source() -> dict[str, str]:
    """Return the build arguments for the labels that name the commit and its repository."""

    def ask(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return run.stdout.strip() if run.returncode == 0 else ""

    server, repository = (
        os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")
    )
    source = f"{server}/{repository}" if server and repository else ""
    # An address may contain a login; only a workflow knows the public one.
    return {"REVISION": ask("rev-parse", "HEAD"), "SOURCE": source}


def check_unpublished(
    release: Release, registry: str, docker: Docker, *, plain_http: bool = False
) -> None:
    """Refuse to replace a version that the registry has, before anything is built.

    Raises:
        ToolError: The registry has the version, or cannot be asked.
    """
    flags = ["--insecure"] if plain_http else []
    names = [*list_images(release.operator), f"charts/{release.operator}"]
    for name in names:
        reference = f"{registry.rstrip('/')}/{name}:{release.version}"
        try:
            docker.read("manifest", "inspect", *flags, reference)
        except CommandFailed as err:
            if _UNKNOWN.search(err.output):
                continue
            raise ToolError(f"Cannot ask the registry for {reference}: {err}") from err
        raise ToolError(
            f"{reference} exists already, and a published version never changes: release another"
            f" version (helm/{release.operator}/Chart.yaml and CHANGELOG.md)"
        )


def read_bills(release: Release, folder: Path) -> Bills:
    """Read the bills of materials that machines of several architectures wrote, in any subfolder.

    Raises:
        ToolError: An image is missing for an architecture that another image has.
    """
    bills = {}
    found = set()
    for path in sorted(folder.rglob(f"*{_SUFFIX}")):
        bill = json.loads(path.read_text())
        prefix = f"{_name_of(bill)}-{release.version}-"
        if bill["metadata"]["component"].get("version") == release.version:
            bills[path.name] = bill
            found.add((_name_of(bill), path.name.removeprefix(prefix).removesuffix(_SUFFIX)))
    architectures = {architecture for _, architecture in found} or {"any architecture"}
    for name in list_images(release.operator):
        for architecture in sorted(architectures):
            if (name, architecture) not in found:
                raise ToolError(
                    f"{folder} has no bill of materials of {name} {release.version} for"
                    f" {architecture}: run `./dev release {release.operator} --images-only` there"
                )
    return bills


def join_images(
    release: Release,
    bills: Bills,
    registry: str,
    docker: Docker,
    progress: Progress,
    *,
    plain_http: bool = False,
) -> dict[str, Image]:
    """Push an index of the images that the bills describe, and return it by name of the image.

    Raises:
        ToolError: The registry refused the index, or lacks an image.
    """
    flags = ["--insecure"] if plain_http else []
    indexes = {}
    for name in list_images(release.operator):
        repository = f"{registry.rstrip('/')}/{name}"
        reference = f"{repository}:{release.version}"
        images = [
            f"{repository}@{_read_digest(bill)}"
            for bill in bills.values()
            if _name_of(bill) == name
        ]
        with progress.step(f"Index of images {reference}"):
            # An interrupted run may have left its draft, to which docker would add.
            with contextlib.suppress(CommandFailed):
                docker.read("manifest", "rm", reference)
            docker.read("manifest", "create", *flags, reference, *images)
            pushed = docker.read("manifest", "push", "--purge", *flags, reference)
        indexes[name] = Image(repository, pushed.split()[-1])
    return indexes


def _digest_of(docker: Docker, remote: str) -> str:
    text = docker.read("image", "inspect", "--format", "{{json .RepoDigests}}", remote)
    repository = remote.rpartition(":")[0]
    for each in json.loads(text):
        name, _, digest = each.partition("@")
        if name == repository:
            return str(digest)
    raise ToolError(f"Image {remote} has no digest after its push; push it again")


def _name_of(bill: Manifest) -> str:
    return str(bill["metadata"]["component"]["name"]).removeprefix("slipway/")


def _read_digest(bill: Manifest) -> str:
    (found,) = bill["metadata"]["component"]["hashes"]
    return f"sha256:{found['content']}"
