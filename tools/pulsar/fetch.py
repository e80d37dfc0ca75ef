"""The jars of a Pulsar broker, fetched by Maven once and checked against their hashes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from operators.pulsarconsumer.testing.broker import ASSETS_VARIABLE
from tools.cluster import commands, debian
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress, open_progress

HERE: Final = Path(__file__).parent
JAVA: Final = 17
"""Oldest Java that runs the broker."""

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_HEADER: Final = (
    "# The jars of the broker with their SHA-256. Written by `python -m tools.pulsar lock` from\n"
    "# {pom}. DO NOT EDIT.\n"
)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of the broker.

    Attributes:
        name: Its first two numbers.
        pom: Project that depends on the broker.
        lock: Names and hashes of its jars.
    """

    name: str
    pom: Path
    lock: Path


RELEASES: Final[Mapping[str, Release]] = {
    "4.0": Release("4.0", HERE / "pom.xml", HERE / "jars.lock"),
    "3.0": Release("3.0", HERE / "pom-3.0.xml", HERE / "jars-3.0.lock"),
}
"""Releases with long-term support, newest first."""
DEFAULT_RELEASE: Final = RELEASES["4.0"]
"""The release that tests and the demo run if none is chosen."""


def ensure_pulsar(
    progress: Progress | None = None,
    cache: Cache | None = None,
    environ: Mapping[str, str] = os.environ,
    release: Release = DEFAULT_RELEASE,
) -> Path:
    """Return a folder with `lib/*.jar` and `java`, fetched when it is missing.

    If SLIPWAY_PULSAR is set, it is used for the default release.

    Raises:
        ToolError: Java or Maven is not available, or a jar does not match its locked hash.
    """
    if release is DEFAULT_RELEASE and (chosen := environ.get(ASSETS_VARIABLE)):
        return Path(chosen)
    cache = cache or Cache()
    progress = progress or open_progress("pulsar", cache)
    java = find_java(progress)

    def build(folder: Path) -> None:
        with progress.step("Pulsar broker from Maven", "1 minute, once"):
            copy_jars(folder / "lib", progress, release)
            locked = release.lock.read_text()
            if problems := find_mismatches(locked, hash_jars(folder / "lib")):
                text = "; ".join(problems)
                raise ToolError(f"Jars differ from tools/pulsar/{release.lock.name}: {text}")

    # The cache keeps few versions of a name.
    name = "pulsar" if release is DEFAULT_RELEASE else f"pulsar-{release.name}"
    folder = cache.ensure(name, digest_of(release.pom, release.lock), build)
    _link(folder / "java", java)
    return folder


def copy_jars(target: Path, progress: Progress, release: Release = DEFAULT_RELEASE) -> None:
    """Resolve the project of a release and copy all jars into a folder."""
    if shutil.which("mvn") is None:
        debian.install_packages(["maven"], progress)
    words = ["mvn", "--batch-mode", "--quiet", "--file", str(release.pom), _COPY]
    progress.run([*words, "-DincludeScope=runtime", f"-DoutputDirectory={target}"])


def find_java(progress: Progress) -> Path:
    """Return a Java that is new enough: of JAVA_HOME, of PATH, or installed now.

    Raises:
        ToolError: There is none and none can be installed.
    """
    home = os.environ.get("JAVA_HOME")
    for place in (f"{home}/bin/java" if home else None, shutil.which("java")):
        if place and Path(place).exists() and java_version(Path(place)) >= JAVA:
            return Path(place)
    debian.install_packages([f"openjdk-{JAVA}-jre-headless"], progress)
    found = shutil.which("java")
    if not found or java_version(Path(found)) < JAVA:
        raise ToolError(f"No Java {JAVA} or later: install one, or name it by JAVA_HOME")
    return Path(found)


def java_version(java: Path) -> int:
    """Return the major version of a Java; 0 if it prints none, like Java 8."""
    try:
        return parse_java_version(commands.read([java, "--version"]))
    except ToolError:
        return 0


def parse_java_version(text: str) -> int:
    """Return the major version in the output of `java --version`, or 0."""
    match = re.search(r"^\w+ (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def hash_jars(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each jar of a folder by its name."""
    hashes: dict[str, str] = {}
    for path in sorted(folder.glob("*.jar")):
        with path.open("rb") as file:
            hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def render_lock(hashes: Mapping[str, str], release: Release = DEFAULT_RELEASE) -> str:
    """Return the text of the lockfile."""
    return _HEADER.format(pom=release.pom.name) + "".join(
        f"{digest}  {name}\n" for name, digest in sorted(hashes.items())
    )


def find_mismatches(lock: str, hashes: Mapping[str, str]) -> list[str]:
    """Return what is wrong with jars, seen from the lockfile; nothing when they are the same."""
    lines = [line.split() for line in lock.splitlines() if not line.startswith("#")]
    locked = {name: digest for digest, name in lines}
    return [
        f"{name}: {_describe(locked.get(name), hashes.get(name))}"
        for name in sorted(locked.keys() | hashes.keys())
        if locked.get(name) != hashes.get(name)
    ]


def _describe(locked: str | None, found: str | None) -> str:
    if locked is None:
        return "not locked"
    return "missing" if found is None else f"SHA-256 {found}, not {locked}"


def _link(link: Path, target: Path) -> None:
    # The Java may be another one than when the folder was made.
    if not link.exists() or link.resolve() != target.resolve():
        partial = link.with_name(f".java.{os.getpid()}")
        partial.symlink_to(target)
        partial.rename(link)
