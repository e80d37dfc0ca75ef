"""Render the files of a chart that are the same in every chart."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from libs.common.project.sources import OperatorSource
from libs.common.project.text import NOTICE, render_notice
from tools.generate.sources import GENERATOR

_TEMPLATES: Final = {
    "operator.yaml": ("crds", "operator"),
    "rbac.yaml": ("rbac",),
    "cluster-rbac.yaml": ("clusterRbac",),
}
"""The templates of the library chart that each template includes."""
_IGNORED: Final = """\
# What is in the source tree for developers and not for users of the chart.
BUILD
__init__.py
__pycache__/
files/kustomization.yaml
*_test.py
"""


def render_chart_frame(operator: OperatorSource, root: Path) -> dict[Path, str]:
    """Render the templates, the ignored files and the package of the tests of a chart.

    Nothing if the operator has no chart.
    """
    folder = Path("helm", operator.id)
    if not (root / folder / "Chart.yaml").is_file():
        return {}
    origin = f"{GENERATOR}/chart_frame.py"
    files = {
        folder / ".helmignore": render_notice(origin) + _IGNORED,
        folder
        / "__init__.py": f'{render_notice(origin)}"""Chart of the operator {operator.id}."""\n',
    }
    # A comment of the template language, so that it is no part of what the chart renders.
    notice = f"{{{{- /* {NOTICE.format(origin=origin)} */ -}}}}\n"
    for name, parts in _TEMPLATES.items():
        includes = "".join(f'{{{{- include "operator-common.{part}" . }}}}\n' for part in parts)
        files[folder / "templates" / name] = notice + includes
    return files
