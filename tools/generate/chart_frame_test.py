"""The files that are the same in every chart."""

from __future__ import annotations

from pathlib import Path

from tools.generate.chart_frame import render_chart_frame
from tools.generate.sample import FLEET


def test_chart_includes_every_part_of_the_library_chart(tmp_path: Path) -> None:
    chart = tmp_path / "helm/fleet/Chart.yaml"
    chart.parent.mkdir(parents=True)
    chart.touch()

    files = render_chart_frame(FLEET, tmp_path)

    templates = "".join(text for path, text in files.items() if path.suffix == ".yaml")
    for part in ("crds", "operator", "rbac", "clusterRbac"):
        assert f'include "operator-common.{part}" .' in templates
    assert Path("helm/fleet/__init__.py") in files
    assert "__init__.py\n" in files[Path("helm/fleet/.helmignore")]


def test_operator_without_a_chart_has_no_frame(tmp_path: Path) -> None:
    assert render_chart_frame(FLEET, tmp_path) == {}
