"""Closure: the packages that a process can import, from its modules and the lock."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "3rdparty" / "python" / "default.lock"
_OURS: Final = ("libs", "operators")
_PIN: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ \\;]+)")
_COMMAND: Final = re.compile(r'"\./([\w/]+)\.py:')
"""A module that BUILD adds to an image, because it is a command of its own."""
_REQUIREMENT: Final = re.compile(r"//3rdparty/python:requirements#([\w.-]+)")
_SPDX: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache License v2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "3-Clause BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX identifiers of the names that packages without a license expression use."""
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of the lock."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL, which identifies the package in a bill of materials."""
        return f"pkg:pypi/{normalize(self.name)}@{self.version}"


def read_lock(text: str) -> dict[str, Pin]:
    """Read the pins of a lock by normalized name."""
    pins: dict[str, Pin] = {}
    current = ""
    for line in text.splitlines():
        if match := _PIN.match(line):
            current = normalize(match["name"])
            pins[current] = Pin(match["name"], match["version"], ())
        if current and (found := _HASH.findall(line)):
            pin = pins[current]
            pins[current] = Pin(pin.name, pin.version, (*pin.hashes, *found))
    return pins


def find_distributions(image: str) -> set[str]:
    """Return the normalized names of the packages that the process of an image can import.

    Args:
        image: The ID of an operator; with `-app`, the app of an operator.
    """
    folder = f"operators/{image.removesuffix('-app')}{'/app' if image.endswith('-app') else ''}"
    build = (ROOT / folder / "BUILD").read_text()
    package = folder.replace("/", ".")
    commands = {command.replace("/", ".") for command in _COMMAND.findall(build)}
    roots = {
        normalize(name)
        for command in {"__main__", *commands}
        for module in _find_imports(f"{package}.{command}")
        for name in _owners().get(module, ())
    }
    # Packages that a dependency imports only if they are installed.
    roots |= {normalize(name) for name in _REQUIREMENT.findall(build)}
    found: set[str] = set()
    while roots:
        name = roots.pop()
        found.add(name)
        roots |= set(list_requirements(name)) - found
    return found


def license_of(name: str) -> str:
    """Return the license of a package as an SPDX expression.

    Raises:
        ValueError: The package declares a license whose SPDX identifier is not known here.
    """
    declared = metadata.metadata(name)
    if expression := declared.get("License-Expression"):
        return str(expression)
    classifiers = [str(each).rpartition(" :: ")[2] for each in declared.get_all("Classifier") or ()]
    texts = [str(declared.get("License") or "").partition("\n")[0], *classifiers]
    for text in texts:
        if identifier := _SPDX.get(text) or (text if text in _SPDX.values() else ""):
            return identifier
    raise ValueError(f"{name}: unknown license: {', '.join(texts)}; add its SPDX identifier")


def normalize(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _owners() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def list_requirements(name: str) -> Iterator[str]:
    """Yield the normalized names of the packages that a package needs, without extras."""
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield normalize(requirement.name)


def find_modules(start: str) -> set[Path]:
    """Return the files of ours that a module imports directly or indirectly, including itself."""
    seen: set[Path] = set()
    todo = [path for path in [_path_of(start)] if path]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in _imports_of(path):
            if module.partition(".")[0] in _OURS:
                todo += [each for each in (_path_of(module), _path_of(_parent(module))) if each]
    return seen


def _find_imports(start: str) -> set[str]:
    """Return the top-level third-party modules that a module imports directly or indirectly."""
    tops = {
        module.partition(".")[0] for path in find_modules(start) for module in _imports_of(path)
    }
    return tops - {*_OURS} - sys.stdlib_module_names


def _imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _parent(module: str) -> str:
    return module.rpartition(".")[0]


def _path_of(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None
