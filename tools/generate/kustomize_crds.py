"""Render the CRDs of an operator for kustomize: the files of its chart, and a list of them."""

from __future__ import annotations

from pathlib import Path

from libs.common.project.crds import render_crds
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_yaml


def render_kustomize_crds(operator: OperatorSource) -> dict[Path, str]:
    """Render the CRDs of an operator for kustomize."""
    folder = Path("deploy", "kustomize", "crds", operator.id)
    crds = {path.name: text for path, text in render_crds(operator).items()}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(crds),
    }
    listing = render_yaml(kustomization, origin=operator.origin(operator.path_of("api")))
    files = {folder / name: text for name, text in crds.items()}
    return {**files, folder / "kustomization.yaml": listing}
