"""Manifests of the children of an IPAddressClaim: an IPClaim and the IPAddress. Pure."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import Manifest, build_object, key_of
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import DNS_SUBDOMAIN_LIMIT, build_name, label_value
from libs.common.ownership import build_owner_reference
from libs.common.reading import text_at
from libs.contracts.cluster_api import CLUSTER_NAME_LABEL, IP_ADDRESS, IP_ADDRESS_CLAIM
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL, IPPool
from operators.ipam.naming import OPERATOR_ID

PROTECTION: Final = "ipam.cluster.x-k8s.io/protect-address"
"""Finalizer that keeps an IPAddress for as long as its claim exists, as the contract suggests."""


def claim_name(claim: str) -> str:
    """Return the name of the IPClaim of an IPAddressClaim: `<claim>-capi`."""
    return build_name(claim, "capi", limit=DNS_SUBDOMAIN_LIMIT)


def build_claim(claim: Manifest, address: str) -> Manifest:
    """Build the IPClaim of an IPAddressClaim, which the garbage collector deletes with it."""
    key = key_of(claim)
    metadata = {
        "labels": {MANAGED_BY: OPERATOR_ID, INSTANCE: label_value(key.name)},
        "ownerReferences": [build_owner_reference(IP_ADDRESS_CLAIM, claim)],
    }
    spec: Manifest = {"poolRef": {"name": text_at(claim, "spec", "poolRef", "name")}}
    if address:
        spec["address"] = address
    return build_object(IP_CLAIM, claim_name(key.name), key.namespace, metadata=metadata, spec=spec)


def build_address(claim: Manifest, pool: IPPool, address: str, prefix: int) -> Manifest:
    """Build the IPAddress, which has the name of its claim."""
    key = key_of(claim)
    owner = build_owner_reference(
        IP_POOL, {"metadata": {"name": pool.metadata.name, "uid": pool.metadata.uid}}
    )
    metadata: Manifest = {
        "ownerReferences": [
            build_owner_reference(IP_ADDRESS_CLAIM, claim),
            {**owner, "controller": False},
        ],
        "finalizers": [PROTECTION],
    }
    if cluster := text_at(claim, "metadata", "labels", CLUSTER_NAME_LABEL):
        metadata["labels"] = {CLUSTER_NAME_LABEL: cluster}
    spec: Manifest = {
        "claimRef": {"name": key.name},
        "poolRef": {
            "apiGroup": IP_POOL.group,
            "kind": IP_POOL.kind,
            "name": pool.metadata.name,
        },
        "address": address,
        "prefix": prefix,
    }
    if pool.spec.gateway is not None:
        spec["gateway"] = pool.spec.gateway
    return build_object(IP_ADDRESS, key.name, key.namespace, metadata=metadata, spec=spec)
