"""Installs KubeVirt and CDI into a kind cluster, from whatever state the last run left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.kubevirt.kvm_probe import DEVICE, kvm_works
from lab.kubevirt.manifests import (
    Installation,
    ManifestOptions,
    build_installation,
    list_missing_kinds,
)
from lab.kubevirt.source import OFFER, Source, fetch_published, find_in_folder
from lab.kubevirt.state import find_state
from libs.common.kinds import Manifest
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl, render_list
from tools.cluster.progress import Progress

_READY_SECONDS: Final = 900.0
_POLL_SECONDS: Final = 2.0
_STORAGE_CLASS: Final = "standard"
_CLAIMS: Final = [{"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}]
_PROFILE: Final = json.dumps({"spec": {"claimPropertySets": _CLAIMS}})


@dataclass(slots=True)
class KubeVirtInstaller:
    """An installer of KubeVirt and CDI.

    Attributes:
        cluster: The cluster, which is up.
        progress: Shows the steps.
        works: Returns whether hardware virtualization works.
    """

    cluster: KindCluster
    progress: Progress
    works: Callable[[], bool] = kvm_works

    def install(self, folder: Path | None = None) -> None:
        """Install and wait until both are available.

        Args:
            folder: Images and manifests of the user; None uses the images of the last run on this
                cluster, else the published releases.

        Raises:
            ToolError: They cannot be had, or do not become available in time.
        """
        kubectl = self.cluster.kubectl()
        state = find_state(kubectl)
        if state.simulated:
            raise ToolError(
                "The cluster has the simulated KubeVirt: run `./dev kubevirt-sim --remove` first"
            )
        if folder is None and state.ready:
            self.progress.say(f"{state.describe()} is there already.")
            return
        source = self._find_source(folder)
        installation = self._prepare(kubectl, source)
        self._load(source)
        self._apply(kubectl, installation)
        self._wait(kubectl)
        self._describe_storage(kubectl)

    def _find_source(self, folder: Path | None) -> Source:
        marker = self.cluster.cache.path("clusters", self.cluster.name, "kubevirt-from")
        if folder is not None:
            source = find_in_folder(folder)
            self.cluster.cache.write(marker, str(folder.absolute()))
            return source
        if marker.exists():
            return find_in_folder(Path(marker.read_text()))
        created = self.cluster.created()
        pulls = created is not None and not created.local_image
        return fetch_published(self.progress, self.cluster.cache, pulls=pulls)

    def _prepare(self, kubectl: Kubectl, source: Source) -> Installation:
        emulate = not self.works()
        if emulate:
            there = DEVICE.exists()
            why = f"guests do not run on {DEVICE}" if there else f"there is no {DEVICE}"
            self.progress.say(f"Guests run in software emulation: {why}.")
        nodes = kubectl.items("nodes")
        runtime = nodes[0]["status"]["nodeInfo"]["containerRuntimeVersion"]
        options = ManifestOptions(emulate, runtime, len(nodes))
        installation = build_installation(source.read_manifests(), options)
        if missing := list_missing_kinds(installation):
            raise ToolError(f"The manifests create no {' and no '.join(missing)}: {OFFER}")
        return installation

    def _load(self, source: Source) -> None:
        """Load the archives that were not loaded in this form yet."""
        cache, name = self.cluster.cache, self.cluster.name
        for archive in source.archives:
            facts = archive.stat()
            form = f"{archive.absolute()} {facts.st_size} {facts.st_mtime_ns}"
            marker = cache.path("clusters", name, "images", f"archive-{archive.stem}")
            if marker.exists() and marker.read_text() == form:
                continue
            self.cluster.load_archive(archive, archive.name, "1 minute", self.progress)
            cache.write(marker, form)

    def _apply(self, kubectl: Kubectl, installation: Installation) -> None:
        with self.progress.step("Operators of KubeVirt and CDI", "5 seconds"):
            _apply_all(kubectl, installation.operators)
            names = [each["metadata"]["name"] for each in installation.operators if _is_crd(each)]
            crds = [f"crd/{name}" for name in names]
            kubectl.read("wait", "--for=condition=Established", "--timeout=60s", *crds, seconds=70)
            _apply_all(kubectl, installation.resources)

    def _wait(self, kubectl: Kubectl) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        with self.progress.step("KubeVirt and CDI available", "3 minutes"):
            while not (state := find_state(kubectl)).ready:
                self.progress.note(state.describe())
                if time.monotonic() > deadline:
                    raise ToolError(
                        f"Not available after {_READY_SECONDS:g} s: {state.describe()}; look at"
                        " the pods with `./dev kubectl get pods --all-namespaces`, then run the"
                        " command again"
                    )
                time.sleep(_POLL_SECONDS)
        self.progress.say(f"{state.describe()}.")

    def _describe_storage(self, kubectl: Kubectl) -> None:
        """Tell CDI what claims of the default class may ask for; CDI does not know that class."""
        found = kubectl.items(
            "storageprofiles", "--field-selector", f"metadata.name={_STORAGE_CLASS}"
        )
        if found and not (found[0].get("spec") or {}).get("claimPropertySets"):
            patch = (
                "patch",
                "storageprofile",
                _STORAGE_CLASS,
                "--type=merge",
                f"--patch={_PROFILE}",
            )
            kubectl.read(*patch)


def _apply_all(kubectl: Kubectl, manifests: Iterable[Manifest]) -> None:
    apply = ("apply", "--server-side", "--force-conflicts", "--filename", "-")
    kubectl.read(*apply, stdin=render_list(manifests), seconds=180.0)


def _is_crd(manifest: Manifest) -> bool:
    return bool(manifest.get("kind") == "CustomResourceDefinition")
