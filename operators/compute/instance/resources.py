"""Manifests of what an Instance makes; pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from libs.common.contracts.cdi import BIND_IMMEDIATELY, DATA_VOLUME, KEEP_AFTER_COMPLETION
from libs.common.contracts.images import Image
from libs.common.contracts.ip_claims import IP_CLAIM
from libs.common.contracts.kubevirt import VIRTUAL_MACHINE, RunStrategy
from libs.common.kinds import SECRET, Kind, Manifest, build_object
from libs.common.labels import INSTANCE as INSTANCE_NAME
from libs.common.labels import MANAGED_BY
from libs.common.naming import label_value
from libs.common.quantity import render_quantity
from operators.compute.api.instance import (
    CLOUD_INIT,
    INSTANCE,
    ROOT,
    DeletionMode,
    Instance,
)
from operators.compute.instance.observed import Capacity
from operators.compute.marks import build_mark, build_reference
from operators.compute.naming import (
    OPERATOR,
    ROLE_LABEL,
    ROOT_ROLE,
    SPREAD_LABEL,
    cloud_init_name,
    firmware_uuid,
    identity_labels,
    mac_address,
    public_claim_name,
)


def build_labels(instance: Instance) -> dict[str, str]:
    """Build the labels that each child carries."""
    name, uid = instance.metadata.name, instance.metadata.uid
    common = {MANAGED_BY: OPERATOR, INSTANCE_NAME: label_value(name)}
    return common | identity_labels(name, uid)


def build_disk(instance: Instance, name: str, image: Image, default_size: str) -> Manifest:
    """Build a root disk.

    It is filled before any machine wants it: the old machine runs meanwhile.

    Args:
        instance: What is asked for.
        name: Name of the disk.
        image: What it is filled with.
        default_size: Size where the spec names none.
    """
    wanted = instance.spec.root_disk
    storage: Manifest = {"resources": {"requests": {"storage": wanted.size or default_size}}}
    if wanted.storage_class_name is not None:
        storage["storageClassName"] = wanted.storage_class_name
    spec: Manifest = {"storage": storage, **_build_source(instance, image)}
    owned = instance.spec.deletion_policy.root_disk is DeletionMode.DELETE
    manifest = _build(instance, DATA_VOLUME, name, build_mark(instance, owned=owned), spec=spec)
    metadata = manifest["metadata"]
    metadata["labels"][ROLE_LABEL] = ROOT_ROLE
    annotations = {BIND_IMMEDIATELY: "true", KEEP_AFTER_COMPLETION: "false"}
    metadata["annotations"] = {**annotations, **metadata.get("annotations", {})}
    return manifest


def build_cloud_init(instance: Instance) -> Manifest:
    """Build the Secret with the first settings of the guest.

    JSON is YAML, so whatever is in a name or a key stays a text and never becomes a setting.
    """
    text = f"#cloud-config\n{json.dumps(build_settings(instance), sort_keys=True)}\n"
    data = {"userdata": base64.b64encode(text.encode()).decode()}
    name = cloud_init_name(instance.metadata.name)
    return _build(
        instance, SECRET, name, build_mark(instance, owned=True), type="Opaque", data=data
    )


def build_settings(instance: Instance) -> Manifest:
    """Build the first settings of the guest, as cloud-init reads them."""
    hostname = instance.spec.hostname or instance.metadata.name
    settings: Manifest = {"hostname": hostname, "preserve_hostname": False}
    ssh = instance.spec.ssh
    if ssh is None:
        return settings
    if ssh.user is None:
        return settings | {"ssh_authorized_keys": list(ssh.authorized_keys)}
    user = {
        "name": ssh.user,
        "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "ssh_authorized_keys": list(ssh.authorized_keys),
    }
    return settings | {"users": ["default", user]}


def build_public_claim(instance: Instance) -> Manifest:
    """Build the IPClaim of mode Auto, whose address leads to the Instance."""
    owned = instance.spec.deletion_policy.public_ip is DeletionMode.DELETE
    spec = {
        "poolRef": {"name": instance.spec.public_ip.pool_name},
        "target": {"kind": INSTANCE.kind, "name": instance.metadata.name},
    }
    name = public_claim_name(instance.metadata.name)
    return _build(instance, IP_CLAIM, name, build_mark(instance, owned=owned), spec=spec)


def build_machine(
    instance: Instance,
    capacity: Capacity,
    disk: str,
    claims: Mapping[str, str],
    attachment: str,
    *,
    run: bool,
) -> Manifest:
    """Build the VirtualMachine.

    Args:
        instance: What is asked for.
        capacity: How much the machine has.
        disk: Root disk to boot from.
        claims: Claims of further volumes, by volume name.
        attachment: NetworkAttachmentDefinition; empty for the network of pods.
        run: Whether KubeVirt is to keep it running.
    """
    spec = {
        "runStrategy": str(RunStrategy.ALWAYS if run else RunStrategy.HALTED),
        "template": {
            "metadata": {"labels": _build_pod_labels(instance)},
            "spec": _build_template(instance, capacity, disk, claims, attachment),
        },
    }
    mark = {"ownerReferences": [build_reference(instance)]}
    return _build(instance, VIRTUAL_MACHINE, instance.metadata.name, mark, spec=spec)


def _build_template(
    instance: Instance, capacity: Capacity, disk: str, claims: Mapping[str, str], attachment: str
) -> Manifest:
    spec, uid = instance.spec, instance.metadata.uid
    names = [ROOT, CLOUD_INIT, *claims]
    interface: Manifest = {"name": "default", "macAddress": mac_address(uid)}
    interface |= {"bridge": {}} if attachment else {"masquerade": {}}
    network: Manifest = {"multus": {"networkName": attachment}} if attachment else {"pod": {}}
    template: Manifest = {
        "hostname": spec.hostname or instance.metadata.name,
        "evictionStrategy": str(spec.eviction_strategy),
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "domain": {
            # Sockets, unlike cores, can be added to a guest that runs.
            "cpu": {"sockets": capacity.cpus, "cores": 1, "threads": 1},
            "memory": {"guest": render_quantity(capacity.memory or 0)},
            "firmware": {"uuid": firmware_uuid(uid)},
            "features": {"acpi": {"enabled": True}},
            "devices": {
                "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in names],
                "interfaces": [interface],
                "rng": {},
            },
        },
        "networks": [{"name": "default", **network}],
        "volumes": [
            {"name": ROOT, "dataVolume": {"name": disk}},
            {"name": CLOUD_INIT, "cloudInitNoCloud": {"secretRef": {"name": _settings(instance)}}},
            *(
                {"name": name, "persistentVolumeClaim": {"claimName": claim}}
                for name, claim in claims.items()
            ),
        ],
    }
    if spec.placement.node_selector:
        template["nodeSelector"] = dict(spec.placement.node_selector)
    if spec.placement.spread_group is not None:
        template["affinity"] = _build_spread(spec.placement.spread_group)
    return template


def _settings(instance: Instance) -> str:
    """Name the Secret with the user data, which KubeVirt alone reads when it is the user's own."""
    return instance.spec.user_data_secret_name or cloud_init_name(instance.metadata.name)


