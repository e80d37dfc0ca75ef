"""Build the wheel of the library: a build backend by the interface of PEP 517.

The library is `libs.common` in its repository, and `slipway_operators` where it is installed:
`libs` is no name to claim for everybody. The name is replaced in every file of the wheel. The wheel
has no tests. It has the library chart, from which the charts of projects are made, and the command
`slipway-sweep` with the modules of the laboratory that it needs.
"""

from __future__ import annotations

import base64
import hashlib
import re
import runpy
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

PACKAGE: Final = "slipway_operators"
"""Import name of the installed library."""
_FOLDER: Final = Path(__file__).resolve().parent
_ROOT: Final = _FOLDER.parents[1]
_CHART: Final = Path("helm", "operator-common")
_SWEEP: Final = "lab.sweep.anyop.command"
_COMMAND: Final = "slipway-sweep"
_NAMES: Final = (
    (re.compile(r"\blibs([./])common\b"), PACKAGE),
    (re.compile(r"\b(lab\.sweep|tools\.cluster)\b"), f"{PACKAGE}.sweep"),
    (re.compile(r"\./dev sweep\b"), _COMMAND),
)
_LEFT: Final = re.compile(r"\b(lab|libs|operators|tools)\.[a-z_]+\b")
_MODULE: Final = re.compile(r"^from ((?:lab|tools)\.[\w.]+) import (\w+)", re.MULTILINE)
_SUFFIXES: Final = (".py", ".json", ".tmpl")
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Write the wheel into a folder, and return its name. Equal sources give equal bytes."""
    project = tomllib.loads((_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version: str = runpy.run_path(str(_FOLDER / "version.py"))["__version__"]
    distribution = f"{PACKAGE}-{version}"
    info = f"{distribution}.dist-info"
    files = dict(collect_files())
    files[f"{info}/METADATA"] = render_metadata(project, version).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: slipway\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = (
        f"[console_scripts]\n{_COMMAND} = {PACKAGE}.sweep.anyop.command:start\n".encode()
    )
    files[f"{info}/licenses/LICENSE"] = (_ROOT / "LICENSE").read_bytes()
    record = [f"{name},sha256={_hash(data)},{len(data)}" for name, data in sorted(files.items())]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    name = f"{distribution}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in sorted(files.items()):
            entry = zipfile.ZipInfo(path, _TIME)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return name


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Refuse: the sources are the repository.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("build a wheel from a checkout of the repository")


def collect_files() -> Iterator[tuple[str, bytes]]:
    """Yield the path in the wheel and the content of each file.

    Raises:
        ValueError: A file imports what the wheel does not have.
    """
    paths = {path.relative_to(_FOLDER).as_posix(): path for path in _FOLDER.rglob("*")}
    paths = {name: path for name, path in paths.items() if path.is_file() and _is_shipped(path)}
    for name, path in sorted((paths | _find_sweep()).items()):
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in _NAMES:
            text = pattern.sub(replacement, text)
        imports = [line for line in text.splitlines() if line.lstrip().startswith(_IMPORTS)]
        if found := [line for line in imports if _LEFT.search(line)]:
            raise ValueError(f"{name}: {found[0].strip()!r} is not a part of the library")
        yield f"{PACKAGE}/{name}", text.encode()
    yield f"{PACKAGE}/py.typed", b""
    for path in sorted((_ROOT / _CHART).rglob("*")):
        if path.is_file():
            name = path.relative_to(_ROOT / _CHART).as_posix()
            yield f"{PACKAGE}/project/operator-common/{name}", path.read_bytes()


def render_metadata(project: Mapping[str, Any], version: str) -> str:
    """Render METADATA, version 2.4, from the table `project` of pyproject.toml."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Keywords: {','.join(project['keywords'])}",
        *(f"Classifier: {each}" for each in project["classifiers"]),
        *(f"Requires-Dist: {each}" for each in project["dependencies"]),
    ]
    for extra, requirements in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {each}; extra == "{extra}"' for each in requirements]
    readme = (_FOLDER / project["readme"]).read_text(encoding="utf-8")
    changes = (_FOLDER / "CHANGELOG.md").read_text(encoding="utf-8")
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", readme, changes])


_IMPORTS: Final = ("from ", "import ")


def _find_sweep() -> dict[str, Path]:
    """Return the modules that the sweep of any operator imports from laboratory and tools."""
    found: dict[str, Path] = {}
    todo = [_SWEEP, "lab.sweep.__init__", "lab.sweep.anyop.__init__"]
    while todo:
        module = todo.pop()
        path = _ROOT / f"{module.replace('.', '/')}.py"
        name = re.sub(r"^(lab/sweep|tools/cluster)/", "sweep/", path.relative_to(_ROOT).as_posix())
        if path.is_file() and name not in found:
            found[name] = path
            for parent, child in _MODULE.findall(path.read_text(encoding="utf-8")):
                todo += [parent, f"{parent}.{child}"]
    return found


def _is_shipped(path: Path) -> bool:
    tests = path.name.endswith("_test.py") or path.name == "conftest.py"
    return path.suffix in _SUFFIXES and not tests and path != Path(__file__).resolve()


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
