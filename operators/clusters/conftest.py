"""Fixtures of the tests of clusters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kubeadm() -> Path:
    """Find kubeadm among the binaries of the control plane."""
    path = Path(os.environ.get("KUBEBUILDER_ASSETS", "/usr/local/kubebuilder/bin"), "kubeadm")
    if not path.exists():
        pytest.skip("kubeadm is not among the binaries of KUBEBUILDER_ASSETS")
    return path
