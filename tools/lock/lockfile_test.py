"""The lockfile fits the requirements and holds nothing else."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.lock.lockfile import (
    LockError,
    find_drift,
    find_surplus,
    normalize,
    parse_pins,
    render_lock,
)

HASH = "0" * 64
DIRECTORY = Path(__file__).parents[2] / "3rdparty/python"


def build_resolved(*pins: str, suffix: str = ".whl") -> Mapping[str, Any]:
    artifact = {"hash": HASH, "algorithm": "sha256", "url": f"https://index.test/a{suffix}"}
    names = [pin.split("==") for pin in pins]
    requirements = [
        {"project_name": name, "version": version, "artifacts": [artifact]}
        for name, version in names
    ]
    return {"locked_resolves": [{"locked_requirements": requirements}]}


def test_lock_holds_pins_and_hashes_and_no_address() -> None:
    text = render_lock(build_resolved("b==2", "a==1"))

    assert list(parse_pins(text).items()) == [("a", "1"), ("b", "2")]
    assert text.count(f"--hash=sha256:{HASH}") == 2
    assert "index.test" not in text


def test_package_without_wheel_is_refused() -> None:
    with pytest.raises(LockError, match="No wheel for a==1, b==2"):
        render_lock(build_resolved("a==1", "b==2", suffix=".tar.gz"))


def test_unpinned_requirements_are_all_named() -> None:
    with pytest.raises(LockError, match="kopf, rich>=13"):
        parse_pins("kopf\nrich>=13\naiohttp==3.14.5  # HTTP.\n")


def test_drift_names_missing_other_and_unhashed_packages() -> None:
    drift = find_drift("a==1\nb==1\nC.d==1\n", "a==2\nc-d==1\n")

    assert drift == [
        "a: requirements.txt has 1, default.lock has 2",
        "b: requirements.txt has 1, default.lock has nothing",
        "a: no hash in default.lock",
        "c-d: no hash in default.lock",
    ]


def test_surplus_is_what_nothing_reaches() -> None:
    surplus = find_surplus("a==1\nb==1\nc==1\n", {"a": ["b"], "c": ["b"]}, ["a"])

    assert surplus == ["c"]


def test_lock_matches_the_requirements() -> None:
    requirements = (DIRECTORY / "requirements.txt").read_text()

    assert find_drift(requirements, (DIRECTORY / "default.lock").read_text()) == []


def test_checked_in_lock_holds_nothing_that_is_not_needed() -> None:
    lock = (DIRECTORY / "default.lock").read_text()
    # Extras count as needed, so this errs on the side of silence.
    needs = {name: read_needs(name) for name in parse_pins(lock)}

    roots = list(parse_pins((DIRECTORY / "requirements.txt").read_text()))
    assert find_surplus(lock, needs, roots) == []


def read_needs(package: str) -> list[str]:
    names = importlib.metadata.requires(package) or []
    return [normalize(re.split(r"[^A-Za-z0-9._-]", name, maxsplit=1)[0]) for name in names]
