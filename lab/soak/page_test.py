"""Tables of soaks on the page."""

from __future__ import annotations

from pathlib import Path

from lab.soak.measure import Sample
from lab.soak.nodes import Recovery
from lab.soak.page import CHURN, NODES, tabulate_churn, tabulate_replacements, write_rows

PAGE = """Words.

<!-- BEGIN generated: nodes -->

| operator | operator pod | kubelet | API server | node |
| --- | --- | --- | --- | --- |
| podset | 9 s | 9 s | 9 s | 9 s |
| volumes | 8 s | 8 s | 8 s | 8 s |

<!-- END generated: nodes -->

More words.
"""


def test_row_of_a_run_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    found = [Recovery("podset", "node", 71.4), Recovery("podset", "kubelet", 300, "not ready")]

    write_rows("nodes", NODES, tabulate_replacements(found), path)

    expected = PAGE.replace("9 s | 9 s | 9 s | 9 s", "- | **not ready** | - | 71 s")
    assert path.read_text() == expected


def test_churn_is_told_by_the_second_quarter_and_the_last() -> None:
    samples = [Sample(second * 60.0, 1024 * second, 20, 6, 2) for second in range(1, 9)]

    row = tabulate_churn("podset", samples, 240)["podset"]

    memory, descriptors = "4 MiB, 8 MiB", "20, 20"
    assert row == ["podset", "8", "240", memory, descriptors, "6, 6", "at most 2, 2 at the end"]
    assert len(row) == len(CHURN)
