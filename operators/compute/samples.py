"""Objects for the tests of the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from libs.common.kinds import Manifest, build_object
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT
from operators.compute.api.instance import INSTANCE, Instance
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.instance.observed import Capacity, DiskView, Machine, Observed, Run
from operators.compute.marks import build_reference

UID: Final = "11111111-1111-4111-8111-111111111111"
"""UID of the Instance that `build_instance` builds."""
IMAGE: Final = {"url": "https://images.example.com/debian-13.qcow2"}
"""Image of root disks in tests."""


def build_size(name: str = "small", *, cpus: int = 2, memory: str = "4Gi") -> Manifest:
    """Build an InstanceSize."""
    return build_object(INSTANCE_SIZE, name, spec={"cpus": cpus, "memory": memory, "disk": "10Gi"})


def build_instance(name: str = "web", /, namespace: str = "default", **spec: Any) -> Manifest:
    """Build an Instance as a user would apply it."""
    return build_object(
        INSTANCE, name, namespace, spec={"size": "small", "image": dict(IMAGE), **spec}
    )


def build_snapshot(name: str, /, machine: str = "web", namespace: str = "default") -> Manifest:
    """Build a snapshot of a machine as a user would create it."""
    source = {"apiGroup": VIRTUAL_MACHINE.group, "kind": VIRTUAL_MACHINE.kind, "name": machine}
    return build_object(MACHINE_SNAPSHOT, name, namespace, spec={"source": source})


def build_operation(
    type: str, name: str = "op", /, target: str = "web", namespace: str = "default", **spec: Any
) -> Manifest:
    """Build an Operation as a user would apply it."""
    return build_object(
        OPERATION, name, namespace, spec={"type": type, "targetRef": {"name": target}, **spec}
    )


SMALL: Final = Capacity(2, Fraction(4 * 2**30))
"""Capacity of the size `small`."""
LARGE: Final = Capacity(4, Fraction(8 * 2**30))
"""Capacity of the size `large`."""


def parse_instance(name: str = "web", /, **spec: Any) -> Instance:
    """Build a parsed Instance."""
    status = spec.pop("status", None)
    manifest = build_instance(name, **spec)
    manifest["metadata"] |= {"uid": UID, "generation": 1}
    return Instance.parse(manifest if status is None else {**manifest, "status": status})


def build_directive(kind: str, /, **parts: Any) -> Manifest:
    """Build a directive."""
    return {"kind": kind, "token": "token", **parts}


def build_observation(
    *, size: Capacity | None = SMALL, disks: Sequence[DiskView] = (), **parts: Any
) -> Observed:
    """Build the observed state of the Instance."""
    by_name = {disk.name: disk for disk in disks}
    return Observed(size=size, disk_size="10Gi", disks=by_name, **parts)


def show_disk(
    name: str = "web-root",
    *,
    filled: bool = True,
    failed: bool = False,
    storage: Manifest | None = None,
    **reported: Any,
) -> DiskView:
    """Build a root disk that is ours."""
    manifest = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "ownerReferences": [build_reference(parse_instance())],
        },
        "spec": {"storage": storage},
    }
    return DiskView(
        DATA_VOLUME,
        manifest,
        name,
        f"uid-{name}",
        deleting=False,
        filled=filled,
        failed=failed,
        **reported,
    )


def show_machine(
    *,
    disk: str = "web-root",
    strategy: str = "Always",
    created: bool = False,
    generation: int = 1,
    status: Manifest | None = None,
    claims: Mapping[str, str] | None = None,
) -> Machine:
    """Build the machine as KubeVirt reports it."""
    capacity = {"cpu": {"sockets": 2}, "memory": {"guest": "4Gi"}}
    volumes: list[Manifest] = [{"name": "root", "dataVolume": {"name": disk}}]
    for name, claim in (claims or {}).items():
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
    template = {"domain": capacity, "volumes": volumes}
    return Machine.parse(
        {
            "metadata": {
                "name": "web",
                "namespace": "default",
                "uid": "vm-1",
                "generation": generation,
            },
            "spec": {"runStrategy": strategy, "template": {"spec": template}},
            "status": {"created": created, "runStrategy": strategy, **(status or {})},
        }
    )


def show_run(
    uid: str = "run-1",
    *,
    disk: str = "web-root",
    ready: bool = True,
    deleting: bool = False,
    agent: bool = False,
    probe: bool = False,
    attached: Sequence[str] = (),
    **status: Any,
) -> Run:
    """Build a run of the machine."""
    metadata = {"name": "web", "namespace": "default", "uid": uid}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if agent:
        conditions.append({"type": "AgentConnected", "status": "True"})
    volumes: list[Manifest] = [{"name": "root", "dataVolume": {"name": disk}}]
    volumes += [{"name": name} for name in attached]
    return Run.parse(
        {
            "metadata": metadata,
            "spec": {
                "domain": {"cpu": {"sockets": 2}, "memory": {"guest": "4Gi"}},
                "volumes": volumes,
                **({"readinessProbe": {"tcpSocket": {"port": 22}}} if probe else {}),
            },
            "status": {
                "phase": "Running",
                "nodeName": "node-1",
                "conditions": conditions,
                **status,
            },
        }
    )
