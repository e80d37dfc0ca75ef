"""The mirror of the machine is found in both formats of apt's sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster import debian
from tools.cluster.debian import find_mirror, parse_mirror
from tools.cluster.errors import ToolError


@pytest.mark.parametrize(
    ("text", "mirror"),
    [
        (
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\n",
            "http://mirror.example/debian",
        ),
        ("deb http://mirror.example/debian/ bookworm main\n", "http://mirror.example/debian"),
        (
            "deb [signed-by=/k.gpg] https://m.example/debian bookworm main",
            "https://m.example/debian",
        ),
        ("# deb http://mirror.example/debian bookworm main\n", None),
        ("deb http://mirror.example/debian-security bookworm-security main\n", None),
        ("deb https://packages.example/apt stable main\n", None),
    ],
)
def test_mirror_is_the_first_debian_archive(text: str, mirror: str | None) -> None:
    assert parse_mirror(text) == mirror


def test_no_mirror_is_found_without_sources(tmp_path: Path) -> None:
    assert find_mirror(tmp_path) is None


def test_mirror_is_searched_in_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (folder / "a.list").write_text("deb https://other.example/apt stable main\n")
    (folder / "b.sources").write_text("URIs: http://mirror.example/debian\n")

    assert find_mirror(tmp_path) == "http://mirror.example/debian"


def test_packages_that_cannot_be_installed_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "is_debian_root", lambda: False)

    with pytest.raises(ToolError, match="install no-such-a, no-such-b"):
        debian.check_packages(["no-such-a", "no-such-b"])
