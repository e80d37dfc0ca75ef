"""Rows 31 and 32: what images are made of, licenses, pins, and no secrets in the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from tests.security.code import ROOT
from tools.sbom import document
from tools.sbom.closure import LOCK, license_of, read_lock
from tools.sbom.document import build_document

_OPERATORS = sorted(path.parent.name for path in (ROOT / "operators").glob("*/__main__.py"))
_PACKAGES = ROOT / "3rdparty/python"
_INSTALLERS = (
    "dev",
    "pants",
    "tools/*.py",
    "lab/*.py",
    ".github",
    ":!*_test.py",
    ":!tools/scaffold",
)
"""What may install packages; tools/scaffold installs the wheel that it has just built."""
_LICENSES = {
    *("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"),
    *("0BSD", "Unlicense"),
}
"""SPDX identifiers of the licenses that an image may contain."""
_SECRETS = (
    re.compile(r"-----BEGIN (RSA |EC |OPENSSH |)PRIVATE KEY-----\n[A-Za-z0-9+/=\n]{200,}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36}\b"),
    re.compile(r"\bxox[baprs]-[A-Za-z0-9-]{20,}"),
)


@pytest.mark.parametrize("operator", _OPERATORS)
def test_bill_of_materials_is_complete_and_reproducible(operator: str) -> None:
    bill = build_document(operator)
    names = {component["name"] for component in bill["components"]}

    assert {"kopf", "pydantic"} <= names
    assert not {"pytest", "hypothesis", "mypy"} & names, "tools are no part of an image"
    assert build_document(operator) == bill
    graph = {node["ref"]: node["dependsOn"] for node in bill["dependencies"]}
    assert set(graph) == {operator, *(component["bom-ref"] for component in bill["components"])}
    kopf = next(ref for ref in graph if ref.startswith("pkg:pypi/kopf@"))
    assert any(needed.startswith("pkg:pypi/aiohttp@") for needed in graph[kopf])
    assert {needed for node in graph.values() for needed in node} <= set(graph)


@pytest.mark.parametrize("operator", _OPERATORS)
def test_every_package_of_an_image_is_pinned_with_hashes_and_free(operator: str) -> None:
    for component in build_document(operator)["components"]:
        assert component["hashes"], component["name"]
        (declared,) = component["licenses"]
        found = declared.get("expression") or declared["license"]["id"]
        parts = set(re.findall(r"[\w.-]+", found)) - {"AND", "OR"}
        assert parts <= _LICENSES, f"{component['name']}: {found}"


def test_package_that_is_not_in_the_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "find_distributions", lambda operator: {"left-pad"})

    with pytest.raises(ValueError, match="not in the lock: left-pad"):
        build_document("podset")


def test_lock_is_read_whole() -> None:
    pins = read_lock(LOCK.read_text())

    assert len(pins) > 20
    assert all(pin.hashes for pin in pins.values())
    assert license_of("kopf")


def test_lock_has_the_versions_of_the_requirements_with_hashes() -> None:
    wanted = parse_pins((_PACKAGES / "requirements.txt").read_text())
    text = (_PACKAGES / "default.lock").read_text()
    locked = parse_pins(text)

    outdated = {name: version for name, version in wanted.items() if locked.get(name) != version}
    assert not outdated, "write the lock: its first lines have the command"
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=[A-Za-z0-9])", text)[1:])


@pytest.mark.parametrize("path", sorted((_PACKAGES / "build").glob("*.txt")), ids=lambda p: p.stem)
def test_build_tools_are_locked_with_hashes(path: Path) -> None:
    """To write one: uv pip compile --generate-hashes --no-annotate --no-header, for its Python."""
    entries = re.split(r"\n(?=[A-Za-z0-9])", path.read_text())

    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
    assert find_open_advisories(parse_pins(path.read_text())) == []


def test_pip_installs_nothing_without_a_hash() -> None:
    """Except our own wheel, which projects install by its path."""
    listing = subprocess.run(
        ["git", "grep", "-lE", r"pip(\"|'|\))?,? ?\"?(install|download)", "--", *_INSTALLERS],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split()

    loose = [each for each in listing if "--require-hashes" not in (ROOT / each).read_text()]
    assert {"dev", "pants", "tools/cluster/go_toolchain.py", "tools/jvm/kit.py"} <= set(listing)
    assert loose == []


def test_no_locked_version_has_a_known_advisory() -> None:
    locked = parse_pins((_PACKAGES / "default.lock").read_text())

    assert find_open_advisories(locked) == []


def test_vulnerable_version_is_found() -> None:
    assert "CVE-2026-69247" in find_open_advisories({"cryptography": "49.0.0"})


def parse_pins(text: str) -> dict[str, str]:
    """Return the version of each package that a requirements file pins, by normalized name."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


def find_open_advisories(pins: dict[str, str]) -> list[str]:
    """Return the listed advisories that apply to pinned versions."""
    lines = (_PACKAGES / "advisories.txt").read_text().splitlines()
    listed = [line.split() for line in lines if not line.startswith("#")]
    return [
        advisory
        for advisory, package, fixed in listed
        if package in pins and Version(pins[package]) < Version(fixed)
    ]


def find_secrets(text: str) -> bool:
    """Return whether a text holds what has the shape of a credential."""
    return any(pattern.search(text) for pattern in _SECRETS)


def test_repository_holds_no_credentials() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    for name in filter(None, listing.split("\0")):
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 2_000_000:
            assert not find_secrets(path.read_text(errors="ignore")), name


@pytest.mark.parametrize(
    "text",
    [
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a" * 36,
        "-----BEGIN PRIVATE KEY-----\n" + "A" * 300,
    ],
)
def test_planted_credential_is_found(text: str) -> None:
    assert find_secrets(text)
