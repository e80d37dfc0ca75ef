"""Build the plugin as one executable file that needs Python alone, and its manifest for krew."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Final

import yaml

from kubectl_slipway import __version__
from tools.generate.sources import ROOT

NAME: Final = "kubectl-slipway"
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
_MAIN: Final = "import sys\nfrom kubectl_slipway.cli import main\nsys.exit(main())\n"
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_PLATFORMS: Final = ("linux", "darwin")


def build_file(root: Path = ROOT) -> bytes:
    """Build the file: the plugin and the Python part of PyYAML. Equal sources give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_collect(root).items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return _SHEBANG + buffer.getvalue()


def build_archive(root: Path = ROOT) -> bytes:
    """Build the archive that krew unpacks: the file and the license."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        parts = (
            (NAME, build_file(root), 0o755),
            ("LICENSE", (root / "LICENSE").read_bytes(), 0o644),
        )
        for name, content, mode in parts:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def build_manifest(archive: bytes, url: str) -> dict[str, Any]:
    """Build the manifest of krew for an archive that is published at a URL."""
    platform = {
        "selector": {
            "matchExpressions": [{"key": "os", "operator": "In", "values": list(_PLATFORMS)}]
        },
        "uri": url,
        "sha256": hashlib.sha256(archive).hexdigest(),
        "bin": NAME,
        "files": [{"from": NAME, "to": "."}, {"from": "LICENSE", "to": "."}],
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "slipway"},
        "spec": {
            "version": f"v{__version__}",
            "shortDescription": "Diagnose and operate objects of Slipway operators",
            "description": "Shows what is not ready, explains why, and operates virtual machines.",
            "caveats": "Needs Python 3.11 or later as python3.",
            "platforms": [platform],
        },
    }


def render_manifest(archive: bytes, url: str) -> str:
    """Render the manifest of krew."""
    return yaml.safe_dump(build_manifest(archive, url), sort_keys=False)


def _collect(root: Path) -> dict[str, bytes]:
    folder = root / "kubectl_slipway"
    found = {"__main__.py": _MAIN.encode()}
    for path in (*folder.rglob("*.py"), folder / "kinds.json"):
        if not path.name.endswith("_test.py") and path.name != "conftest.py":
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    distribution = importlib.metadata.distribution("PyYAML")
    for file in distribution.files or ():
        name = file.as_posix()
        if (name.startswith("yaml/") and name.endswith(".py")) or "LICENSE" in name:
            found[name] = Path(str(file.locate())).read_bytes()
    return found
