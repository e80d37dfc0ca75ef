"""Render the lists by which kustomize finds the CRDs of an operator: they stay in its chart."""

from __future__ import annotations

from pathlib import Path

from libs.common.project.crds import render_crds
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_yaml


def render_kustomize_crds(operator: OperatorSource) -> dict[Path, str]:
    """Render a list next to the CRDs, and the place from which users apply them.

    kustomize reads files only below a list, but lists from anywhere.
    """
    files = operator.chart / "files"
    folder = Path("deploy", "kustomize", "crds", operator.id)
    crds = sorted(path.relative_to(files).as_posix() for path in render_crds(operator))
    lists = {files: crds, folder: [Path("../../../..", files).as_posix()]}
    return {
        place
        / "kustomization.yaml": render_yaml(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": resources,
            },
            origin=operator.origin(operator.path_of("api")),
        )
        for place, resources in lists.items()
    }
