"""What the kit of jars and runtimes is made of."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from tools.cluster.errors import ToolError
from tools.jvm.kit import (
    JARS,
    KIT_VARIABLE,
    ensure_kit,
    find_jdk,
    list_sources,
    parse_java_release,
)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n', 17),
        ('JAVA_VERSION="1.8.0_402"', 8),
        ('JAVA_VERSION="25"', 25),
    ],
)
def test_release_of_a_runtime_is_read(text: str, release: int) -> None:
    assert parse_java_release(text) == release


def test_runtime_without_a_version_is_an_error() -> None:
    with pytest.raises(ToolError, match="names no version"):
        parse_java_release("nothing")


def test_jdk_needs_a_compiler_and_a_release_that_can_build(tmp_path: Path) -> None:
    def make(name: str, version: str, *programs: str) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
        for program in programs:
            (home / "bin" / program).touch()
        return home

    runtime, old = make("jre", "21.0.1", "java"), make("old", "1.8.0", "java", "javac")
    jdk = make("jdk", "17.0.1", "java", "javac")

    assert find_jdk([tmp_path / "none", runtime, old, jdk]) == jdk
    assert find_jdk([runtime, old]) is None


def test_sources_are_those_of_the_guard_without_what_maven_made() -> None:
    names = {path.name for path in list_sources()}

    assert {"pom.xml", "Agent.java", "Engine.java", "Shop.java"} <= names
    assert not any("target" in path.parts for path in list_sources())


@pytest.mark.skipif(KIT_VARIABLE not in os.environ, reason="no kit: see python -m tools.jvm")
@pytest.mark.parametrize("name", JARS)
def test_jars_tell_nothing_of_when_and_where_they_were_built(name: str) -> None:
    with zipfile.ZipFile(Path(os.environ[KIT_VARIABLE]) / f"{name}.jar") as jar:
        # What comes from other jars has the times of those.
        ours = [entry for entry in jar.infolist() if entry.filename.startswith("dev/slipway")]
        lines = jar.read("META-INF/MANIFEST.MF").decode().splitlines()

    # The version that guard/pom.xml names.
    assert {entry.date_time for entry in ours} == {(2026, 1, 1, 0, 0, 0)}
    reported = {line.partition(":")[0] for line in lines}
    assert not reported & {"Built-By", "Build-Jdk", "Created-By", "Bnd-LastModified"}


def test_kit_that_is_named_is_taken(tmp_path: Path) -> None:
    assert ensure_kit(environ={KIT_VARIABLE: str(tmp_path)}) == tmp_path
