"""Versions of Kubernetes are read and ordered."""

from __future__ import annotations

from itertools import pairwise

import pytest

from operators.clusters.versions import Version, is_older

IN_ORDER = [
    "v1.34.2",
    "v1.34.10",
    "v1.35.0-alpha.1",
    "v1.35.0-rc.2",
    "v1.35.0-rc.10",
    "v1.35.0",
    "v1.35.1",
    "v1.100.0",
]


@pytest.mark.parametrize(("old", "new"), list(pairwise(IN_ORDER)))
def test_versions_are_ordered(old: str, new: str) -> None:
    assert is_older(old, new)
    assert not is_older(new, old)
    assert not is_older(new, new)


@pytest.mark.parametrize("text", ["", "v1.34", "1.34.2", "v2.0.0", "simulated", "v1.34.2+vendor"])
def test_version_that_cannot_be_read_is_never_older(text: str) -> None:
    assert Version.parse(text) is None
    assert not is_older(text, "v1.99.0")
    assert not is_older("v1.31.0", text)


def test_suffix_of_a_distribution_is_a_release() -> None:
    assert not is_older("v1.34.2-vendor.1", "v1.34.2")
    assert is_older("v1.34.1-vendor.1", "v1.34.2")
