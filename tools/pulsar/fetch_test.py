"""The jars are those that are locked, and Java is new enough."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tools.pulsar.fetch import (
    RELEASES,
    Release,
    find_mismatches,
    hash_jars,
    parse_java_version,
    render_lock,
)


def test_lock_of_jars_fits_them(tmp_path: Path) -> None:
    (tmp_path / "a-1.jar").write_bytes(b"a")
    (tmp_path / "notes.txt").write_bytes(b"no jar")
    hashes = hash_jars(tmp_path)

    assert hashes == {"a-1.jar": hashlib.sha256(b"a").hexdigest()}
    assert find_mismatches(render_lock(hashes), hashes) == []


def test_each_jar_that_differs_is_named() -> None:
    lock = render_lock({"a.jar": "1", "b.jar": "2", "same.jar": "3"})

    problems = find_mismatches(lock, {"a.jar": "9", "c.jar": "4", "same.jar": "3"})

    assert problems == ["a.jar: SHA-256 9, not 1", "b.jar: missing", "c.jar: not locked"]


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_lock_names_the_broker_of_the_pom(release: Release) -> None:
    pom = release.pom.read_text()
    *_, version = re.findall(r"pulsar-broker</artifactId>\s*<version>([0-9.]+)<", pom)

    assert version.startswith(f"{release.name}.")
    assert f"pulsar-broker-{version}.jar" in release.lock.read_text()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("openjdk 17.0.15 2025-04-15\nOpenJDK Runtime Environment", 17),
        ("java 21 2023-09-19 LTS", 21),
        ("openjdk 25.0.2 2026-01-20", 25),
        ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk 17.0.1 2021", 17),
        ("nonsense", 0),
    ],
)
def test_java_version_is_read(text: str, version: int) -> None:
    assert parse_java_version(text) == version
