"""The owners of VLANs: a VLAN of a bridge belongs to the first namespace that uses it. Pure.

The owners are recorded in an annotation of the ProviderNetwork, which survives a restore from a
backup. A patch that is guarded by the version of the object takes a VLAN, so no two namespaces get
one. Namespaces are hashed, because tenants may read ProviderNetworks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import orjson

from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.plan import Patch, Step, annotate
from libs.common.reading import map_at, text_at, text_map_at
from operators.network.api.v1alpha1 import PROVIDER_NETWORK, Network
from operators.network.api.v1alpha1.provider import VlanSharing
from operators.network.naming import VLANS

_LEFT: Final = "-left"
"""Marks the owner of a VLAN that no longer uses it, but may still have pods that do."""


def hash_namespace(namespace: str) -> str:
    """Return the text that stands for a namespace in the annotation."""
    return hashlib.sha256(namespace.encode()).hexdigest()[:32]


def parse_owners(provider: Manifest) -> dict[str, str]:
    """Return the hash of the namespace that has each VLAN of a ProviderNetwork, by VLAN."""
    return {vlan: owner.removesuffix(_LEFT) for vlan, owner in _read_owners(provider).items()}


def _read_owners(provider: Manifest) -> dict[str, str]:
    try:
        owners = orjson.loads(text_at(provider, "metadata", "annotations", VLANS) or "{}")
    except ValueError:
        return {}
    if not isinstance(owners, dict):
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
    return _plan(provider, {**_read_owners(provider), str(vlan): hash_namespace(namespace)})


def plan_abandoned(bridge: Iterable[Manifest], vlan: int, owner: str) -> list[Step]:
    """Plan to remove an owner that has left a VLAN."""
    left = (str(vlan), f"{owner}{_LEFT}")
    return [
        _plan(each, dict(owners.items() - {left}))
        for each in bridge
        if left in (owners := _read_owners(each)).items()
    ]


def plan_vlan_release(
    provider: Manifest,
    namespace: str,
    networks: Iterable[Manifest],
    attachments: Iterable[Manifest],
    users: Collection[str],
    *,
    marks: bool = False,
) -> list[Step]:
    """Plan to remove a namespace as the owner of VLANs that its Networks no longer use.

    Nothing is released while a machine uses one of these Networks: it stays on the VLAN that the
    Network had when the machine started. A Network whose new VLAN is refused keeps the attachment
    to its former VLAN, and the next machine would be there. An attachment without its Network may
    have been orphaned. With `marks`, the namespace stays the owner, marked as one that has left.
    """
    name = key_of(provider).name
    left = {
        key_of(each).name: each
        for each in networks
        if text_at(each, "spec", "providerNetworkRef", "name") == name
    }
    if not left.keys().isdisjoint(users):
        return []
    used = {str(map_at(each, "spec").get("vlan")) for each in left.values()}
    used |= {read_vlan(each) for each in attachments}
    own, owners = hash_namespace(namespace), _read_owners(provider)
    left = {
        vlan: f"{own}{_LEFT}"
        for vlan, owner in owners.items()
        if owner.removesuffix(_LEFT) == own and vlan not in used
    }
    kept = {vlan: owner for vlan, owner in owners.items() if vlan not in left}
    kept |= left if marks else {}
    return [] if kept == owners else [_plan(provider, kept)]


def read_vlan(attachment: Manifest) -> str:
    """Return the VLAN of a NetworkAttachmentDefinition as text; empty for none."""
    try:
        config = orjson.loads(text_at(attachment, "spec", "config"))
    except ValueError:
        return ""
    return str(config.get("vlan")) if isinstance(config, dict) else ""


def _plan(provider: Manifest, owners: Mapping[str, str]) -> Patch:
    text = orjson.dumps(owners, option=orjson.OPT_SORT_KEYS).decode()
    operation = annotate(text_map_at(provider, "metadata", "annotations"), VLANS, text)
    version = text_at(provider, "metadata", "resourceVersion")
    key, uid = key_of(provider), uid_of(provider)
    return Patch(PROVIDER_NETWORK, key, uid, [operation], resource_version=version)
