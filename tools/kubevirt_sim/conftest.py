"""Fixtures of these tests."""

from tools.kubevirt_sim.fixtures import kubevirt_sim

__all__ = ["kubevirt_sim"]
