"""An update of the base image records versions, and gives the base another tag."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.cluster.cache import Cache
from tools.cluster.progress import Progress, open_progress
from tools.images import base, update
from tools.images.base_test import write_root
from tools.images.update import read_lock, render_lock, update_base

_FOLDER = "var/lib/dpkg/status.d"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a lock of this test."""
    path = tmp_path / "base.lock"
    path.write_text(render_lock({"tzdata": "2026a-1"}))
    monkeypatch.setattr(base, "LOCK", path)
    return path


def offer(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    """Let Debian have these versions; each package has a file that the image keeps."""
    files = {"usr/bin/python3.13": b"python"}
    for name, version in versions.items():
        files[f"{_FOLDER}/{name}"] = f"Package: {name}\nVersion: {version}\n".encode()
        files[f"{_FOLDER}/{name}.list"] = b"./usr/bin/python3.13\n"

    def extract(
        output: Path, packages: Sequence[str], progress: Progress, *, record: bool = False
    ) -> None:
        assert record
        assert "tzdata" in packages
        write_root(output, files, {})

    monkeypatch.setattr(update, "extract_packages", extract)


def test_newer_packages_are_recorded_and_give_the_base_another_tag(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cache = base.base_key(), Cache(tmp_path / "cache")
    offer(monkeypatch, {"tzdata": "2026b-1", "python3.13-minimal": "3.13.9-1"})

    changes = update_base(cache, open_progress("test"), lock)

    assert changes == ["python3.13-minimal: none -> 3.13.9-1", "tzdata: 2026a-1 -> 2026b-1"]
    assert read_lock(lock) == {"python3.13-minimal": "3.13.9-1", "tzdata": "2026b-1"}
    assert base.base_key() != before
    # The next build of an image does not ask Debian again.
    found = cache.find("base-image", base.base_key())
    assert found is not None
    assert (found / "base.tar").is_file()


def test_update_without_newer_packages_changes_nothing(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cache = base.base_key(), Cache(tmp_path / "cache")
    offer(monkeypatch, {"tzdata": "2026a-1"})

    assert update_base(cache, open_progress("test"), lock) == []
    assert base.base_key() == before
    assert cache.find("base-image", before) is None
