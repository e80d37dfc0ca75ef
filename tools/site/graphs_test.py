"""Graphs of recorded values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.site import graphs
from tools.site.graphs import draw_dashboard, format_value


def test_gaps_are_not_bridged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = {
        "title": "Duration",
        "type": "timeseries",
        "unit": "s",
        "series": {"podset": [1.0, 1.0, None, 2.0, 2.0], "none": [0.0] * 5},
    }
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"step": 10, "dashboards": {"podset.json": [panel]}}))
    monkeypatch.setattr(graphs, "RECORD", record)

    text = draw_dashboard("Durations", "podset.json", ["Duration"]).render()

    lines = [line for line in text.splitlines() if 'stroke-width="1.5"' in line]
    assert len(lines) == 2, "two parts of podset, and nothing of a series named none"
    assert "max 2 s" in text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.25, "percentunit", "25 %"),
        (0.0163, "s", "16.3 ms"),
        (2.5, "reqps", "2.5/s"),
        (75_250_000, "bytes", "75.2 MB"),
        (4, "short", "4"),
    ],
)
def test_values_have_units(value: float, unit: str, shown: str) -> None:
    assert format_value(value, unit) == shown
