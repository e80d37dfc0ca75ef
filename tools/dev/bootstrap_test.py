"""`./dev` itself: finding Python, and creating the environment once, completely or not at all."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.dev.operators import ROOT

SYSTEM_PATH = "/usr/bin:/bin"
INTERPRETER = """\
#!/bin/sh
# Stands in for Python: real environments take seconds each, and need an index.
for last; do :; done
case $1$2 in
-mvenv) mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
-mpip) ! grep -q broken "$last" ;;
-mtools.dev) shift 2 && echo "dev $*" ;;
-cimport\\ sys*) echo 3.13.9 ;;
esac
"""
UV = """\
#!/bin/sh
# Stands in for uv, which would download an interpreter: `uv python install --no-progress 3.13`.
for version; do :; done
mkdir -p "$UV_PYTHON_INSTALL_DIR/cpython-$version.9-linux/bin"
cp "${0%/*}/interpreter" "$UV_PYTHON_INSTALL_DIR/cpython-$version.9-linux/bin/python$version"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the script and its requirements."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "3rdparty" / "python" / "build", root / "3rdparty" / "python" / "build")
    (root / "3rdparty" / "python" / "default.lock").write_text("# Nothing.\n")
    (root / "tools").mkdir()
    for name in ("dev", "pants", "tools/python.sh"):
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """The interpreters of a pyenv, with Python 3.13 in it."""
    binary = tmp_path / "home" / ".pyenv" / "versions" / "3.13.9" / "bin" / "python3.13"
    binary.parent.mkdir(parents=True)
    binary.write_text(INTERPRETER)
    binary.chmod(0o755)
    return binary.parents[2]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with only basic programs: no Python, and no apt-get to install it."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        *("basename", "cat", "cp", "cut", "dirname", "grep", "id", "ls", "mkdir", "rm", "sh"),
        *("sed", "sha256sum", "tr"),
    ):
        found = shutil.which(name)
        assert found is not None  # Every system has these.
        (tools / name).symlink_to(found)
    return tools


def add_program(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


def run(
    checkout: Path, environ: Mapping[str, str], *arguments: str, script: str = "dev"
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": SYSTEM_PATH, "SLIPWAY_CACHE": str(checkout.parent / "cache"), **environ}
    command = [str(checkout / script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_python_is_found_through_the_shims_on_path(checkout: Path, versions: Path) -> None:
    shims = versions.parent / "shims"
    shims.mkdir()
    refusing = shims / "python3.13"
    refusing.write_text("#!/bin/sh\nexit 127\n")
    refusing.chmod(0o755)
    done = run(checkout, {"PATH": f"{shims}:{SYSTEM_PATH}"}, "up", "--workers", "2")

    assert done.stdout == "dev up --workers 2\n"
    assert "Setting up Python packages" in done.stderr


@pytest.mark.parametrize("variable", ["HOME", "PYENV_ROOT"])
def test_python_is_found_through_pyenv(checkout: Path, versions: Path, variable: str) -> None:
    places = {"HOME": versions.parents[1], "PYENV_ROOT": versions.parent}

    assert run(checkout, {variable: str(places[variable])}, "status").stdout == "dev status\n"


def test_environment_is_made_once(checkout: Path, versions: Path) -> None:
    environ = {"PYENV_ROOT": str(versions.parent)}
    run(checkout, environ)

    assert run(checkout, environ).stderr == ""


def test_environment_is_made_anew_for_other_requirements(checkout: Path, versions: Path) -> None:
    environ = {"PYENV_ROOT": str(versions.parent)}
    run(checkout, environ)
    (checkout / "3rdparty" / "python" / "default.lock").write_text("# Nothing else.\n")

    assert "Setting up Python packages" in run(checkout, environ).stderr


def test_interrupted_set_up_is_taken_up_again(checkout: Path, versions: Path) -> None:
    environ = {"PYENV_ROOT": str(versions.parent)}
    run(checkout, environ)
    # An interrupted creation leaves an environment without its last file.
    (marker,) = (checkout.parent / "cache" / "dev").glob("*/complete")
    marker.unlink()
    (marker.parent / "bin" / "python").unlink()
    done = run(checkout, environ, "again")

    assert done.stdout == "dev again\n"
    assert marker.exists()


def test_failed_set_up_says_so_and_is_not_taken_for_finished(
    checkout: Path, versions: Path
) -> None:
    environ = {"PYENV_ROOT": str(versions.parent)}
    (checkout / "3rdparty" / "python" / "default.lock").write_text("broken\n")
    done = run(checkout, environ)

    assert done.returncode == 1
    assert "Setting up Python packages failed" in done.stderr
    assert not list((checkout.parent / "cache" / "dev").glob("*/complete"))


def test_missing_python_is_one_line_with_what_to_do(checkout: Path, bare: Path) -> None:
    done = run(checkout, {"PATH": str(bare)})

    assert done.returncode == 1
    assert done.stderr.startswith("dev: No Python 3.13 found")
    assert len(done.stderr.splitlines()) == 1


def test_missing_python_is_installed_by_uv_into_the_cache(checkout: Path, bare: Path) -> None:
    add_program(bare, "uv", UV)
    add_program(bare, "interpreter", INTERPRETER)
    done = run(checkout, {"PATH": str(bare)}, "status")

    assert done.stdout == "dev status\n"
    assert "Installing Python 3.13 with uv" in done.stderr
    assert list((checkout.parent / "cache" / "python").iterdir())
    assert "Installing" not in run(checkout, {"PATH": str(bare)}, "status").stderr


def test_pants_gets_the_older_python_that_it_runs_on(checkout: Path, bare: Path) -> None:
    locked = (checkout / "3rdparty" / "python" / "build" / "pex.txt").read_text()
    found = re.search(r"^pex==(\S+)", locked)
    assert found is not None
    pex = checkout.parent / "cache" / f"pex-{found[1]}" / "pex"
    pex.parent.mkdir(parents=True)
    pex.touch()
    add_program(bare, "uv", UV)
    add_program(bare, "interpreter", INTERPRETER)
    done = run(checkout, {"PATH": str(bare)}, "--pex", script="pants")

    assert done.stdout == f"{pex}\n"
    assert "Installing Python 3.9 with uv" in done.stderr
