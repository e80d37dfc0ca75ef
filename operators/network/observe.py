"""Look around in the cache, and tell which Networks and Firewalls a change concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from libs.common.contracts.compute import INSTANCE, InstanceView
from libs.common.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
from libs.common.contracts.network import NetworkView
from libs.common.contracts.reading import map_at, maps_at, text_at
from libs.common.errors import NotFound
from libs.common.kinds import NETWORK_POLICY, Key, Kind, Manifest, key_of
from libs.common.ownership import controller_of
from libs.common.runtime import Cache, Context
from libs.common.runtime.store import IndexFunction
from operators.network.api.v1alpha1 import FIREWALL, NETWORK
from operators.network.naming import KEPT_FOR, deny_policy_name
from operators.network.resources import list_selected

BY_NETWORK: Final = "network"
"""Index of instances and firewalls by the network that they name."""
BY_FIREWALL: Final = "firewall"
"""Index of instances by the firewall that they name."""
BY_HOP: Final = "hop"
"""Index of networks by the instances that their routes lead to."""
BY_MEMBER: Final = "member"
"""Index of policies by the UIDs of the instances that they name."""
POLICY_KINDS: Final = (NETWORK_POLICY, MULTI_NETWORK_POLICY)
"""Kinds of policies."""
OPTIONAL_KINDS: Final = (INSTANCE, MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION)
"""Kinds that a cluster may lack."""


def list_served(ctx: Context) -> frozenset[Kind]:
    """List the optional kinds that the cluster serves."""
    return frozenset(kind for kind in OPTIONAL_KINDS if ctx.is_served(kind))


def list_objects(ctx: Context, kinds: Iterable[Kind]) -> dict[tuple[Kind, Key], Manifest]:
    """List objects of the namespace by kind and key, whosever they are."""
    return {(kind, key_of(each)): each for kind in kinds for each in ctx.list(kind)}


def list_owned(ctx: Context, kinds: Iterable[Kind]) -> tuple[tuple[Kind, Manifest], ...]:
    """List the objects that the primary controls."""
    return tuple((kind, each) for kind in kinds for each in ctx.children(kind))


def list_open_elsewhere(ctx: Context, members: Iterable[InstanceView]) -> frozenset[str]:
    """List the UIDs of instances that a policy of ours, but of another owner, names as well."""
    return frozenset(
        member.uid
        for member in members
        for kind in POLICY_KINDS
        for policy in ctx.indexed(kind, BY_MEMBER, member.uid)
        if _is_of_another_owner(ctx, policy)
    )


def find_networks(ctx: Context, names: Iterable[str]) -> dict[str, NetworkView]:
    """Find the Networks of some names in the namespace of the primary."""
    found = {name: ctx.get(NETWORK, Key(ctx.key.namespace, name)) for name in names if name}
    return {name: NetworkView.parse(held) for name, held in found.items() if held is not None}


async def list_live(ctx: Context, kind: Kind) -> list[Manifest]:
    """Ask the API server for the objects of the namespace; none of a kind that is not served.

    Nobody looks again once an object is let go, so that nothing uses it must be known.
    """
    try:
        return list((await ctx.client.list(kind, ctx.key.namespace)).items)
    except NotFound:
        return []


def _is_of_another_owner(ctx: Context, policy: Manifest) -> bool:
    owner = controller_of(policy)
    ours = owner is not None and owner.get("kind") in (NETWORK.kind, FIREWALL.kind)
    return ours and owner is not None and owner.get("uid") != ctx.uid


# What is found by what.


def shrink_instance(instance: Manifest) -> Manifest:
    """Keep of an Instance what its neighbors read."""
    metadata = instance["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp")
    spec, status = map_at(instance, "spec"), map_at(instance, "status")
    return {
        "apiVersion": instance.get("apiVersion", INSTANCE.api_version),
        "kind": instance.get("kind", INSTANCE.kind),
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {name: spec[name] for name in ("networkRef", "firewallRef") if name in spec},
        "status": {"privateIP": text_at(status, "privateIP")},
    }


def _index_by_reference(field: str) -> IndexFunction:
    def index(manifest: Manifest) -> Iterable[str]:
        name = text_at(manifest, "spec", field, "name")
        return (str(Key(key_of(manifest).namespace, name)),) if name else ()

    return index


def index_network_by_hop(network: Manifest) -> Iterable[str]:
    """Index a network by the instances that its routes lead to."""
    namespace = key_of(network).namespace
    for route in maps_at(network, "spec", "routes"):
        name = text_at(route, "nextHop", "instanceRef", "name")
        if name:
            yield str(Key(namespace, name))


INSTANCE_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_NETWORK: _index_by_reference("networkRef"),
    BY_FIREWALL: _index_by_reference("firewallRef"),
}
"""Indexes of the instances in the cache."""
FIREWALL_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_NETWORK: _index_by_reference("networkRef")
}
"""Indexes of the firewalls in the cache."""
NETWORK_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_HOP: index_network_by_hop}
"""Indexes of the networks in the cache."""
POLICY_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_MEMBER: list_selected}
"""Indexes of the policies in the cache."""


# Whose business a change is.


def _map_reference(field: str) -> Callable[[Manifest, object], Iterable[Key]]:
    def map_it(manifest: Manifest, _: object) -> Iterable[Key]:
        name = text_at(manifest, "spec", field, "name")
        return (Key(key_of(manifest).namespace, name),) if name else ()

    return map_it


map_to_network: Final = _map_reference("networkRef")
"""Name the Network that an instance or a firewall names."""
map_to_firewall: Final = _map_reference("firewallRef")
"""Name the Firewall that an instance names."""


def map_instance_to_networks(instance: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the network of an instance, and those whose routes lead to it."""
    yield from map_to_network(instance, cache)
    hops = cache.store(NETWORK).indexed(BY_HOP, str(key_of(instance)))
    yield from map(key_of, hops)


def map_deny_policy(policy: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the Network that keeps a policy by a mark in place of an owner reference."""
    if not text_at(policy, "metadata", "annotations", KEPT_FOR):
        return
    held = key_of(policy)
    for network in cache.store(NETWORK).list(held.namespace):
        key = key_of(network)
        if deny_policy_name(key.name) == held.name:
            yield key


def map_network_to_firewalls(network: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the firewalls of a network, and those of the instances that are on it."""
    key = str(key_of(network))
    yield from map(key_of, cache.store(FIREWALL).indexed(BY_NETWORK, key))
    for instance in cache.store(INSTANCE).indexed(BY_NETWORK, key):
        yield from map_to_firewall(instance, cache)


def map_policy_to_firewalls(policy: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the firewalls of the instances that a policy names: it may open them."""
    uids = set(list_selected(policy))
    namespace = key_of(policy).namespace
    if not uids:
        return
    for firewall in cache.store(FIREWALL).list(namespace):
        key = key_of(firewall)
        members = cache.store(INSTANCE).indexed(BY_FIREWALL, str(key))
        if any(member["metadata"].get("uid") in uids for member in members):
            yield key
