"""The manifests of KubeVirt and CDI, in the form in which they fit a small cluster; pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from libs.common import fastyaml
from libs.common.kinds import Manifest

_IMAGE_VOLUMES: Final = (2, 1)
"""The first containerd with image volumes, which KubeVirt uses for container disks by default."""
_OWN_KINDS: Final = ("KubeVirt", "CDI")


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """What the manifests are fitted to.

    Attributes:
        emulate: Whether guests run in software emulation.
        runtime: Container runtime of the nodes, as in `status.nodeInfo.containerRuntimeVersion`.
        nodes: How many nodes there are; a single one gets one replica of everything.
    """

    emulate: bool
    runtime: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Installation:
    """What is applied, in this order.

    Attributes:
        operators: Namespaces, CRDs, rights and Deployments of the two operators.
        resources: The resources of kind KubeVirt and CDI, which the operators act on.
    """

    operators: tuple[Manifest, ...]
    resources: tuple[Manifest, ...]


def build_installation(texts: Iterable[str], options: ManifestOptions) -> Installation:
    """Return what to apply of the text of manifests."""
    documents = [document for text in texts for document in fastyaml.load_all(text)]
    operators = [each for each in documents if each.get("kind") not in _OWN_KINDS]
    resources = [each for each in documents if each.get("kind") in _OWN_KINDS]
    return Installation(
        tuple(_shrink(each, options) for each in operators),
        tuple(_fit(each, options) for each in resources),
    )


def has_image_volumes(runtime: str) -> bool:
    """Return whether a container runtime mounts images as volumes, or is unknown."""
    found = re.fullmatch(r"containerd://v?(\d+)\.(\d+)\..*", runtime)
    return found is None or (int(found[1]), int(found[2])) >= _IMAGE_VOLUMES


def list_missing_kinds(installation: Installation) -> list[str]:
    """Return which of KubeVirt and CDI the manifests do not create."""
    found = {each["kind"] for each in installation.resources}
    return [kind for kind in _OWN_KINDS if kind not in found]


def _shrink(manifest: Manifest, options: ManifestOptions) -> Manifest:
    if manifest.get("kind") != "Deployment" or options.nodes > 1:
        return manifest
    return {**manifest, "spec": {**manifest["spec"], "replicas": 1}}


def _fit(manifest: Manifest, options: ManifestOptions) -> Manifest:
    if manifest["kind"] != "KubeVirt":
        return manifest
    fitted = copy.deepcopy(dict(manifest))
    spec = fitted.setdefault("spec", {})
    developer = _child(_child(spec, "configuration"), "developerConfiguration")
    developer["useEmulation"] = options.emulate
    if not has_image_volumes(options.runtime):
        disabled = developer.get("disabledFeatureGates") or []
        developer["disabledFeatureGates"] = sorted({*disabled, "ImageVolume"})
    if options.nodes == 1:
        _child(spec, "infra")["replicas"] = 1
    return fitted


def _child(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    if not isinstance(found, Mapping):
        parent[name] = {}
    child: dict[str, Any] = parent[name]
    return child
