"""The pictures are up to date, are used, load nothing, and keep their text inside."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

import pytest

from tools.site.pictures import FOLDER, PICTURES
from tools.site.stage import find_pages

ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_up_to_date(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert text == PICTURES[name]().render(), "run python -m tools.site.pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_picture_loads_nothing_and_fits(name: str) -> None:
    root = ET.fromstring((FOLDER / name).read_text())  # noqa: S314
    _, _, width, height = (float(each) for each in root.attrib["viewBox"].split())
    for element in root.iter():
        assert not [key for key in element.attrib if key.endswith("href")]
        if element.tag.endswith("}text"):
            x, y = float(element.attrib["x"]), float(element.attrib["y"])
            # Helvetica is about 0.52 em wide on average.
            wide = len(element.text or "") * 0.52 * float(element.attrib.get("font-size", 14))
            anchor = element.attrib["text-anchor"]
            left = {"start": x, "middle": x - wide / 2, "end": x - wide}[anchor]
            assert left >= 0, element.text
            assert left + wide <= width, element.text
            assert 0 < y < height, element.text


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_shown_on_a_page(name: str) -> None:
    pages = [page for page in find_pages(ROOT) if f"images/{name})" in page.read_text()]
    assert pages, f"no page shows docs/images/{name}"


def test_no_page_needs_a_script_for_its_pictures() -> None:
    scripted = [page for page in find_pages(ROOT) if "\n```mermaid" in page.read_text()]
    assert scripted == [], "draw it in tools/site/pictures.py: the site has no mermaid"
