"""Objects for the tests of the operator."""

from __future__ import annotations

from typing import Any

from libs.common.kinds import POD, Manifest, build_object
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL


def build_pool(name: str = "public", /, **spec: Any) -> Manifest:
    """Build a pool of four addresses that allocates the lowest first, without quarantine."""
    defaults = {
        "family": "IPv4",
        "addresses": ["203.0.113.0-203.0.113.3"],
        "strategy": "LowestFree",
        "reuseGraceSeconds": 0,
    }
    return build_object(IP_POOL, name, spec={**defaults, **spec})


def build_claim(name: str = "web", /, **spec: Any) -> Manifest:
    """Build a claim of the pool `public`."""
    return build_object(IP_CLAIM, name, "default", spec={"poolRef": {"name": "public"}, **spec})


def build_instance(name: str = "web") -> Manifest:
    """Build an Instance; only its name matters here."""
    return build_object(INSTANCE, name, "default", spec={"size": "small"})


def build_run(instance: Manifest, **status: Any) -> Manifest:
    """Build the VirtualMachineInstance of an Instance."""
    metadata = instance["metadata"]
    run = build_object(VIRTUAL_MACHINE_INSTANCE, metadata["name"], "default", status=status)
    run["metadata"]["labels"] = {INSTANCE_UID_LABEL: metadata["uid"]}
    return run


def build_launcher(run: Manifest, name: str, node: str) -> Manifest:
    """Build a launcher pod of a VirtualMachineInstance."""
    metadata = run["metadata"]
    pod = build_object(POD, name, "default", spec={"nodeName": node, "containers": [_CONTAINER]})
    pod["metadata"] |= {
        "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": metadata["uid"]},
        "ownerReferences": [
            {
                "apiVersion": VIRTUAL_MACHINE_INSTANCE.api_version,
                "kind": VIRTUAL_MACHINE_INSTANCE.kind,
                "name": metadata["name"],
                "uid": metadata["uid"],
                "controller": True,
            }
        ],
    }
    return pod


_CONTAINER = {"name": "compute", "image": "launcher"}
