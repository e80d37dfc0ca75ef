"""Machines and disks for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.kubevirt_sim.behavior import PREFIX
from libs.common.kinds import Manifest, build_object
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)


def build_machine(
    name: str = "web",
    namespace: str = "default",
    *,
    disk: str = "",
    strategy: str = "Always",
    guest: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Build a machine.

    Args:
        name: Name.
        namespace: Namespace.
        disk: Data volume that it boots from; empty for none.
        strategy: Run strategy.
        guest: Annotations of the simulator, without their prefix.
        spec: Further fields of the template's spec.
    """
    volumes = [{"name": "root", "dataVolume": {"name": disk}}] if disk else []
    notes = {PREFIX + each: value for each, value in (guest or {}).items()}
    return build_object(
        VIRTUAL_MACHINE,
        name,
        namespace,
        spec={
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": notes},
                "spec": {
                    "domain": {
                        "cpu": {"cores": 1},
                        "devices": {
                            "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                            "interfaces": [
                                {
                                    "name": "default",
                                    "masquerade": {},
                                    "macAddress": "02:00:00:00:00:01",
                                }
                            ],
                        },
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": volumes,
                    **spec,
                },
            },
        },
    )


def build_disk(
    name: str = "web-root", namespace: str = "default", *, guest: Mapping[str, str] | None = None
) -> Manifest:
    """Build a data volume that is imported from a URL."""
    notes = {PREFIX + each: value for each, value in (guest or {}).items()}
    return build_object(
        DATA_VOLUME,
        name,
        namespace,
        metadata={"annotations": notes},
        spec={
            "source": {"http": {"url": "https://images.example.com/linux.qcow2"}},
            "storage": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "10Gi"}},
            },
        },
    )


def build_migration(
    name: str = "move",
    vmi: str = "web",
    namespace: str = "default",
    *,
    guest: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Build a migration of an instance."""
    notes = {PREFIX + each: value for each, value in (guest or {}).items()}
    kind = VIRTUAL_MACHINE_INSTANCE_MIGRATION
    return build_object(
        kind, name, namespace, metadata={"annotations": notes}, spec={"vmiName": vmi, **spec}
    )
