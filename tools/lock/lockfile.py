"""The lockfile as data: made from what pex resolved, parsed back, compared with the requirements.

It is a requirements file with hashes, which pip and Pants both read, and not pex's own format: that
one writes down where each file was downloaded, so that a mirror could not be used with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.cluster.errors import ToolError

HEADER: Final = """\
# Every dependency with the hashes of its wheels (CPython 3.13 on Linux and macOS).
# Written by `python -m tools.lock` from requirements.txt. DO NOT EDIT.
"""

_PIN: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_COMMENT: Final = re.compile(r"(^|\s)#.*$")


class LockError(ToolError):
    """The requirements cannot be locked as they are."""


def normalize(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_pins(text: str) -> dict[str, str]:
    """Return the version of each package of a requirements file, by normalized name.

    Raises:
        LockError: Lines that are no pins, all of them.
    """
    pins: dict[str, str] = {}
    wrong: list[str] = []
    for raw in text.splitlines():
        line = _COMMENT.sub("", raw).strip()
        if not line or line.startswith("--hash="):
            continue
        if match := _PIN.match(line):
            pins[normalize(match["name"])] = match["version"]
        else:
            wrong.append(line)
    if wrong:
        raise LockError(f"Not of the form name==version: {', '.join(wrong)}; pin these")
    return pins


def render_lock(resolved: Mapping[str, Any]) -> str:
    """Return the lockfile for what `pex3 lock create` wrote.

    Raises:
        LockError: Packages without a wheel, all of them: nothing is built from source.
    """
    lines = [HEADER.rstrip()]
    sourced: list[str] = []
    requirements = resolved["locked_resolves"][0]["locked_requirements"]
    for requirement in sorted(requirements, key=lambda found: str(found["project_name"])):
        pin = f"{requirement['project_name']}=={requirement['version']}"
        artifacts = requirement["artifacts"]
        hashes = sorted(each["hash"] for each in artifacts if each["url"].endswith(".whl"))
        if not hashes:
            sourced.append(pin)
        lines.append(" \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in hashes)]))
    if sourced:
        raise LockError(f"No wheel for {', '.join(sourced)}; choose versions that have one")
    return "\n".join(lines) + "\n"


def find_drift(requirements: str, lock: str) -> list[str]:
    """Return what is wrong with a lockfile, seen from the requirements; nothing when it fits."""
    wanted, locked = parse_pins(requirements), parse_pins(lock)
    problems = [
        f"{name}: requirements.txt has {version}, default.lock has {locked.get(name, 'nothing')}"
        for name, version in wanted.items()
        if locked.get(name) != version
    ]
    return problems + [f"{name}: no hash in default.lock" for name in _unhashed(lock)]


def find_surplus(lock: str, needs: Mapping[str, Sequence[str]], roots: Sequence[str]) -> list[str]:
    """Return what is locked though nothing needs it.

    Args:
        needs: What each package of the lockfile requires.
        roots: The packages that requirements.txt names.
    """
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(needs.get(name, ()))
    return sorted(set(parse_pins(lock)) - reached)


def _unhashed(lock: str) -> list[str]:
    entries = re.split(r"\n(?=[A-Za-z0-9])", lock)
    pinned = [entry for entry in entries if _PIN.match(entry)]
    return [entry.split("==")[0] for entry in pinned if "--hash=sha256:" not in entry]
