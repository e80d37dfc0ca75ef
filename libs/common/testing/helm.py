"""Renders charts with the real helm, so that tests see what an installation would get.

helm is found by the variable SLIPWAY_HELM (the conftest of the charts sets it), else on PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from libs.common import fastyaml
from libs.common.kinds import Manifest

HELM_VARIABLE: Final = "SLIPWAY_HELM"
CHARTS: Final = Path(__file__).parents[3] / "helm"
"""Where the charts are, one directory for each."""

REGISTRY: Final = "registry.example.com"
"""Registry of the images unless a test says otherwise: charts demand one."""
_TIMEOUT_SECONDS: Final = 300.0
_LIBRARY: Final = "operator-common"


class HelmMissing(Exception):
    """There is no helm on this machine."""

    def __init__(self) -> None:
        """Say how to get it."""
        super().__init__(f"Cannot find helm; set {HELM_VARIABLE}, or put helm on PATH")


class HelmError(Exception):
    """helm refused a chart or its values."""

    def __init__(self, command: str, message: str) -> None:
        """Keep helm's own words, for tests match them."""
        super().__init__(f"helm {command}: {message}")


def find_helm() -> Path:
    """Return the helm binary.

    Raises:
        HelmMissing: There is none.
    """
    found = os.environ.get(HELM_VARIABLE) or shutil.which("helm")
    if not found:
        raise HelmMissing
    return Path(found)


def find_charts() -> list[str]:
    """Return the names of all charts that can be installed."""
    names = (path.parent.name for path in CHARTS.glob("*/Chart.yaml"))
    return sorted(name for name in names if name != _LIBRARY)


def render_chart(
    chart: str,
    values: Mapping[str, Any] | None = None,
    *,
    release: str = "",
    namespace: str = "default",
    show_only: Sequence[str] = (),
) -> list[Manifest]:
    """Render a chart as `helm template` does, hooks included.

    Args:
        chart: Name of the chart, its directory under `helm/`.
        values: Values that differ from the defaults.
        release: Name of the release. Defaults to the name of the chart.
        namespace: Namespace of the release.
        show_only: Kinds to keep; empty means all.

    Raises:
        HelmError: The chart or the values are refused; carries helm's words.
        HelmMissing: There is no helm.
    """
    text = _template(chart, json.dumps(with_registry(values)), release or chart, namespace)
    manifests: list[Manifest] = list(fastyaml.load_all(text))
    return [one for one in manifests if not show_only or one["kind"] in show_only]


def render_notes(
    chart: str, values: Mapping[str, Any] | None = None, *, namespace: str = "default"
) -> str:
    """Render what helm would print after an installation."""
    flags = ("install", chart, str(CHARTS / chart), "--namespace", namespace, "--dry-run=client")
    text = run_helm(*flags, "--values", "-", stdin=json.dumps(with_registry(values)))
    return text.partition("\nNOTES:\n")[2]


def with_registry(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Add a registry to values that do not say where the image is."""
    given = dict(values or {})
    return given if "image" in given else {**given, "image": {"registry": REGISTRY}}


def run_helm(*arguments: str, stdin: str = "") -> str:
    """Run helm and return what it prints.

    Raises:
        HelmError: It failed.
        HelmMissing: There is no helm.
    """
    run = subprocess.run(
        [str(find_helm()), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
    )
    if run.returncode:
        raise HelmError(arguments[0], run.stderr.strip() or run.stdout.strip())
    return run.stdout


@cache
def _template(chart: str, values: str, release: str, namespace: str) -> str:
    """Render once for each set of values: the charts do not change while tests run."""
    flags = ("template", release, str(CHARTS / chart), "--namespace", namespace, "--values", "-")
    return run_helm(*flags, stdin=values)
