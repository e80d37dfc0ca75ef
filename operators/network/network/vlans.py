"""The owners of VLANs: a VLAN of a bridge belongs to the first namespace that uses it. Pure.

The owners are recorded in an annotation of the ProviderNetwork, which survives a restore from a
backup. A patch that is guarded by the version of the object takes a VLAN, so no two namespaces get
one. Namespaces are hashed, because tenants may read ProviderNetworks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.plan import Patch, escape_pointer
from libs.common.reading import text_at, text_map_at
from operators.network.api.v1alpha1 import PROVIDER_NETWORK, Network
from operators.network.api.v1alpha1.provider import VlanSharing
from operators.network.naming import VLANS


def hash_namespace(namespace: str) -> str:
    """Return the text that stands for a namespace in the annotation."""
    return hashlib.sha256(namespace.encode()).hexdigest()[:32]


def parse_owners(provider: Manifest) -> dict[str, str]:
    """Return the hash of the namespace that has each VLAN of a ProviderNetwork, by VLAN."""
    try:
        owners = json.loads(text_at(provider, "metadata", "annotations", VLANS) or "{}")
    except ValueError:
        return {}
    return {str(vlan): str(owner) for vlan, owner in owners.items()}


def find_owner(network: Network, bridge: Iterable[Manifest]) -> str:
    """Return the hash of the namespace that has the VLAN of a Network; empty for none.

    Args:
        network: The Network.
        bridge: All ProviderNetworks with the bridge of the Network.
    """
    vlan = str(network.spec.vlan)
    found = [parse_owners(each).get(vlan, "") for each in bridge if is_exclusive(each)]
    own = hash_namespace(network.metadata.namespace)
    others = sorted(owner for owner in found if owner not in ("", own))
    return others[0] if others else (own if own in found else "")


def is_exclusive(provider: Manifest) -> bool:
    """Return whether each VLAN of a ProviderNetwork belongs to one namespace."""
    return text_at(provider, "spec", "vlanSharing") != VlanSharing.ALL_NAMESPACES


def find_first(candidates: Sequence[Manifest]) -> Key | None:
    """Return the Network that gets a VLAN without an owner: the oldest one."""
    waiting = [each for each in candidates if not is_deleting(each)]

    def rank(network: Mapping[str, object]) -> tuple[str, Key]:
        return text_at(network, "metadata", "creationTimestamp"), key_of(network)

    return key_of(min(waiting, key=rank)) if waiting else None


def plan_owner(provider: Manifest, vlan: int, namespace: str) -> Patch:
    """Plan to record a namespace as the owner of a VLAN."""
    return _plan(provider, {**parse_owners(provider), str(vlan): hash_namespace(namespace)})


def plan_vlan_release(
    provider: Manifest, namespace: str, kept: Iterable[int | None]
) -> Patch | None:
    """Plan to remove a namespace as the owner of VLANs that its Networks no longer use.

    Args:
        provider: The ProviderNetwork.
        namespace: The namespace.
        kept: VLANs of its remaining Networks with the ProviderNetwork.
    """
    used, own, owners = set(map(str, kept)), hash_namespace(namespace), parse_owners(provider)
    left = {vlan: owner for vlan, owner in owners.items() if owner != own or vlan in used}
    return None if left == owners else _plan(provider, left)


def _plan(provider: Manifest, owners: Mapping[str, str]) -> Patch:
    text = json.dumps(owners, sort_keys=True)
    path, value = f"/metadata/annotations/{escape_pointer(VLANS)}", text
    operation: Manifest = {"op": "add", "path": path, "value": value}
    if not text_map_at(provider, "metadata", "annotations"):
        operation = {"op": "add", "path": "/metadata/annotations", "value": {VLANS: text}}
    version = text_at(provider, "metadata", "resourceVersion")
    key, uid = key_of(provider), uid_of(provider)
    return Patch(PROVIDER_NETWORK, key, uid, [operation], resource_version=version)
