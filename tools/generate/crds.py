"""Render CustomResourceDefinitions, for the chart and for kustomize alike."""

from __future__ import annotations

from pathlib import Path

from libs.common.crd import build_crd, lint_crd
from tools.generate.errors import GenerateError
from tools.generate.sources import OperatorSource, source_path
from tools.generate.text import render_yaml


def render_crds(operator: OperatorSource) -> dict[Path, str]:
    """Render the CRDs of an operator, and the kustomization that lists them.

    Raises:
        GenerateError: A kind breaks the API lint; lists every finding.
    """
    findings = [str(finding) for model in operator.resources for finding in lint_crd(model)]
    if findings:
        raise GenerateError(findings)
    chart = Path("helm", operator.id, "files", "crds")
    kustomize = Path("deploy", "kustomize", "crds", operator.id)
    files: dict[Path, str] = {}
    names = []
    for models in operator.kinds().values():
        kind = models[0].crd_meta.kind
        name = f"{kind.group}_{kind.plural}.yaml"
        source = ", ".join(source_path(model) for model in models)
        text = render_yaml(build_crd(*models), source=source)
        files[chart / name] = files[kustomize / name] = text
        names.append(name)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(names),
    }
    files[kustomize / "kustomization.yaml"] = render_yaml(
        kustomization, source=operator.path_of("api")
    )
    return files
