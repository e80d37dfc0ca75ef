"""Coverage: which fields met which generators, and with what verdict; for the docs and the gate.

`python -m lab.fuzz.coverage` writes the table into docs/reference/reliability.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.fuzz.generators import Generator
from lab.fuzz.model import find_offenses
from lab.fuzz.subject import FuzzSubject, load_subjects

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "reliability.md"
_BEGIN: Final = "<!-- BEGIN generated: fuzz -->"
_END: Final = "<!-- END generated: fuzz -->"


@dataclass
class Coverage:
    """Counts of results by field and generator.

    Attributes:
        kind: Kind that was covered.
        valid: Values that the model lets in.
        refused: Values that it refuses.
    """

    kind: str
    valid: Counter[tuple[str, Generator]] = field(default_factory=Counter)
    refused: Counter[tuple[str, Generator]] = field(default_factory=Counter)

    @property
    def fields(self) -> list[str]:
        """Fields in the order of the schema."""
        return list(dict.fromkeys(name for name, _ in (*self.valid, *self.refused)))

    def count(self, name: str, *, valid: bool) -> int:
        """Count the values of a field with one verdict."""
        counts = self.valid if valid else self.refused
        return sum(number for (each, _), number in counts.items() if each == name)


def measure(subject: FuzzSubject) -> Coverage:
    """Count what the generators do to a kind."""
    coverage = Coverage(subject.kind.kind)
    for case in subject.cases():
        counts = coverage.refused if find_offenses(subject.root, case.manifest) else coverage.valid
        counts[case.field.name, case.generator] += 1
    return coverage


def render_table() -> str:
    """Render a line for each kind and generator."""
    lines = ["| kind | generator | fields | values let in | values refused |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for subject in load_subjects():
        coverage = measure(subject)
        for generator in Generator:
            places = {
                name for name, each in (*coverage.valid, *coverage.refused) if each is generator
            }
            if not places:
                continue
            valid, refused = (
                sum(number for (_, each), number in counts.items() if each is generator)
                for counts in (coverage.valid, coverage.refused)
            )
            cells = (coverage.kind, generator, len(places), valid, refused)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def render_page(text: str) -> str:
    """Put the table into the page."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{render_table()}\n\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
