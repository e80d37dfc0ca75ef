"""Render the files of a project that are generated from its code: chart and Containerfile."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from libs.common.project.crds import render_crds
from libs.common.project.create import PACKAGE
from libs.common.project.errors import GenerateError
from libs.common.project.permissions import render_permissions
from libs.common.project.settings import render_settings_map
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_notice, render_yaml
from libs.common.project.values import render_values, render_values_schema
from libs.common.version import __version__

_TEMPLATES: Final = {
    "operator.yaml": '{{- include "operator-common.operator" . }}\n',
    "rbac.yaml": '{{- include "operator-common.rbac" . }}\n',
    "cluster-rbac.yaml": '{{- include "operator-common.clusterRbac" . }}\n',
    "crds.yaml": '{{- include "operator-common.crds" . }}\n',
    "NOTES.txt": '{{ include "operator-common.notes" . }}\n',
}
WHEELS: Final = "wheels"
"""Folder of a project with wheels that are not on a package index, such as the library."""
_INSTALL: Final = 'RUN ["python3", "-m", "pip", "install", "--no-cache-dir", {}]'
_CONTAINERFILE: Final = """\
ARG BASE=docker.io/library/python:3.13-slim
FROM ${{BASE}}
{install}
WORKDIR /app
COPY *.py ./
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["python3", "-m", "{package}.run", "controller"]
"""


def find_library_chart() -> Path:
    """Return the folder of the library chart, in the wheel or in the repository.

    Raises:
        GenerateError: The folder is in neither of them.
    """
    here = Path(__file__).resolve()
    for folder in (here.parent / "operator-common", here.parents[3] / "helm" / "operator-common"):
        if (folder / "Chart.yaml").is_file():
            return folder
    raise GenerateError([f"{here.parent / 'operator-common'}: the library chart is missing"])


def render_project(
    operator: OperatorSource, version: str = "0.1.0", *, wheels: bool = False
) -> dict[Path, str]:
    """Render all generated files of a project.

    Args:
        operator: Declarations of the project.
        version: Version of the chart and of the image.
        wheels: Whether the project has a folder `wheels`.
    """
    library = find_library_chart()
    origin = operator.origin(operator.path_of("controller"))
    notice = render_notice(origin)
    values = render_values(operator, library)
    files = {
        **render_crds(operator),
        **render_permissions(operator),
        **render_settings_map(operator),
        **render_values_schema(operator, library),
        # The default repository of a project is the id of the operator, in the registry of the
        # user.
        operator.chart / "values.yaml": values.replace(f"slipway/{operator.id}", operator.id),
        operator.chart / "Chart.yaml": render_yaml(build_chart(operator, version), origin=origin),
        Path("Containerfile"): notice
        + _CONTAINERFILE.format(install=_render_install(operator, wheels), package=PACKAGE),
    }
    if operator.webhooks or operator.conversions:
        webhooks = {
            "webhooks": list(operator.webhooks),
            "conversions": [each.to_chart() for each in operator.conversions],
        }
        files[operator.chart / "files" / "webhooks.yaml"] = render_yaml(webhooks, origin=origin)
    for name, text in _TEMPLATES.items():
        files[operator.chart / "templates" / name] = text
    for path in sorted(library.rglob("*")):
        if path.is_file():
            target = operator.chart / "charts" / "operator-common" / path.relative_to(library)
            files[target] = path.read_text(encoding="utf-8")
    return files


def build_chart(operator: OperatorSource, version: str) -> dict[str, object]:
    """Build Chart.yaml."""
    kinds = ", ".join(kind for _, kind in operator.kinds())
    return {
        "apiVersion": "v2",
        "name": operator.id,
        "description": f"An operator for {kinds}.",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": ">=1.32.0-0",
        "dependencies": [{"name": "operator-common", "version": "0.1.0", "repository": ""}],
    }


def _render_install(operator: OperatorSource, wheels: bool) -> str:
    extra = "[webhooks]" if operator.webhooks or operator.conversions else ""
    requirement = f'"slipway-operators{extra}~={__version__}"'
    if not wheels:
        return _INSTALL.format(requirement)
    return f"COPY {WHEELS} /{WHEELS}\n" + _INSTALL.format(
        f'"--find-links", "/{WHEELS}", {requirement}'
    )
