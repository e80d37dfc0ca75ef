"""The contract between pulsarconsumer and what it runs in its pods: the tables of that page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from libs.common.project.text import render_code, render_table, replace_blocks
from operators.pulsarconsumer.app.metrics import METRICS
from operators.pulsarconsumer.app.settings import PREFIX, Settings
from tools.generate.docs.tables import render_metrics_table

PAGE: Final = Path("docs/reference/consumer-contract.md")


def render_consumer_contract(root: Path) -> dict[Path, str]:
    """Render the tables of the page into what people wrote around them."""
    if not (root / PAGE).is_file():
        return {}
    blocks = {"settings": _render_settings(), "metrics": render_metrics_table(METRICS)}
    text = (root / PAGE).read_text(encoding="utf-8")
    return {PAGE: replace_blocks(text, blocks, path=PAGE.as_posix())}


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
