"""What the documentation says is there: links, commands, files, and code that works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import typer.main
import yaml

from libs.common.project.names import Names
from tools.dev.app import app
from tools.scaffold.create import create

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
TUTORIAL: Final = DOCS / "tutorial/write-an-operator.md"
PAGES: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "operators").glob("*/*.md"),
        *(ROOT / "helm").glob("*/README.md"),
        *(ROOT / "libs/examples").glob("*/README.md"),
        *(ROOT / "tools").glob("*/README.md"),
        *(ROOT / "lab").glob("**/README.md"),
    ]
)
INTRODUCED: Final = [
    page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "adr"
]
"""Pages that begin with what they are for."""
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCE: Final = re.compile(r"^( *)(`{3,}).*?^\1\2$", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"\./dev (?!-)([a-z]+(?:-[a-z]+)*)")
_OPTION: Final = re.compile(r"\./dev ([a-z]+(?:-[a-z]+)*)([^`\n|#;&>]*)")
_CODE: Final = re.compile(r"`([^`\n]+)`")
_TEST: Final = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
_PATH: Final = re.compile(
    r"(?:operators|libs|tools|helm|deploy|docs|tests|3rdparty)(?:/[\w.{},-]+)+/?"
)
_MAX_README_LINES: Final = 120
_COVERAGE: Final = (
    "lab/fuzz/coverage_test.py::test_every_field_is_let_in_with_some_value_and_refused_with_another"
)
_TITLED: Final = re.compile(r'^(`{3,})\w+ title="([^"]+)"\n(.*?)^\1$', re.MULTILINE | re.DOTALL)
_LIMIT_SECONDS: Final = 300
MADE: Final = (("greeter", "Greeting"), ("archives", "BackupPolicy"))
"""Operators that the tutorial and `./dev new` make, and their kinds."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose_of(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def text_of(page: Path) -> str:
    """Return a page without its code blocks and without code in lines."""
    return _CODE.sub("", prose_of(page))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = (title.replace("`", "").lower() for title in _HEADING.findall(prose_of(page)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in headings}


def find_dead_links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists():
            yield f"{target}: no such file"
        elif anchor and found.suffix == ".md" and anchor not in anchors_of(found):
            yield f"{target}: no such heading"


def find_missing_paths(page: Path) -> Iterator[str]:
    """Name the paths in code spans that do not exist; made-up ones hold a placeholder."""
    for span in _CODE.findall(prose_of(page)):
        if not _PATH.fullmatch(span) or "greeter" in span:
            continue
        yield from (path for path in expand_braces(span) if not (ROOT / path).exists())


def expand_braces(path: str) -> list[str]:
    """Return the paths that `a/{b,c}.md` stands for."""
    before, opening, rest = path.partition("{")
    if not opening:
        return [path]
    names, _, after = rest.partition("}")
    return [one for name in names.split(",") for one in expand_braces(before + name + after)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(find_dead_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    assert list(find_missing_paths(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_are_named_exist(page: Path) -> None:
    """If a page names a test, the page also names the file of the test."""
    named = {span for span in _CODE.findall(prose_of(page)) if re.fullmatch(r"test_\w+", span)}
    spans = set(_CODE.findall(prose_of(page)))
    files = [ROOT / span for span in spans if span.endswith(".py") and (ROOT / span).is_file()]
    found = {
        name
        for file in files
        for name in _TEST.findall(file.read_text().replace("    async", "async"))
    }

    assert named <= found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_are_named_exist(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # A group has them.
    text = page.read_text()

    assert set(_COMMAND.findall(text)) <= set(commands)
    for name, rest in _OPTION.findall(text):
        if name in (
            "new",
            "test",
            "generate",
            "docs",
            "release",
            "bench",
            "sweep",
            "pulsar",
            "run",
            "kubectl",
            "kubevirt-sim",
            "guest-image",
        ):
            continue  # These pass their options on.
        known = {option for each in commands[name].params for option in each.opts}
        used = set(re.findall(r"(?<!\S)(--[a-z-]+)", rest))
        assert used <= known, f"./dev {name}{rest}"


@pytest.mark.parametrize("page", INTRODUCED, ids=name_of)
def test_page_begins_with_its_purpose(page: Path) -> None:
    """A reader who comes from a search knows in a sentence what the page is for."""
    text = re.sub(r"^<!--.*?-->\s*", "", page.read_text())
    blocks = [block for block in text.split("\n\n") if block.strip()]

    assert blocks[0].startswith("# ")
    assert re.match(r"[A-Za-z*`\[]", blocks[1].strip()) and not blocks[1].startswith("```")


def test_readme_fits_on_a_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= _MAX_README_LINES


def test_every_page_is_reached_from_the_index() -> None:
    reached, rest = set[Path](), [ROOT / "README.md", DOCS / "README.md"]
    while rest:
        page = rest.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = (link.partition("#")[0] for link in _LINK.findall(text_of(page)))
        rest += [
            (page.parent / target).resolve()
            for target in targets
            if target and not re.match(r"[a-z]+:", target) and (page.parent / target).is_file()
        ]

    assert [name_of(page) for page in DOCS.rglob("*.md") if page not in reached] == []


def test_records_of_decisions_have_one_form() -> None:
    for page in sorted((DOCS / "adr").glob("[0-9]*.md")):
        number = page.name.partition("-")[0]
        titles = _HEADING.findall(page.read_text())

        assert titles[0].startswith(f"{number}. "), page.name
        assert titles[1:4] == ["Context", "Decision", "Consequences"], page.name


def test_yaml_in_the_pages_can_be_read() -> None:
    for page in PAGES:
        for block in re.findall(
            r"^```yaml[^\n]*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            list(yaml.safe_load_all(block))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a checkout with the operator of the tutorial, and with one that `./dev new` creates."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("conftest.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    packages = ("libs", "operators", "kubectl_slipway", "slipway_handler")
    for name in (*packages, "helm", "tools", "lab", "deploy", "docs", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    follow_tutorial(copy)
    create(copy, Names("archives", "BackupPolicy", "backuppolicies", "archives.slipway.dev"))
    for operator in ("greeter", "archives"):
        run_in(copy, "-m", "tools.generate", "--operator", operator, "--without-helm")
    return copy


def follow_tutorial(checkout: Path) -> None:
    """Run the steps of the tutorial, and write its files."""
    files = {path: text for _, path, text in _TITLED.findall(TUTORIAL.read_text())}
    (checkout / "operators/greeter").mkdir()
    for step in ("steps/chart.sh", "steps/overlays.sh"):
        subprocess.run(["sh", "-eu", "-c", files.pop(step)], cwd=checkout, check=True)
    # The steps copy the chart first; a file of the tutorial then overwrites its notes.
    for path, text in files.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)


def run_in(checkout: Path, *words: str) -> str:
    """Run Python in a checkout, and return what it printed."""
    # No path of this checkout, else its own `operators` would be found first.
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(("operator", "kind"), MADE)
def test_new_operator_passes_its_tests_and_starts(checkout: Path, operator: str, kind: str) -> None:
    files = [f"operators/{operator}", f"tests/e2e/{operator}_test.py"]
    files += [f"lab/fuzz/subjects/{operator}.py", f"lab/sweep/workloads/{operator}.py"]

    run_in(checkout, "-m", "pytest", "-q", "-x", files[0], f"{_COVERAGE}[{kind}]")
    run_in(checkout, "-m", "black", "--check", "--quiet", *files)
    run_in(checkout, "-m", "ruff", "check", "--quiet", *files)
    run_in(checkout, "-m", f"operators.{operator}", "--help")
    run_in(checkout, "-c", f"import lab.sweep.workloads.{operator}")


def test_chart_of_the_tutorial_is_generated_and_holds(checkout: Path) -> None:
    crd = checkout / "helm/greeter/files/crds/tutorial.slipway.dev_greetings.yaml"

    assert yaml.safe_load(crd.read_text())["spec"]["names"]["kind"] == "Greeting"
    run_in(checkout, "-m", "pytest", "-q", "-x", "helm/greeter")
