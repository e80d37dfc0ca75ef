"""Tests of the manifests that run the simulator in a cluster."""

from __future__ import annotations

from typing import Any

from lab.kubevirt_sim.deployment import build_manifests


def find_template(certificate: bytes) -> dict[str, Any]:
    """Return the pod template for a certificate."""
    files = {"ca.crt": b"authority", "tls.crt": certificate, "tls.key": b"key"}
    (found,) = [
        each for each in build_manifests("sim:dev", files) if each.get("kind") == "Deployment"
    ]
    template: dict[str, Any] = found["spec"]["template"]
    return template


def test_another_certificate_starts_the_simulator_anew() -> None:
    assert find_template(b"one") == find_template(b"one")
    assert find_template(b"one") != find_template(b"two")
