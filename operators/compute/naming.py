"""Names, labels and identities of the objects that the operator creates.

All of them are derived from the name of the Instance, or from its UID if a later Instance of the
same name must not share them.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Final

from libs.common.naming import DNS_SUBDOMAIN_LIMIT, build_name, label_value, short_hash
from libs.contracts.compute import COMPUTE_GROUP, INSTANCE_LABEL, INSTANCE_UID_LABEL

OPERATOR_ID: Final = "compute"
"""Id of the operator: package, chart, release, value of the managed-by label."""
INSTANCES: Final = "compute"
"""Name of the controller of Instances, which is the field manager of its writes."""
OPERATIONS: Final = "compute-operations"
"""Name of the controller of Operations, which is the field manager of its writes."""
FINALIZER: Final = f"{COMPUTE_GROUP}/finalizer"
"""Finalizer on each Instance, and on each Operation that has not ended."""
KEPT_FOR: Final = f"{COMPUTE_GROUP}/kept-for"
"""Annotation on a child without owner reference: UID of its Instance."""
BEGUN_AS: Final = f"{COMPUTE_GROUP}/begun-as"
"""Annotation on an Operation that has begun or ended: its UID. Backups contain it, unlike the
status, so a copy of the Operation, which has another UID, is never carried out."""
MADE_BY: Final = f"{COMPUTE_GROUP}/operation-uid"
"""Annotation on a snapshot: UID of the Operation that created it."""
MADE_IN: Final = f"{COMPUTE_GROUP}/operation"
"""Annotation on a snapshot: name of that Operation."""
RECORD: Final = f"{COMPUTE_GROUP}/record"
"""Annotation on an Instance and its root disks: what a later Instance keeps, as JSON."""
ROLE_LABEL: Final = f"{COMPUTE_GROUP}/role"
"""Label on disks: their role for the Instance."""
ROOT_ROLE: Final = "root-disk"
"""Value of the role label on root disks."""
SPREAD_LABEL: Final = f"{COMPUTE_GROUP}/spread-group"
"""Label on launcher pods that spreads the machines of a group over nodes."""

_NAMESPACE: Final = uuid.UUID("6f1c7b0a-8a55-4f0e-9c39-3b1f7f3d5a42")


def identity_labels(name: str, uid: str) -> dict[str, str]:
    """Build the labels that identify the Instance of a machine, a pod or a disk."""
    return {INSTANCE_LABEL: label_value(name), INSTANCE_UID_LABEL: uid}


def root_disk_name(instance: str) -> str:
    """Return the name of the first root disk of an Instance."""
    return build_name(instance, "root", limit=DNS_SUBDOMAIN_LIMIT)


def rebuilt_disk_name(instance: str, token: str) -> str:
    """Return the name of the root disk that an Operation creates; it is unique to the Operation.

    A name is never reused: a claim with the name of a claim that is being deleted may wait
    indefinitely, and CDI refuses a disk whose claim exists.
    """
    return build_name(instance, "root", short_hash(token), limit=DNS_SUBDOMAIN_LIMIT)


def cloud_init_name(instance: str) -> str:
    """Return the name of the Secret with the initial settings of the guest."""
    return build_name(instance, "cloud-init", limit=DNS_SUBDOMAIN_LIMIT)


def public_claim_name(instance: str) -> str:
    """Return the name of the IPClaim that mode Auto creates."""
    return build_name(instance, "public", limit=DNS_SUBDOMAIN_LIMIT)


def private_claim_name(instance: str) -> str:
    """Return the name of the IPClaim of the private address on the Network."""
    return build_name(instance, "private", limit=DNS_SUBDOMAIN_LIMIT)


def lease_name(instance_uid: str) -> str:
    """Return the name of the Lease with which an Operation locks an Instance."""
    return build_name("op", instance_uid)


def migration_name(operation: str, uid: str) -> str:
    """Return the name of the migration of an Operation."""
    return build_name(operation, short_hash(uid))


def mac_address(seed: str) -> str:
    """Derive the MAC address of a machine: unicast, locally administered, 40 bits of hash.

    Otherwise KubeVirt would choose a random address at each start, and a guest whose MAC address
    changes loses its network settings.
    """
    digest = hashlib.sha256(f"mac {seed}".encode()).digest()
    return ":".join(["02", *(f"{byte:02x}" for byte in digest[:5])])


def firmware_uuid(seed: str) -> str:
    """Derive the firmware UUID, which the guest sees as the serial number of its board."""
    return str(uuid.uuid5(_NAMESPACE, seed))
