"""Dashboards drawn as SVG from the recorded values of a demo."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.site.drawing import Drawing

RECORD: Final = Path(__file__).resolve().parents[2] / "docs" / "images" / "monitoring.json"
"""Values that `python -m tools.monitoring.record` wrote."""

_WIDTH: Final = 980
_COLUMNS: Final = 3
_GAP: Final = 12
_STAT_HEIGHT: Final = 84
_GRAPH_HEIGHT: Final = 196
_TOP: Final = 34
_LEGENDS: Final = 4
"""Series named below a graph; the others are counted."""
_LETTERS: Final = 40
_DOT: Final = 4
"""Width of a value between two gaps."""
_COLORS: Final = ("#0969da", "#bf8700", "#1a7f37", "#8250df", "#cf222e", "#57606a")
_UNITS: Final[Mapping[str, str]] = {"reqps": "/s", "ops": "/s", "s": " s", "bytes": " B"}
_PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))

type Panel = Mapping[str, Any]


def draw_dashboard(title: str, file: str, panels: Sequence[str]) -> Drawing:
    """Draw some panels of a recorded dashboard: stats first, then graphs.

    Args:
        title: Text for readers who do not see the picture.
        file: File name of the dashboard.
        panels: Titles of the panels.
    """
    record = json.loads(RECORD.read_text())
    by_title = {panel["title"]: panel for panel in record["dashboards"][file]}
    chosen = [by_title[name] for name in panels]
    stats = [panel for panel in chosen if panel["type"] == "stat"]
    graphs = [panel for panel in chosen if panel["type"] != "stat"]
    rows = (-(-len(stats) // _COLUMNS), -(-len(graphs) // _COLUMNS))
    height = _GAP + rows[0] * (_STAT_HEIGHT + _GAP) + rows[1] * (_GRAPH_HEIGHT + _GAP)
    picture = Drawing(title, _WIDTH, height)
    width = (_WIDTH - _GAP) // _COLUMNS - _GAP
    for number, panel in enumerate(stats):
        x, y = _place(number, width, _STAT_HEIGHT, _GAP)
        value = format_value(_last_values(panel)[0], panel["unit"])
        picture.box(x, y, width, _STAT_HEIGHT, f"{value}\n{panel['title']}")
    top = _GAP + rows[0] * (_STAT_HEIGHT + _GAP)
    for number, panel in enumerate(graphs):
        x, y = _place(number, width, _GRAPH_HEIGHT, top)
        _draw_graph(picture, panel, x, y, width, record["step"])
    return picture


def format_value(value: float, unit: str) -> str:
    """Render a value with its unit, as Grafana does."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    name = _UNITS.get(unit, "")
    if unit == "s" and 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {prefix}{name.strip()}".rstrip()
    return f"{value:.3g}{name}"


def _place(number: int, width: int, height: int, top: int) -> tuple[int, int]:
    row, column = divmod(number, _COLUMNS)
    return _GAP + column * (width + _GAP), top + row * (height + _GAP)


def _last_values(panel: Panel) -> Sequence[float]:
    known = ([one for one in values if one is not None] for values in panel["series"].values())
    return [values[-1] for values in known if values]


def _order(series: Mapping[str, Sequence[float | None]]) -> dict[str, Sequence[float | None]]:
    """Put the series that have the largest values first: the legend names only the first ones."""

    def most(item: tuple[str, Sequence[float | None]]) -> float:
        return max((value for value in item[1] if value is not None), default=0.0)

    return dict(sorted(series.items(), key=most, reverse=True))


def _choose_color(number: int) -> str:
    """Return the color of a series; series without a place in the legend share the last one."""
    return _COLORS[number] if number < _LEGENDS else _COLORS[-1]


def _draw_graph(picture: Drawing, panel: Panel, x: int, y: int, width: int, step: int) -> None:
    picture.box(x, y, width, _GRAPH_HEIGHT, "")
    picture.label(x + 10, y + 20, panel["title"], anchor="start")
    # The one that stands for nothing matters only if there is nothing else.
    named = {name: one for name, one in panel["series"].items() if not name.startswith("none")}
    series = _order(named or panel["series"])
    numbers = [value for values in series.values() for value in values if value is not None]
    most = max(numbers, default=0.0) or 1.0
    left, right, bottom = x + 10, x + width - 10, y + _GRAPH_HEIGHT - 56
    count = max(len(values) for values in series.values())
    picture.label(right, y + 20, f"max {format_value(max(numbers), panel['unit'])}", anchor="end")
    picture.line([(left, bottom), (right, bottom)], "#d0d7de")
    for number, values in enumerate(series.values()):
        color = _choose_color(number)
        points: list[tuple[float, float]] = []
        for index, value in enumerate([*values, None]):
            if value is None:
                # A gap: nothing was measured, such as the duration of no reconcile.
                if len(points) == 1:
                    ((at, level),) = points
                    points = [(at - _DOT / 2, level), (at + _DOT / 2, level)]
                if points:
                    picture.line(points, color, width=1.5)
                points = []
                continue
            x_of = left + index * (right - left) / max(count - 1, 1)
            points.append((round(x_of, 1), round(bottom - value / most * (bottom - y - _TOP), 1)))
    picture.label(left, bottom + 14, f"-{(count - 1) * step // 60} min", anchor="start")
    picture.label(right, bottom + 14, "now", anchor="end")
    _draw_legend(picture, list(series), left, bottom + 32, width)


def _draw_legend(picture: Drawing, names: Sequence[str], x: int, y: int, width: int) -> None:
    for number, name in enumerate(names[:_LEGENDS]):
        row, column = divmod(number, 2)
        left, top = x + column * (width // 2), y + row * 16
        picture.line([(left, top - 4), (left + 12, top - 4)], _choose_color(number), 3)
        more = len(names) - _LEGENDS
        text = f"{name} (+{more})" if number == _LEGENDS - 1 and more > 0 else name
        if len(text) > _LETTERS // 2:
            text = f"{text[: _LETTERS // 2 - 1]}…"
        picture.label(left + 18, top, text, anchor="start")
