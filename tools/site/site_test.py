"""The site has every page in its navigation, and every link on it works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools.dev.operators import list_operators
from tools.site.__main__ import build_site
from tools.site.hooks import on_page_content
from tools.site.navigation import build_navigation
from tools.site.stage import find_pages, stage

ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    return stage(ROOT, folder, list_operators(), folder / "site")


def test_site_is_built_without_a_broken_link(configuration: Path) -> None:
    assert build_site(configuration)
    site = configuration.parent / "site"
    index = json.loads((site / "search/search_index.json").read_text())

    assert "Create a local cluster" in (site / "docs/howto/cluster/index.html").read_text()
    assert any("OperatorNoLeader" in each["text"] for each in index["docs"])
    assert (site / "docs/images/architecture.svg").is_file()
    page = (site / "docs/reference/podset/api/index.html").read_text()
    assert "<title>podset: API - Slipway</title>" in page
    assert "podset: API" in {each["title"] for each in index["docs"]}
    chart = (site / "helm/podset/index.html").read_text()
    assert '<a href="../../docs/howto/install/"><code>docs/howto/install.md</code></a>' in chart


def test_broken_link_fails_the_build(configuration: Path, tmp_path: Path) -> None:
    shutil.copytree(configuration.parent / "pages", tmp_path / "pages")
    settings = yaml.safe_load(configuration.read_text())
    settings |= {"docs_dir": str(tmp_path / "pages"), "site_dir": str(tmp_path / "site")}
    broken = tmp_path / "mkdocs.yml"
    broken.write_text(yaml.safe_dump(settings, sort_keys=False))
    with (tmp_path / "pages/README.md").open("a") as page:
        page.write("\n[nowhere](docs/howto/no-such-page.md)\n")

    assert not build_site(broken)


def test_every_page_has_one_place_in_the_navigation() -> None:
    def flatten(node: Any) -> list[str]:
        if isinstance(node, str):
            return [node]
        children = node.values() if isinstance(node, dict) else node
        return [each for child in children for each in flatten(child)]

    places = flatten(build_navigation(ROOT, list_operators()))

    assert sorted(places) == sorted(page.relative_to(ROOT).as_posix() for page in find_pages(ROOT))


def test_guide_without_a_section_is_named(tmp_path: Path) -> None:
    for folder in ("docs/howto", "docs/tutorial", "docs/reference", "docs/explanation", "docs/adr"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/howto/new-guide.md").write_text("# New\n")

    with pytest.raises(ValueError, match="new-guide"):
        build_navigation(tmp_path, [])


def test_names_in_tables_break_at_dots_and_not_inside_of_words(configuration: Path) -> None:
    cell = "<td><code>spec.selector.matchLabels</code> is a.b</td>"

    assert on_page_content(f"<p><code>a.b</code></p>{cell}") == (
        "<p><code>a.b</code></p><td><code>spec.<wbr>selector.<wbr>matchLabels</code> is a.b</td>"
    )
    settings = yaml.safe_load(configuration.read_text())
    (styles,) = settings["extra_css"]
    assert "word-break: normal" in (configuration.parent / "pages" / styles).read_text()


def test_cells_name_their_column_for_screens_that_show_no_heading(configuration: Path) -> None:
    head = "<thead><tr><th>a <code>b</code></th><th></th></tr></thead>"
    body = "<tbody><tr><td>1</td><td>2</td></tr></tbody>"

    shown = on_page_content(f"<table>{head}{body}</table>")

    assert '<td data-label="a b">1</td><td>2</td>' in shown
    settings = yaml.safe_load(configuration.read_text())
    styles = (configuration.parent / "pages" / settings["extra_css"][0]).read_text()
    assert "content: attr(data-label)" in styles.partition("@media screen and (max-width")[2]


@pytest.mark.parametrize(
    ("code", "rendered"),
    [
        ("--watch-namespaces", '<code class="flag">--watch-namespaces</code>'),
        ("PODSET_LOG_LEVEL", "<code>PODSET_<wbr>LOG_<wbr>LEVEL</code>"),
        (r"(a\|b)c", "<code>(a|<wbr>b)<wbr>c</code>"),
    ],
)
def test_code_in_tables_is_readable(code: str, rendered: str) -> None:
    assert on_page_content(f"<td><code>{code}</code></td>") == f"<td>{rendered}</td>"
