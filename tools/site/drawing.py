"""A drawing of boxes, arrows and labels, written as SVG without scripts, fonts or links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

_COLORS: Final = {
    "plain": ("#f6f8fa", "#8c959f"),
    "api": ("#ddf4ff", "#0969da"),
    "operator": ("#fff8c5", "#bf8700"),
    "object": ("#dafbe1", "#1a7f37"),
    "gone": ("#ffffff", "#cf222e"),
    "group": ("none", "#8c959f"),
}
_INK: Final = "#24292f"
_LINE: Final = "#57606a"
_LEADING: Final = 18


@dataclass
class Drawing:
    """A picture of a fixed size, to which boxes, arrows and labels are added.

    Attributes:
        title: Text for readers who do not see the picture.
        width: Width in pixels.
        height: Height in pixels.
    """

    title: str
    width: int
    height: int
    _parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, text: str, kind: str = "plain") -> None:
        """Add a box with centered lines, the first one bold; a group has its text at the top."""
        fill, stroke = _COLORS[kind]
        dashes = ' stroke-dasharray="5 4"' if kind == "gone" else ""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"'
            f' fill="{fill}" stroke="{stroke}"{dashes}/>'
        )
        if kind == "group":
            self.label(x + 12, y + 20, text, anchor="start")
            return
        lines = text.split("\n")
        top = y + height / 2 - (len(lines) - 1) * _LEADING / 2 + 5
        for number, line in enumerate(lines):
            weight = ' font-weight="bold"' if number == 0 else ' font-size="12"'
            self._parts.append(
                f'<text x="{x + width / 2:g}" y="{top + number * _LEADING:g}"'
                f' text-anchor="middle" fill="{_INK}"{weight}>{escape(line)}</text>'
            )

    def arrow(self, *points: tuple[int, int], dashed: bool = False) -> None:
        """Add a line through the points, with a tip at the last one."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-width="1.5"{dashes}'
            ' marker-end="url(#tip)"/>'
        )

    def line(self, points: Sequence[tuple[float, float]], color: str, width: float = 1) -> None:
        """Add a line through the points, without a tip."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:g}"/>'
        )

    def lifeline(self, x: int, y: int) -> None:
        """Add a dashed line from y to the bottom."""
        self._parts.append(
            f'<path d="M{x} {y} V{self.height - 12}" stroke="#8c959f" stroke-dasharray="3 4"/>'
        )

    def label(self, x: int, y: int, text: str, anchor: str = "middle") -> None:
        """Add a line of small text."""
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{_LINE}" font-size="12">'
            f"{escape(text)}</text>"
        )

    def render(self) -> str:
        """Return the SVG document."""
        head = (
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
                ' font-family="Helvetica, Arial, sans-serif" font-size="14" role="img"'
                ' aria-labelledby="title">'
            ),
            f'  <title id="title">{escape(self.title)}</title>',
            (
                '  <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
                f' markerHeight="7" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{_LINE}"/>'
                "</marker></defs>"
            ),
            f'  <rect width="{self.width}" height="{self.height}" fill="#ffffff"/>',
        )
        return "\n".join((*head, *(f"  {part}" for part in self._parts), "</svg>")) + "\n"


def draw_sequence(title: str, actors: tuple[str, ...], messages: tuple[str, ...]) -> Drawing:
    """Draw who tells whom what, from the top down.

    Args:
        title: Text for readers who do not see the picture.
        actors: Names of the columns.
        messages: Lines such as "0>1 text": from column 0 to column 1.
    """
    step, left, gap = 44, 150, 330
    picture = Drawing(title, left * 2 + gap * (len(actors) - 1), 90 + step * len(messages))
    for number, actor in enumerate(actors):
        x = left + number * gap
        picture.box(x - 90, 12, 180, 36, actor, "operator")
        picture.lifeline(x, 48)
    for number, message in enumerate(messages):
        ends, _, text = message.partition(" ")
        start, _, end = ends.partition(">")
        y = 92 + number * step
        a, b = left + int(start) * gap, left + int(end) * gap
        if a == b:
            picture.label(a + 12, y, text, anchor="start")
            continue
        picture.arrow((a, y), (b, y))
        picture.label((a + b) // 2, y - 7, text)
    return picture
