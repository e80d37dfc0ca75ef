"""Render the CustomResourceDefinitions of a chart."""

from __future__ import annotations

from pathlib import Path

from libs.common.crd import build_crd, lint_crd
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_yaml


def render_crds(operator: OperatorSource) -> dict[Path, str]:
    """Render the CRDs of an operator into its chart.

    Raises:
        GenerateError: A kind violates the API lint; the error lists every finding.
    """
    findings = [str(finding) for model in operator.resources for finding in lint_crd(model)]
    if findings:
        raise GenerateError(findings)
    files: dict[Path, str] = {}
    for models in operator.kinds().values():
        kind = models[0].crd_meta.kind
        sources = dict.fromkeys(f"{model.__module__.replace('.', '/')}.py" for model in models)
        text = render_yaml(build_crd(*models), origin=operator.origin(", ".join(sources)))
        files[operator.chart / "files" / "crds" / f"{kind.group}_{kind.plural}.yaml"] = text
    return files
