"""Render the CustomResourceDefinitions of a chart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from libs.common.crd import CustomResource, build_crd, build_object_schema, lint_crd
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_yaml


def render_crds(operator: OperatorSource) -> dict[Path, str]:
    """Render the CRDs of an operator into its chart.

    Raises:
        GenerateError: A kind violates the API lint, or lacks a conversion; the error lists every
            finding.
    """
    findings = [str(finding) for model in operator.resources for finding in lint_crd(model)]
    findings += list_missing_conversions(operator)
    if findings:
        raise GenerateError(findings)
    files: dict[Path, str] = {}
    for models in operator.kinds().values():
        kind = models[0].crd_meta.kind
        sources = dict.fromkeys(f"{model.__module__.replace('.', '/')}.py" for model in models)
        text = render_yaml(build_crd(*models), origin=operator.origin(", ".join(sources)))
        files[operator.chart / "files" / "crds" / f"{kind.group}_{kind.plural}.yaml"] = text
    return files


def list_missing_conversions(operator: OperatorSource) -> Iterator[str]:
    """Yield a finding for each kind whose versions differ and that has no conversion.

    The API server would drop the fields that the requested version does not have.
    """
    declared = {each.kind.resource: {*each.models} for each in operator.conversions}
    for models in operator.kinds().values():
        kind = models[0].crd_meta.kind
        converted: set[type[CustomResource]] = declared.get(kind.resource, set())
        schemas = [build_object_schema(model).schema["properties"] for model in models]
        if any(schema != schemas[0] for schema in schemas) and converted != {*models}:
            yield f"{kind.kind}: its versions differ; declare their Conversion in CONVERSIONS"
