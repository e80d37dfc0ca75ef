"""Instance, InstanceSize and Operation, fuzzed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from lab.fuzz.subject import FuzzSubject
from libs.common.kinds import SECRET, Manifest, key_of
from libs.common.plan import Apply, Create
from libs.contracts.instancetypes import InstancetypeView
from operators.compute.api.instance import Instance
from operators.compute.api.operation import Operation
from operators.compute.api.size import InstanceSize
from operators.compute.instance.conformance_test import TestInstanceConformance
from operators.compute.instance.reconcile import plan_instance
from operators.compute.naming import root_disk_name
from operators.compute.operation.resources import build_migration
from operators.compute.samples import IMAGE, build_observation, show_disk

_TYPE: Final = {"metadata": {"uid": "u"}, "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}}
"""An instancetype, whatever the Instance names."""
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def render_instance(manifest: Manifest) -> list[Manifest]:
    """Make all that an Instance has before its disk is filled, and then its machine."""
    instance = Instance.parse(manifest)
    filled = build_observation(
        disks=(show_disk(root_disk_name(instance.metadata.name)),),
        instancetype=InstancetypeView.parse(_TYPE),
        preference_exists=True,
    )
    made: dict[tuple[str, str], Manifest] = {}
    for observed in (build_observation(), filled):
        for action in plan_instance(instance, observed, NOW):
            if isinstance(action.step, Apply | Create):
                child = action.step.manifest
                made.setdefault((child["kind"], key_of(child).name), child)
    # The kind that a bare API server serves comes first, to be offered to it.
    return sorted(made.values(), key=lambda child: child["kind"] != SECRET.kind)


def render_size(manifest: Manifest) -> list[Manifest]:
    """Read a size, of which nothing is made."""
    InstanceSize.parse(manifest)
    return []


def render_operation(manifest: Manifest) -> list[Manifest]:
    """Make the migration of an Operation."""
    return [build_migration(Operation.parse(manifest))]


SUBJECTS: Final = (
    FuzzSubject(
        "compute",
        Instance,
        {
            "size": "small",
            "image": dict(IMAGE),
            "networkRef": {"name": "lan"},
            "publicIP": {
                "mode": "Auto",
                "poolName": "public",
                "ports": [{"name": "ssh", "port": 22}],
            },
            "ssh": {"authorizedKeys": ["ssh-ed25519 AAAA ada"], "user": "ada"},
            "rootDisk": {
                "size": "20Gi",
                "storageClassName": "fast",
                "accessModes": ["ReadWriteMany"],
                "volumeMode": "Block",
                "keepReplacedSeconds": 60,
            },
            "readinessProbe": {"httpGet": {"port": 80, "path": "/health"}, "periodSeconds": 5},
            "volumes": [{"name": "data", "claim": "data"}],
            "placement": {"nodeSelector": {"disk": "ssd"}, "spreadGroup": "web"},
            "onGuestShutdown": "Restart",
        },
        render_instance,
        pinned=(
            {
                "instancetype": {"name": "u1.small"},
                "preference": {"name": "linux"},
                "image": dict(IMAGE),
                "rootDisk": {"size": "20Gi"},
            },
        ),
        live=TestInstanceConformance.subject,
    ),
    FuzzSubject("compute", InstanceSize, {"cpus": 2, "memory": "4Gi", "disk": "10Gi"}, render_size),
    FuzzSubject(
        "compute",
        Operation,
        {
            "type": "Migrate",
            "targetRef": {"name": "web"},
            "migrate": {"nodeSelector": {"disk": "ssd"}},
            "timeoutSeconds": 600,
        },
        render_operation,
    ),
)
