"""Render the CustomResourceDefinitions of a chart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from libs.common.crd import build_crd, build_object_schema, lint_crd
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_yaml


def render_crds(operator: OperatorSource) -> dict[Path, str]:
    """Render the CRDs of an operator into its chart.

    Raises:
        GenerateError: A kind violates the API lint, or its versions differ; the error lists every
            finding.
    """
    findings = [str(finding) for model in operator.resources for finding in lint_crd(model)]
    findings += list_differing_versions(operator)
    if findings:
        raise GenerateError(findings)
    files: dict[Path, str] = {}
    for models in operator.kinds().values():
        kind = models[0].crd_meta.kind
        sources = dict.fromkeys(f"{model.__module__.replace('.', '/')}.py" for model in models)
        text = render_yaml(build_crd(*models), origin=operator.origin(", ".join(sources)))
        files[operator.chart / "files" / "crds" / f"{kind.group}_{kind.plural}.yaml"] = text
    return files


def list_differing_versions(operator: OperatorSource) -> Iterator[str]:
    """Yield a finding for each kind whose versions differ.

    The API server would drop the fields that the requested version does not have.
    """
    for models in operator.kinds().values():
        kind = models[0].crd_meta.kind
        schemas = [build_object_schema(model).schema["properties"] for model in models]
        if any(schema != schemas[0] for schema in schemas):
            yield (
                f"{kind.kind}: its versions differ, so the API server would lose fields; give all "
                "versions the same fields"
            )
