"""Where KubeVirt and CDI come from: their published releases, or a folder that the user names."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress

KUBEVIRT: Final = "v1.9.0"
CDI: Final = "v1.66.0"
_GITHUB: Final = "https://github.com/kubevirt"
PUBLISHED: Final = (
    f"{_GITHUB}/kubevirt/releases/download/{KUBEVIRT}/kubevirt-operator.yaml",
    f"{_GITHUB}/kubevirt/releases/download/{KUBEVIRT}/kubevirt-cr.yaml",
    f"{_GITHUB}/containerized-data-importer/releases/download/{CDI}/cdi-operator.yaml",
    f"{_GITHUB}/containerized-data-importer/releases/download/{CDI}/cdi-cr.yaml",
)
"""Manifests of the pinned releases; nodes pull their images from quay.io."""
_SECONDS: Final = 15.0
OFFER: Final = (
    "name a folder with their image archives (*.tar) and manifests (*.yaml) by --kubevirt-from, or"
    " simulate them with `./dev kubevirt-sim --deploy`"
)


@dataclass(frozen=True, slots=True)
class Source:
    """Files to install from.

    Attributes:
        manifests: Files with manifests.
        archives: Archives of `docker save` with the images; empty if nodes pull them.
    """

    manifests: tuple[Path, ...]
    archives: tuple[Path, ...] = ()

    def read_manifests(self) -> list[str]:
        """Return the texts of the manifests."""
        return [path.read_text() for path in self.manifests]


def find_in_folder(folder: Path) -> Source:
    """Return what a folder of the user has.

    Raises:
        ToolError: Manifests or images are missing in it.
    """
    manifests = tuple(sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]))
    archives = tuple(sorted(folder.glob("*.tar")))
    for found, pattern in ((manifests, "*.yaml"), (archives, "*.tar")):
        if not found:
            raise ToolError(f"{folder} has no {pattern}: {OFFER}")
    return Source(manifests, archives)


def fetch_published(progress: Progress, cache: Cache, *, pulls: bool) -> Source:
    """Return the manifests of the pinned releases, downloaded once.

    Args:
        pulls: Whether the nodes of the cluster can pull images.

    Raises:
        ToolError: They cannot be had here; the message offers what works without a registry.
    """
    refusal = f"KubeVirt {KUBEVIRT} and CDI {CDI} cannot be pulled, no registry answers: {OFFER}"
    if not pulls:
        raise ToolError(refusal)

    def build(folder: Path) -> None:
        with progress.step(f"Manifests of KubeVirt {KUBEVIRT} and CDI {CDI}", "5 seconds"):
            for url in PUBLISHED:
                (folder / url.rpartition("/")[2]).write_bytes(_download(url))

    try:
        place = cache.ensure("kubevirt", f"{KUBEVIRT}-{CDI}", build)
    except (urllib.error.URLError, TimeoutError) as err:
        raise ToolError(f"{refusal}\n{err}") from err
    return Source(tuple(sorted(place.glob("*.yaml"))))


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_SECONDS) as response:
        content: bytes = response.read()
    return content
