"""Page: results of soak tests, added to the tables of the page on reliability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from lab.soak.measure import Sample, split_quarters
from lab.soak.nodes import KILLS, Recovery
from lab.sweep.report import PAGE, read_block, replace_block

NODES: Final = ("operator", *(fault.name for fault in KILLS))
"""Columns of the table of deaths: seconds until all was well."""
CHURN: Final = ("operator", "minutes", "changes", "memory", "descriptors", "threads", "queue")
"""Columns of the table of churn: of memory and the like the second quarter and the last."""

type Rows = Mapping[str, Sequence[str]]
"""Cells by the first of them."""


def tabulate_replacements(recoveries: Sequence[Recovery]) -> dict[str, list[str]]:
    """Build a row for each operator; a death that was not tried is a dash."""
    cells: dict[str, dict[str, str]] = {}
    for each in recoveries:
        end = each.problem and f"**{each.problem}**"
        cells.setdefault(each.operator, {})[each.fault] = end or f"{each.seconds:.0f} s"
    return {
        operator: [operator, *(found.get(fault.name, "-") for fault in KILLS)]
        for operator, found in cells.items()
    }


def tabulate_churn(operator: str, samples: Sequence[Sample], changes: int) -> dict[str, list[str]]:
    """Build the row of an operator."""
    early, late = split_quarters(samples)

    def show(values: Sequence[float], others: Sequence[float], unit: str = "") -> str:
        return f"{median(values):.0f}{unit}, {median(others):.0f}{unit}"

    memory = [[each.memory / 1024 for each in part] for part in (early, late)]
    depths = max(each.depth for each in samples)
    row = [
        operator,
        f"{samples[-1].second / 60:.0f}",
        str(changes),
        show(memory[0], memory[1], " MiB"),
        show([each.files for each in early], [each.files for each in late]),
        show([each.threads for each in early], [each.threads for each in late]),
        f"at most {depths:.0f}, {samples[-1].depth:.0f} at the end",
    ]
    return {operator: row}


def write_rows(name: str, columns: Sequence[str], rows: Rows, path: Path = PAGE) -> None:
    """Put rows into a table of the page; rows of other operators are kept."""
    text = path.read_text()
    held = {cells[0]: cells for cells in parse_rows(read_block(text, name))}
    kept = {**held, **rows}
    lines = [columns, ["---"] * len(columns), *(kept[first] for first in sorted(kept))]
    path.write_text(replace_block(text, name, [f"| {' | '.join(cells)} |" for cells in lines]))


def parse_rows(block: str) -> list[list[str]]:
    """Return the cells of the rows of a table, without its head."""
    lines = [line for line in block.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