def _build_pod_labels(instance: Instance) -> dict[str, str]:
    labels = identity_labels(instance.metadata.name, instance.metadata.uid)
    group = instance.spec.placement.spread_group
    return labels if group is None else labels | {SPREAD_LABEL: group}


def _build_spread(group: str) -> Manifest:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {SPREAD_LABEL: group}},
    }
    # Preferred, not required: a group larger than the cluster must still run.
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _build_source(instance: Instance, image: Image) -> Manifest:
    if image.data_source is not None:
        namespace = image.data_source.namespace or instance.metadata.namespace
        reference = {"kind": "DataSource", "name": image.data_source.name, "namespace": namespace}
        return {"sourceRef": reference}
    if image.registry is not None:
        return {"source": {"registry": {"url": image.registry}}}
    if image.snapshot is not None:
        reference = {"name": image.snapshot, "namespace": instance.metadata.namespace}
        return {"source": {"snapshot": reference}}
    http: Manifest = {"url": image.url}
    if image.checksum is not None:
        http["checksum"] = image.checksum
    return {"source": {"http": http}}


def _build(
    instance: Instance, kind: Kind, name: str, mark: Mapping[str, Any], **parts: Any
) -> Manifest:
    metadata = {"labels": build_labels(instance), **mark}
    return build_object(kind, name, instance.metadata.namespace, metadata=metadata, **parts)
