"""Objects for the tests of the operator."""

from __future__ import annotations

from typing import Any, Final

from libs.common.kinds import Manifest
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE

UID: Final = "11111111-1111-4111-8111-111111111111"
"""UID of the Instance that `build_instance` builds."""
IMAGE: Final = {"url": "https://images.example.com/debian-13.qcow2"}
"""What root disks are filled with in tests."""


def build_size(name: str = "small", *, cpus: int = 2, memory: str = "4Gi") -> Manifest:
    """Build an InstanceSize."""
    return {
        "apiVersion": INSTANCE_SIZE.api_version,
        "kind": INSTANCE_SIZE.kind,
        "metadata": {"name": name},
        "spec": {"cpus": cpus, "memory": memory, "disk": "10Gi"},
    }


def build_instance(name: str = "web", /, namespace: str = "default", **spec: Any) -> Manifest:
    """Build an Instance as a user applies it."""
    return {
        "apiVersion": INSTANCE.api_version,
        "kind": INSTANCE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"size": "small", "image": dict(IMAGE), **spec},
    }


def build_operation(
    type: str, name: str = "op", /, target: str = "web", namespace: str = "default", **spec: Any
) -> Manifest:
    """Build an Operation as a user applies it."""
    return {
        "apiVersion": OPERATION.api_version,
        "kind": OPERATION.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": type, "targetRef": {"name": target}, **spec},
    }
