"""Manifests of the children of an Instance. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from libs.common.kinds import SECRET, Kind, Manifest, build_object
from libs.common.labels import INSTANCE as INSTANCE_NAME
from libs.common.labels import MANAGED_BY
from libs.common.naming import label_value
from libs.common.quantity import render_quantity
from libs.contracts.cdi import (
    ALLOW_CLAIM_ADOPTION,
    BIND_IMMEDIATELY,
    DATA_VOLUME,
    KEEP_AFTER_COMPLETION,
)
from libs.contracts.claims import SELECTED_NODE
from libs.contracts.compute import NETWORK_LABEL
from libs.contracts.images import Image
from libs.contracts.instancetypes import Matcher
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import ALLOW_BRIDGE_MIGRATION, VIRTUAL_MACHINE, RunStrategy
from libs.contracts.network import NetworkView
from operators.compute.api.addresses import PublicPort
from operators.compute.api.instance import (
    CLOUD_INIT,
    INSTANCE,
    RESCUED,
    ROOT,
    DeletionMode,
    Instance,
    OnGuestShutdown,
)
from operators.compute.instance.observed import Capacity
from operators.compute.instance.record import read_record, render_record
from operators.compute.instance.sizing import Sizing
from operators.compute.marks import build_mark, build_reference
from operators.compute.naming import (
    OPERATOR_ID,
    RECORD,
    ROLE_LABEL,
    ROOT_ROLE,
    SPREAD_LABEL,
    cloud_init_name,
    firmware_uuid,
    identity_labels,
    mac_address,
    private_claim_name,
    public_claim_name,
)

_BINDINGS: Final = {"Masquerade": "masquerade", "Bridge": "bridge", "Passt": "passtBinding"}
"""Field of an interface of KubeVirt by the binding of a Network."""


def build_labels(instance: Instance) -> dict[str, str]:
    """Build the labels of each child."""
    name, uid = instance.metadata.name, instance.metadata.uid
    common = {MANAGED_BY: OPERATOR_ID, INSTANCE_NAME: label_value(name)}
    return common | identity_labels(name, uid)


def build_disk(
    instance: Instance, name: str, image: Image, default_size: str, node: str = ""
) -> Manifest:
    """Build a root disk.

    CDI fills it immediately, before a machine uses it: the machine runs on its old disk meanwhile.
    A disk from a snapshot requests no size and gets the size of the snapshot. CDI refuses a smaller
    disk, and the size in the spec is smaller, because CDI adds the overhead of a file system to it.

    Args:
        instance: The Instance.
        name: Name of the disk.
        image: Source of the data.
        default_size: Size if the spec has none.
        node: Node from which the disk must be reachable, for storage that not every node reaches;
            empty for any node. CDI copies the annotation to the claim, where the scheduler and the
            provisioner read it.
    """
    wanted = instance.spec.root_disk
    storage: Manifest = {}
    if image.snapshot is None:
        storage["resources"] = {"requests": {"storage": wanted.size or default_size}}
    if wanted.storage_class_name is not None:
        storage["storageClassName"] = wanted.storage_class_name
    if wanted.access_modes:
        storage["accessModes"] = [str(mode) for mode in wanted.access_modes]
    if wanted.volume_mode is not None:
        storage["volumeMode"] = str(wanted.volume_mode)
    spec: Manifest = {"storage": storage, **build_source(instance, image)}
    owned = instance.spec.deletion_policy.root_disk is DeletionMode.DELETE
    manifest = _build(instance, DATA_VOLUME, name, build_mark(instance, owned=owned), spec=spec)
    metadata = manifest["metadata"]
    metadata["labels"][ROLE_LABEL] = ROOT_ROLE
    annotations = {
        BIND_IMMEDIATELY: "true",
        KEEP_AFTER_COMPLETION: "false",
        # Backup tools restore the claim first. The operator itself never creates a disk whose claim
        # exists.
        ALLOW_CLAIM_ADOPTION: "true",
        RECORD: render_record(instance),
    }
    if node:
        annotations[SELECTED_NODE] = node
    metadata["annotations"] = {**annotations, **metadata.get("annotations", {})}
    return manifest


def build_cloud_init(instance: Instance, network: Manifest | None) -> Manifest | None:
    """Build the Secret with the initial settings of the guest; None if it would be empty.

    The settings are written as JSON, which is valid YAML: a name or a key from the spec is always
    quoted and cannot inject further settings.

    Args:
        instance: The Instance.
        network: Network data; None for a guest that configures its network by DHCP.
    """
    parts: dict[str, str] = {}
    if instance.spec.user_data_secret_name is None:
        settings = build_settings(instance)
        if network is not None:
            # Routes of the Network can change, so they are applied at each boot, not only at the
            # first one.
            settings["updates"] = {"network": {"when": ["boot"]}}
        parts["userdata"] = f"#cloud-config\n{json.dumps(settings, sort_keys=True)}\n"
    if network is not None:
        parts["networkdata"] = f"{json.dumps(network, sort_keys=True)}\n"
    if not parts:
        return None
    data = {name: base64.b64encode(text.encode()).decode() for name, text in parts.items()}
    name, mark = cloud_init_name(instance.metadata.name), build_mark(instance, owned=True)
    return _build(instance, SECRET, name, mark, type="Opaque", data=data)


def hash_cloud_init(secret: Manifest) -> str:
    """Return a hash of the content of the cloud-init Secret."""
    text = json.dumps(secret["data"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_settings(instance: Instance) -> Manifest:
    """Build the initial settings of the guest in the format of cloud-init."""
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
    """Build the IPClaim of mode Auto, whose target is the Instance."""
    owned = instance.spec.deletion_policy.public_ip is DeletionMode.DELETE
    spec: Manifest = {
        "poolRef": {"name": instance.spec.public_ip.pool_name},
        "target": {"kind": INSTANCE.kind, "name": instance.metadata.name},
    }
    if instance.spec.public_ip.ports:
        spec["ports"] = build_ports(instance.spec.public_ip.ports)
    if instance.spec.public_ip.traffic is not None:
        spec["traffic"] = instance.spec.public_ip.traffic
    name = public_claim_name(instance.metadata.name)
    return _build(instance, IP_CLAIM, name, build_mark(instance, owned=owned), spec=spec)


def build_ports(ports: Iterable[PublicPort]) -> list[Manifest]:
    """Build the ports of an IPClaim."""
    return [port.to_manifest() for port in ports]


def build_private_claim(instance: Instance, network: NetworkView) -> Manifest:
    """Build the IPClaim of the private address of the guest on its Network; it has no target."""
    spec: Manifest = {"poolRef": {"name": network.pool}}
    if instance.spec.private_ip is not None:
        spec["address"] = instance.spec.private_ip
    name = private_claim_name(instance.metadata.name)
    return _build(instance, IP_CLAIM, name, build_mark(instance, owned=True), spec=spec)


def build_machine(
    instance: Instance,
    sizing: Sizing,
    disk: str,
    claims: Mapping[str, str],
    network: NetworkView | None,
    *,
    run: bool,
    preference: Matcher | None = None,
    network_data: bool = False,
) -> Manifest:
    """Build the VirtualMachine.

    Args:
        instance: The Instance.
        sizing: Definition of its CPUs and memory.
        disk: Root disk to boot from.
        claims: Claims of further volumes, by volume name.
        network: Network of the machine; None for the pod network.
        run: Whether KubeVirt should keep it running.
        preference: Preference of the machine; None for none.
        network_data: Whether the cloud-init Secret configures the network of the guest.
    """
    spec: Manifest = {
        "runStrategy": str(choose_strategy(instance) if run else RunStrategy.HALTED),
        "template": {
            "metadata": _build_pod_metadata(instance, network),
            "spec": _build_template(
                instance, sizing, disk, claims, network, preference, network_data=network_data
            ),
        },
    }
    for field, matcher in (("instancetype", sizing.instancetype), ("preference", preference)):
        if matcher is not None:
            spec[field] = {"kind": matcher.kind, "name": matcher.name}
    mark = {"ownerReferences": [build_reference(instance)]}
    return _build(instance, VIRTUAL_MACHINE, instance.metadata.name, mark, spec=spec)


def choose_strategy(instance: Instance) -> RunStrategy:
    """Choose the run strategy of a machine that must run.

    With `Once`, a run that has ended remains, so that it stays observable that the guest shut
    itself down. `RerunOnFailure` would delete the run, and would leave machines off after a drain
    of their node.
    """
    restart = instance.spec.on_guest_shutdown is OnGuestShutdown.RESTART
    return RunStrategy.ALWAYS if restart else RunStrategy.ONCE


def _build_template(
    instance: Instance,
    sizing: Sizing,
    disk: str,
    claims: Mapping[str, str],
    network: NetworkView | None,
    preference: Matcher | None,
    *,
    network_data: bool,
) -> Manifest:
    spec, seed = instance.spec, read_record(instance).seed
    names = [ROOT, CLOUD_INIT, *claims]
    shared = {volume.name for volume in spec.volumes if volume.shared}
    # A preference sets only fields that the template does not set.
    bus = {"bus": "virtio"} if preference is None else {}
    interface: Manifest = {"name": "default", "macAddress": mac_address(seed)}
    interface |= {_BINDINGS["Masquerade" if network is None else network.binding]: {}}
    attachment = "" if network is None else network.attachment
    attached: Manifest = {"multus": {"networkName": attachment}} if attachment else {"pod": {}}
    template: Manifest = {
        "hostname": spec.hostname or instance.metadata.name,
        "evictionStrategy": str(spec.eviction_strategy),
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "domain": {
            **_build_resources(sizing.capacity),
            "firmware": {"uuid": firmware_uuid(seed)},
            "features": {"acpi": {"enabled": True}},
            "devices": {
                "disks": [
                    {
                        "name": name,
                        "disk": dict(bus),
                        **({"shareable": True} if name in shared else {}),
                    }
                    for name in names
                ],
                "interfaces": [interface],
                "rng": {},
            },
        },
        "networks": [{"name": "default", **attached}],
        "volumes": [
            {"name": ROOT, "dataVolume": {"name": disk}},
            {"name": CLOUD_INIT, "cloudInitNoCloud": _refer_to_settings(instance, network_data)},
            *(
                {"name": name, "persistentVolumeClaim": {"claimName": claim}}
                for name, claim in claims.items()
            ),
        ],
    }
    if spec.readiness_probe is not None and RESCUED not in claims:
        # Omitted for the rescue system, which does not run the services that the probe checks.
        template["readinessProbe"] = spec.readiness_probe.to_manifest()
    if spec.placement.node_selector:
        template["nodeSelector"] = dict(spec.placement.node_selector)
    if spec.placement.spread_group is not None:
        template["affinity"] = _build_spread(spec.placement.spread_group)
    return template


def _build_resources(capacity: Capacity | None) -> Manifest:
    """Build CPUs and memory; KubeVirt refuses both in a machine with an instancetype."""
    if capacity is None:
        return {}
    # Unlike cores, sockets can be added to a running guest.
    cpu = {"sockets": capacity.cpus, "cores": 1, "threads": 1}
    return {"cpu": cpu, "memory": {"guest": render_quantity(capacity.memory or 0)}}


def _refer_to_settings(instance: Instance, network_data: bool) -> Manifest:
    """Build the references to the Secrets with user data and network data.

    The operator never reads the user's own Secret; only KubeVirt does.
    """
    own = cloud_init_name(instance.metadata.name)
    source: Manifest = {"secretRef": {"name": instance.spec.user_data_secret_name or own}}
    return source | {"networkDataSecretRef": {"name": own}} if network_data else source


def _build_pod_metadata(instance: Instance, network: NetworkView | None) -> Manifest:
    labels = identity_labels(instance.metadata.name, instance.metadata.uid)
    group, reference = instance.spec.placement.spread_group, instance.spec.network_ref
    if group is not None:
        labels[SPREAD_LABEL] = group
    if reference is not None:
        # The policies of the Network select pods by this label, so it is set even if the Network is
        # not in the cache yet.
        labels[NETWORK_LABEL] = label_value(reference.name)
    metadata: Manifest = {"labels": labels}
    if network is not None and not network.attachment and network.binding == "Bridge":
        # Without this annotation, KubeVirt does not migrate a guest with the address of its pod.
        metadata["annotations"] = {ALLOW_BRIDGE_MIGRATION: "true"}
    return metadata


def _build_spread(group: str) -> Manifest:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {SPREAD_LABEL: group}},
    }
    # Preferred, not required: a group larger than the cluster must still run.
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def build_source(instance: Instance, image: Image) -> Manifest:
    """Build the field of a DataVolume that names the source of its data."""
    if image.data_source is not None:
        namespace = image.data_source.namespace or instance.metadata.namespace
        reference = {"kind": "DataSource", "name": image.data_source.name, "namespace": namespace}
        return {"sourceRef": reference}
    if image.snapshot is not None:
        reference = {"name": image.snapshot, "namespace": instance.metadata.namespace}
        return {"source": {"snapshot": reference}}
    fields = {
        "url": image.url or image.registry,
        "checksum": image.checksum if image.url else None,
        "secretRef": image.secret_name,
        "certConfigMap": image.ca_config_map_name,
    }
    source = {name: value for name, value in fields.items() if value is not None}
    return {"source": {"http" if image.url else "registry": source}}


def _build(
    instance: Instance, kind: Kind, name: str, mark: Mapping[str, Any], **parts: Any
) -> Manifest:
    metadata = {"labels": build_labels(instance), **mark}
    return build_object(kind, name, instance.metadata.namespace, metadata=metadata, **parts)
