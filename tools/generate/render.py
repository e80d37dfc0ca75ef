"""Render every generated file of the repository, as text by path, without writing any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from libs.common.project.crds import render_crds
from libs.common.project.errors import GenerateError
from libs.common.project.permissions import render_permissions
from libs.common.project.settings import CHART_OWNED, own_settings, render_settings_map
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_json, replace_blocks
from libs.common.project.values import (
    build_values_schema,
    read_values,
    render_settings_values,
    render_values,
)
from tools.generate.chart_frame import render_chart_frame
from tools.generate.chart_metadata import render_chart_metadata
from tools.generate.docs import build_blocks, render_index, render_reference
from tools.generate.docs.consumer import render_consumer_pages
from tools.generate.docs.library import render_library
from tools.generate.entry_point import render_entry_point
from tools.generate.gitops import render_gitops
from tools.generate.kustomize_crds import render_kustomize_crds
from tools.generate.plugin import (
    render_plugin_kinds,
    render_plugin_redaction,
    render_plugin_reference,
)
from tools.generate.sources import (
    GENERATOR,
    LIBRARY_CHART,
    ROOT,
    SCHEMA,
    find_operators,
    load_operators,
)
from tools.generate.state_metrics import render_state_metrics

_CHART_VALUES: Final = """\
[Chart values of every operator](../../docs/reference/chart-values.md) and
[settings of every operator](../../docs/reference/settings.md) describe the values that all charts
have. This chart has these settings in addition, or with another default:"""


def render_all(root: Path = ROOT, ids: Iterable[str] | None = None) -> dict[Path, str]:
    """Render all files that need nothing but the sources.

    What is written by hand around a generated block is read from the tree and kept.

    Args:
        root: Root of the repository.
        ids: Operators to render, all by default; the index is left out when some are missing.

    Raises:
        GenerateError: Sources are missing or break a lint; lists every problem.
    """
    operators = load_operators(root, ids)
    problems: list[str] = []
    files: dict[Path, str] = {}
    for operator in operators:
        try:
            files |= render_operator(operator, root)
        except GenerateError as err:
            problems.extend(err.problems)
    if problems:
        raise GenerateError(problems)
    if {operator.id for operator in operators} == set(find_operators(root)):
        files |= render_index(operators, root / LIBRARY_CHART)
        files |= render_schema(operators, root)
        files |= render_consumer_pages(root)
        files |= render_state_metrics(operators)
        files |= render_plugin_kinds(operators)
        files |= render_plugin_redaction(root)
        files |= render_library()
        files |= render_plugin_reference()
    return dict(sorted(files.items()))


def render_operator(operator: OperatorSource, root: Path) -> dict[Path, str]:
    """Render the files of one operator."""
    return {
        **render_entry_point(operator),
        **render_crds(operator),
        **render_kustomize_crds(operator),
        **render_permissions(operator),
        **render_settings_map(operator),
        **render_reference(operator, root),
        **_render_values(operator, root),
        **render_chart_frame(operator, root),
        **render_chart_metadata(operator, root),
        **render_gitops(operator, root),
        **_render_readmes(operator, root),
    }


def render_schema(operators: Sequence[OperatorSource], root: Path) -> dict[Path, str]:
    """Render the schema of the values, which every chart links to as `values.schema.json`."""
    values = read_values(operators[0], root / LIBRARY_CHART)
    schema = build_values_schema(operators, values)
    origin = f"{GENERATOR} from operators and libs/common/project/chart_values.py"
    return {SCHEMA: render_json(schema, origin=origin)}


def _render_settings(operator: OperatorSource) -> str:
    """Render the settings in the README of a chart: those that not every chart has."""
    specs = [spec for spec in own_settings(operator) if spec.name not in CHART_OWNED]
    table = render_settings_values(operator, specs)
    return f"{_CHART_VALUES}\n\n{table or 'None.'}"


def _render_values(operator: OperatorSource, root: Path) -> dict[Path, str]:
    folder = Path("helm", operator.id)
    if not (root / folder / "Chart.yaml").is_file():
        return {}
    return {folder / "values.yaml": render_values(operator, root / LIBRARY_CHART)}


def _render_readmes(operator: OperatorSource, root: Path) -> dict[Path, str]:
    files = {}
    for path in (
        Path("operators", operator.id, "README.md"),
        Path("helm", operator.id, "README.md"),
    ):
        if (root / path).is_file():
            text = (root / path).read_text(encoding="utf-8")
            blocks = {**build_blocks(operator), "settings": _render_settings(operator)}
            files[path] = replace_blocks(text, blocks, path=path.as_posix())
    return files
