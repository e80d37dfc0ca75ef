"""The tables of the pages about the app that pulsarconsumer runs in its pods."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from libs.common.project.text import render_code, render_table, replace_blocks
from operators.pulsarconsumer.app.core.states import TRANSITIONS
from operators.pulsarconsumer.app.metrics import METRICS
from operators.pulsarconsumer.app.settings import PREFIX, Settings
from tools.generate.docs.tables import render_metrics_table

PAGES: Final = (
    Path("docs/reference/consumer-contract.md"),
    Path("docs/explanation/consumer-states.md"),
)


def render_consumer_pages(root: Path) -> dict[Path, str]:
    """Render the tables into the text around them."""
    transitions = [(before, event, after) for (before, event), after in TRANSITIONS.items()]
    blocks = {
        "settings": _render_settings(),
        "metrics": render_metrics_table(METRICS),
        "transitions": render_table(("State", "Event", "Next state"), transitions),
    }
    return {
        page: replace_blocks((root / page).read_text("utf-8"), blocks, path=page.as_posix())
        for page in PAGES
        if (root / page).is_file()
    }


def _render_settings() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        default = "must be set" if field.is_required() else _render_default(field.default)
        text = " ".join((field.description or "").split())
        rows.append((render_code(f"{PREFIX}{name.upper()}"), default, text))
    return render_table(("Variable", "Default", "Meaning"), rows)


def _render_default(value: object) -> str:
    match value:
        case bool():
            shown = str(value).lower()
        case float():
            shown = f"{value:g}"
        case _:
            shown = str(value) if value not in ("", ()) else ""
    return render_code(shown) if shown else ""
