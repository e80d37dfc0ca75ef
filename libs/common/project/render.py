"""Render the files of a project that are generated from its code: chart and Containerfile."""

from __future__ import annotations

import json
import re
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

_TEMPLATES: Final = {
    "operator.yaml": '{{- include "operator-common.operator" . }}\n',
    "rbac.yaml": '{{- include "operator-common.rbac" . }}\n',
    "cluster-rbac.yaml": '{{- include "operator-common.clusterRbac" . }}\n',
    "crds.yaml": '{{- include "operator-common.crds" . }}\n',
    "NOTES.txt": '{{ include "operator-common.notes" . }}\n',
}
WHEELS: Final = "wheels"
"""Folder of a project with wheels that are not on a package index, such as the library."""
LOCK: Final = "requirements.lock"
"""File of a project with the hash of each package that its image contains."""
LOCK_COMMAND: Final = (
    "uv pip compile --python-version 3.13 --universal --generate-hashes --only-binary :all:"
    f" --no-annotate requirements.in -o {LOCK}"
)
"""Command that writes the lock in the folder of a project."""
INSTALL: Final = (
    *("--no-cache-dir", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
    *("--requirement", LOCK),
)
"""Options of `pip install` that install the locked files and nothing that an index prefers."""
_BRAND: Final = re.compile("slipway", re.IGNORECASE)
_BRANDED: Final = ("_names.tpl", "_dashboard.tpl")
"""Templates of names that the objects of a project must not have."""
_CONTAINERFILE: Final = """\
# Set BASE to an image with its digest, so that equal sources give equal images.
ARG BASE=docker.io/library/python:3.13-slim
FROM ${{BASE}}
WORKDIR /app
COPY wheels ./wheels
COPY {lock} ./
RUN {install}
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


def render_project(operator: OperatorSource, version: str = "0.1.0") -> dict[Path, str]:
    """Render all generated files of a project.

    Args:
        operator: Declarations of the project.
        version: Version of the chart and of the image.
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
        + _CONTAINERFILE.format(
            lock=LOCK,
            install=json.dumps(["python3", "-m", "pip", "install", *INSTALL]),
            package=PACKAGE,
        ),
    }
    if operator.webhooks:
        webhooks = {"webhooks": list(operator.webhooks)}
        files[operator.chart / "files" / "webhooks.yaml"] = render_yaml(webhooks, origin=origin)
    for name, text in _TEMPLATES.items():
        files[operator.chart / "templates" / name] = text
    for path in sorted(library.rglob("*")):
        if path.is_file():
            target = operator.chart / "charts" / "operator-common" / path.relative_to(library)
            text = path.read_text(encoding="utf-8")
            files[target] = _BRAND.sub(operator.id, text) if path.name in _BRANDED else text
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
