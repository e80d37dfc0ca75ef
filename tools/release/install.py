"""The manifest of a release, for people who install with kubectl alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.text import render_yaml
from tools.cluster.errors import ToolError
from tools.generate.bases import drop_helm_labels, is_hook

NAMESPACE: Final = "slipway-system"
"""Namespace of the operator, which only administrators enter."""
_WATCHED: Final = "default"
"""Namespace of users; every cluster has it."""
VALUES: Final[Mapping[str, Any]] = {"watch": {"namespaces": [_WATCHED]}}
"""Values of the chart that the manifest is rendered with."""
_HEADER: Final = """\
# {operator} {version}: kubectl apply --server-side --filename {file}
#
# The operator runs in the namespace {namespace}, which only administrators should enter, and
# reconciles objects in the namespace {watched}. To watch other namespaces, install the chart: it
# creates permissions for exactly these. To uninstall, delete the objects of the operator's kinds
# first, while the operator can still remove their finalizers.
"""
_TIMEOUT_SECONDS: Final = 60


def render_install(helm: Path, chart: Path, operator: str, version: str) -> str:
    """Render a packaged chart that watches one namespace of users, without hooks.

    Raises:
        ToolError: helm refuses the chart.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    manifests = render_manifests(helm, chart, operator, NAMESPACE, VALUES)
    documents = [render_yaml(one) for one in (namespace, *manifests)]
    file = f"{operator}-{version}-install.yaml"
    header = _HEADER.format(
        operator=operator, version=version, file=file, namespace=NAMESPACE, watched=_WATCHED
    )
    return header + "---\n".join(["", *documents])


def render_manifests(
    helm: Path, chart: Path, operator: str, namespace: str, values: Mapping[str, Any] | None = None
) -> list[Manifest]:
    """Render a packaged chart without its hooks and without the labels of Helm.

    Raises:
        ToolError: helm refuses the chart.
    """
    command = [str(helm), "template", operator, str(chart), "--namespace", namespace]
    run = subprocess.run(
        [*command, "--values", "-"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if run.returncode:
        raise ToolError(f"{chart.name}: {run.stderr.strip()}")
    documents = fastyaml.load_all(run.stdout)
    return [drop_helm_labels(one) for one in documents if one and not is_hook(one)]
