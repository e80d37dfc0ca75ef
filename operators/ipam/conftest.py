"""Fixtures of the tests of ipam: a simulated KubeVirt, and the kinds on a fake API server."""

from __future__ import annotations

from tools.kubevirt_sim.fixtures import kubevirt_sim

__all__ = ["kubevirt_sim"]
