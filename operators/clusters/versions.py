"""Versions of Kubernetes and their order. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

_PATTERN: Final = re.compile(r"v1\.(\d{1,6})\.(\d{1,6})(?:-(.+))?")
_NUMBER: Final = re.compile(r"(\d+)")
_UNRELEASED: Final = ("alpha", "beta", "rc")


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version of Kubernetes such as v1.35.0 or v1.36.0-rc.1.

    Attributes:
        is_release: Whether it is a release. Suffixes other than alpha, beta and rc belong to
            distributions, whose versions are releases.
        stage: Parsed suffix of a pre-release, which sorts numbers as numbers.
    """

    minor: int
    patch: int
    is_release: bool = True
    stage: tuple[tuple[int, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse a version; None if the text is not a version."""
        found = _PATTERN.fullmatch(text)
        if found is None:
            return None
        minor, patch, suffix = int(found[1]), int(found[2]), found[3] or ""
        if not suffix.startswith(_UNRELEASED):
            return cls(minor, patch)
        parts = [each for each in _NUMBER.split(suffix) if each]
        stage = tuple((int(each), "") if each.isdecimal() else (0, each) for each in parts)
        return cls(minor, patch, False, stage)


def is_older(version: str, target: str) -> bool:
    """Return whether a version is known and older than another one."""
    held, wanted = Version.parse(version), Version.parse(target)
    return held is not None and wanted is not None and held < wanted
