"""Reference pages: API, conditions, metrics, permissions and settings of each operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_page, render_table
from libs.common.project.values import render_values_table
from tools.generate.docs.api import render_api, render_api_summary
from tools.generate.docs.examples import render_examples
from tools.generate.docs.tables import (
    list_tuning_settings,
    render_common_settings,
    render_conditions,
    render_framework_metrics,
    render_metrics,
    render_own_settings,
    render_permissions_tables,
)
from tools.generate.sources import GENERATOR

_LEADS: Final = {
    "api": """This page lists every field of the kinds of {id}, as `kubectl explain` describes them,
the rules that the API server checks, and example manifests.""",
    "conditions": """This page lists the conditions in the status of each kind of {id}, their
reasons, and the Events that the operator records.""",
    "metrics": "This page lists the metrics that only {id} serves.",
    "rbac": """This page lists the permissions of the service account of {id}, and why the operator
needs each one.""",
    "settings": """This page lists the flags that only {id} has, or that have another default,
and the environment variables that set the same values. In the chart, the values under `settings`
set them.""",
}
"""What each page is for, in its first paragraph."""


def render_reference(operator: OperatorSource, root: Path) -> dict[Path, str]:
    """Render the reference pages of an operator."""
    folder = Path("docs", "reference", operator.id)
    pages: Mapping[str, tuple[str, str, str]] = {
        "api": ("API", f"{render_api(operator)}\n\n{render_examples(operator, root)}", "api"),
        "conditions": ("Conditions and reasons", render_conditions(operator), "api"),
        "metrics": ("Metrics", render_metrics(operator), "metrics"),
        "rbac": ("Permissions", render_permissions_tables(operator), "rules"),
        "settings": ("Settings", render_own_settings(operator), "settings"),
    }
    return {
        folder
        / f"{name}.md": render_page(
            f"{operator.id}: {title}",
            [_render_lead(name, operator), body],
            origin=operator.origin(operator.path_of(source)),
        )
        for name, (title, body, source) in pages.items()
    }


def _render_lead(page: str, operator: OperatorSource) -> str:
    if page == "metrics" and not operator.metrics:
        return ""
    return _LEADS[page].format(id=operator.id)


def render_index(operators: Sequence[OperatorSource], library: Path) -> dict[Path, str]:
    """Render the pages about all operators: the index, and what all of them have."""
    pages = ("api", "conditions", "settings", "metrics", "rbac")
    rows = [
        (
            operator.id,
            ", ".join(f"`{kind}`" for _, kind in operator.kinds()),
            ", ".join(f"[{page}]({operator.id}/{page}.md)" for page in pages),
        )
        for operator in operators
    ]
    intro = (
        "Every page here is generated: `./dev generate` writes them from the code. "
        "[Metrics](metrics.md), [settings](settings.md) and [chart values](chart-values.md) that "
        "every operator has are on one page each. "
        "[Public API of the library](library.md) lists what operators can import."
    )
    table = render_table(("Operator", "Kinds", "Pages"), rows)
    text = render_page("Reference", [intro, table], origin=f"{GENERATOR} from operators")
    metrics = render_page(
        "Metrics of every operator",
        [
            """This page lists the metrics that every operator serves at `/metrics`.
[Monitor an operator](../howto/monitor.md) describes how to scrape them.""",
            render_framework_metrics(),
        ],
        origin=f"{GENERATOR} from libs/common/metric_specs.py",
    )
    settings = render_page(
        "Settings of every operator",
        [
            """This page lists the flags and environment variables that every operator has. `<ID>`
stands for the id of the operator in capital letters, for example `PODSET`. In the chart, the values
under `settings` set them, except those that the chart derives from other values.""",
            render_common_settings(),
            f"""A few more exist for tests and unusual clusters. They work in the same way, but
`--help` and the charts do not list them:
[fields.py](../../libs/common/settings/fields.py) describes {list_tuning_settings()}.""",
        ],
        origin=f"{GENERATOR} from libs/common/settings/fields.py",
    )
    values = render_page(
        "Chart values of every operator",
        [
            """This page lists the values of every chart; `<id>` stands for the id of the operator.
The settings of an operator are the [settings of every operator](settings.md) and the settings in
the README of its chart.""",
            render_values_table(operators[0], library).replace(
                f"slipway/{operators[0].id}", "slipway/<id>"
            ),
        ],
        origin=f"{GENERATOR} from helm/operator-common/files/values.yaml",
    )
    folder = Path("docs", "reference")
    return {
        folder / "README.md": text,
        folder / "chart-values.md": values,
        folder / "metrics.md": metrics,
        folder / "settings.md": settings,
    }


def build_blocks(operator: OperatorSource) -> dict[str, str]:
    """Build the texts that READMEs can have between markers, by name."""
    return {
        "api": render_api_summary(operator),
        "conditions": render_conditions(operator, heading="###"),
        "links": _render_links(operator),
    }


def _render_links(operator: OperatorSource) -> str:
    """Render links from the README of an operator to its reference pages and its chart."""
    pages = {"api": "fields", "rbac": "permissions"}
    names = ("api", "conditions", "settings", "rbac", "metrics")
    links = [
        f"[{pages.get(name, name)}](../../docs/reference/{operator.id}/{name}.md)" for name in names
    ]
    chart = f"[helm/{operator.id}](../../helm/{operator.id})"
    return f"Reference: {', '.join(links)}. Chart: {chart}."
