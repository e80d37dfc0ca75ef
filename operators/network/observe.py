"""Read objects from the cache, and map changes to Networks and Firewalls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from libs.common.errors import NotFound
from libs.common.kinds import (
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    Key,
    Kind,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import controller_of
from libs.common.reading import map_at, maps_at, text_at
from libs.common.runtime import Cache, Context, Controller, IndexFunction
from libs.common.runtime.controller import Mapper
from libs.contracts.compute import (
    INSTANCE,
    INSTANCE_UID_LABEL,
    NETWORK_LABEL,
    InstanceView,
)
from libs.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
from libs.contracts.network import NetworkView
from operators.network.api.v1alpha1 import FIREWALL, NETWORK
from operators.network.naming import (
    KEPT_FOR,
    closing_policy_name,
    deny_policy_name,
)
from operators.network.resources import list_selected, opens_anything

BY_NETWORK: Final = "network"
"""Index of instances and firewalls by the network that they name."""
BY_FIREWALL: Final = "firewall"
"""Index of instances by the firewall that they name."""
BY_HOP: Final = "hop"
"""Index of networks by the instances that are next hops of their routes."""
BY_PEER: Final = "peer"
"""Index of firewalls by the peers of their rules; see `_peer_key`."""
BY_PROVIDER: Final = "provider"
"""Index of networks by the ProviderNetwork that they name."""
BY_UID: Final = "uid"
"""Index of instances by their UID."""
BY_MEMBER: Final = "member"
"""Index of policies by the UIDs of the instances that they name."""
POLICY_KINDS: Final = (NETWORK_POLICY, MULTI_NETWORK_POLICY)
"""Kinds of policies."""
_UNLABELLED_PODS: Final = f"{INSTANCE_UID_LABEL},!{NETWORK_LABEL}"
"""Label selector of the pods of instances that lack the label of a network: the instance names no
network, or its machine was started before pods had the label."""
OPTIONAL_KINDS: Final = (INSTANCE, MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION)
"""Optional kinds, which the cluster may not serve."""


def list_served(ctx: Context) -> frozenset[Kind]:
    """Return the optional kinds that the cluster serves."""
    return frozenset(kind for kind in OPTIONAL_KINDS if ctx.is_served(kind))


def list_objects(ctx: Context, kinds: Iterable[Kind]) -> dict[tuple[Kind, Key], Manifest]:
    """Return the objects of the namespace by kind and key, whoever owns them."""
    return {(kind, key_of(each)): each for kind in kinds for each in ctx.list(kind)}


def list_owned(ctx: Context, kinds: Iterable[Kind]) -> tuple[tuple[Kind, Manifest], ...]:
    """Return the objects that the primary controls."""
    return tuple((kind, each) for kind in kinds for each in ctx.children(kind))


def list_open_elsewhere(ctx: Context, members: Iterable[InstanceView]) -> frozenset[str]:
    """Return the UIDs of instances to which our policy for another owner still allows traffic."""
    return frozenset(
        member.uid
        for member in members
        for kind in POLICY_KINDS
        for policy in ctx.indexed(kind, BY_MEMBER, member.uid)
        if _is_of_another_owner(ctx, policy) and opens_anything(policy)
    )


def list_movers(ctx: Context) -> tuple[InstanceView, ...]:
    """Return the instances that the closing policy of a Firewall selects but that have left it.

    These are existing instances without Network that name another Firewall. An instance that names
    no Firewall counts as an ordinary pod, which need not be isolated.
    """
    held = ctx.get(NETWORK_POLICY, Key(ctx.key.namespace, closing_policy_name(ctx.key.name)))
    found = (
        InstanceView.parse(instance)
        for uid in list_selected(held or {})
        for instance in ctx.indexed(INSTANCE, BY_UID, uid)
    )
    return tuple(
        each
        for each in found
        if each.firewall and each.firewall != ctx.key.name and not each.network
    )


def list_closed_elsewhere(ctx: Context, instances: Iterable[InstanceView]) -> frozenset[str]:
    """Return the UIDs of instances that the closing policy of their current Firewall selects."""
    return frozenset(
        each.uid
        for each in instances
        for policy in ctx.indexed(NETWORK_POLICY, BY_MEMBER, each.uid)
        if _keeps_closed(policy, each)
    )


async def confirm_closed_elsewhere(
    ctx: Context, instances: Iterable[InstanceView]
) -> frozenset[str]:
    """Return the same as `list_closed_elsewhere`, but read from the API server."""
    movers = tuple(instances)
    policies = {
        name: await ctx.live_get(NETWORK_POLICY, Key(ctx.key.namespace, name))
        for name in sorted({closing_policy_name(each.firewall) for each in movers})
    }
    return frozenset(
        each.uid
        for each in movers
        for policy in policies.values()
        if policy is not None and _keeps_closed(policy, each)
    )


def _keeps_closed(policy: Manifest, instance: InstanceView) -> bool:
    """Return whether a policy is the closing policy that isolates an instance without Network.

    The policy with the rules of the Firewall is not sufficient: the Firewall can remove an instance
    from it at any time.
    """
    return (
        key_of(policy).name == closing_policy_name(instance.firewall)
        and instance.uid in list_selected(policy)
        and not is_deleting(policy)
        and controller_of(policy) is None
        and bool(text_at(policy, "metadata", "annotations", KEPT_FOR))
    )


def list_unlabelled(ctx: Context) -> frozenset[str]:
    """Return the UIDs of instances with a running pod that lacks the label of a network."""
    return frozenset(
        text_at(pod, "metadata", "labels", INSTANCE_UID_LABEL)
        for pod in ctx.list(POD)
        if text_at(pod, "status", "phase") not in ("Succeeded", "Failed")
    )


def find_networks(ctx: Context, names: Iterable[str]) -> dict[str, NetworkView]:
    """Return the existing Networks with the given names in the namespace of the primary."""
    found = {name: ctx.get(NETWORK, Key(ctx.key.namespace, name)) for name in names if name}
    return {name: NetworkView.parse(held) for name, held in found.items() if held is not None}


async def list_live(ctx: Context, kind: Kind, namespace: str = "") -> list[Manifest]:
    """List the objects of a namespace from the API server; empty if the kind is not served.

    Without a name, the namespace is that of the primary.

    After a finalizer is removed, no further reconcile can find a user that the cache lacked, so the
    absence of users must be certain.
    """
    try:
        return list((await ctx.client.list(kind, namespace or ctx.key.namespace)).items)
    except NotFound:
        return []


def _is_of_another_owner(ctx: Context, policy: Manifest) -> bool:
    owner = controller_of(policy)
    ours = owner is not None and owner.get("kind") in (NETWORK.kind, FIREWALL.kind)
    return ours and owner is not None and owner.get("uid") != ctx.uid


# Transforms and indexes.


def _shrink(manifest: Manifest, kind: Kind, *kept: str, **parts: Manifest) -> Manifest:
    """Reduce an object to some fields of its metadata and the given parts."""
    metadata, names = manifest["metadata"], ("name", "namespace", "uid", "resourceVersion", *kept)
    return {
        "apiVersion": manifest.get("apiVersion", kind.api_version),
        "kind": manifest.get("kind", kind.kind),
        "metadata": {name: metadata[name] for name in names if name in metadata},
        **parts,
    }


def shrink_instance(instance: Manifest) -> Manifest:
    """Reduce an Instance to the fields that this operator reads."""
    spec, status = map_at(instance, "spec"), map_at(instance, "status")
    return _shrink(
        instance,
        INSTANCE,
        *("generation", "deletionTimestamp", "labels"),
        spec={name: spec[name] for name in ("networkRef", "firewallRef") if name in spec},
        status={"privateIP": text_at(status, "privateIP")},
    )


def shrink_pod(pod: Manifest) -> Manifest:
    """Reduce a pod to its instance and whether it has ended."""
    shrunk = _shrink(pod, POD, status={"phase": text_at(pod, "status", "phase")})
    uid = text_at(pod, "metadata", "labels", INSTANCE_UID_LABEL)
    shrunk["metadata"]["labels"] = {INSTANCE_UID_LABEL: uid}
    return shrunk


def index_by_uid(manifest: Manifest) -> Iterable[str]:
    """Index an object by its UID."""
    return (uid_of(manifest),)


def _index_by_reference(field: str) -> IndexFunction:
    def index(manifest: Manifest) -> Iterable[str]:
        name = text_at(manifest, "spec", field, "name")
        return (str(Key(key_of(manifest).namespace, name)),) if name else ()

    return index


def shrink_namespace(namespace: Manifest) -> Manifest:
    """Reduce a namespace to its labels, and whether it is being deleted."""
    return _shrink(namespace, NAMESPACE, "labels", "deletionTimestamp")


def _index_by_provider(network: Manifest) -> Iterable[str]:
    name = text_at(network, "spec", "providerNetworkRef", "name")
    return (name,) if name else ()


def _peer_key(namespace: str, sort: str, name: str = "") -> str:
    """Return the key of a peer in the index: `default/firewallRef/web`, `default/instances/`."""
    return f"{namespace}/{sort}/{name}"


def _index_by_peer(firewall: Manifest) -> Iterable[str]:
    namespace = key_of(firewall).namespace
    for rule in maps_at(firewall, "spec", "rules"):
        for peer in maps_at(rule, "peers"):
            for sort in peer:
                yield _peer_key(namespace, sort, text_at(peer, sort, "name"))


def index_network_by_hop(network: Manifest) -> Iterable[str]:
    """Index a network by the instances that are next hops of its routes."""
    namespace = key_of(network).namespace
    for route in maps_at(network, "spec", "routes"):
        name = text_at(route, "nextHop", "instanceRef", "name")
        if name:
            yield str(Key(namespace, name))


_INSTANCE_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_NETWORK: _index_by_reference("networkRef"),
    BY_FIREWALL: _index_by_reference("firewallRef"),
    BY_UID: index_by_uid,
}
"""Indexes of the instances in the cache."""
FIREWALL_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_NETWORK: _index_by_reference("networkRef"),
    BY_PEER: _index_by_peer,
}
"""Indexes of the firewalls in the cache."""
NETWORK_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_HOP: index_network_by_hop,
    BY_PROVIDER: _index_by_provider,
}
"""Indexes of the networks in the cache."""
POLICY_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_MEMBER: list_selected}
"""Indexes of the policies in the cache."""


def watch_machines(controller: Controller, map_instance: Mapper, map_pod: Mapper) -> Controller:
    """Watch Instances, and pods of Instances that have no label of a Network yet."""
    return controller.watches(
        INSTANCE,
        map_instance,
        transform=shrink_instance,
        optional=True,
        indexes=_INSTANCE_INDEXES,
        why="find the instances of a network or a firewall",
    ).watches(
        POD,
        map_pod,
        transform=shrink_pod,
        label_selector=_UNLABELLED_PODS,
        source="reflector",
        why="find machines that were started before pods carried the label of a network",
    )


# Mapping of changes to the Networks and Firewalls that they affect.


def _map_reference(field: str) -> Callable[[Manifest, object], Iterable[Key]]:
    def map_it(manifest: Manifest, _: object) -> Iterable[Key]:
        name = text_at(manifest, "spec", field, "name")
        return (Key(key_of(manifest).namespace, name),) if name else ()

    return map_it


map_to_network: Final = _map_reference("networkRef")
"""Map an instance or a firewall to its Network."""
map_to_firewall: Final = _map_reference("firewallRef")
"""Map an instance to its Firewall."""


def map_instance_to_networks(instance: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an instance to its network, and to networks with a route to it."""
    yield from map_to_network(instance, cache)
    hops = cache.store(NETWORK).indexed(BY_HOP, str(key_of(instance)))
    yield from map(key_of, hops)


def map_pod_to_networks(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a pod to the network of its instance."""
    uid = text_at(pod, "metadata", "labels", INSTANCE_UID_LABEL)
    for instance in cache.store(INSTANCE).indexed(BY_UID, uid):
        yield from map_to_network(instance, cache)


def map_provider_to_networks(provider: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a ProviderNetwork to the networks that name it, in all namespaces."""
    found = cache.store(NETWORK).indexed(BY_PROVIDER, key_of(provider).name)
    return [key_of(network) for network in found]


def map_namespace_to_networks(namespace: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a namespace to its networks with a ProviderNetwork, which selects it by its labels."""
    for network in cache.store(NETWORK).list(key_of(namespace).name):
        if text_at(network, "spec", "providerNetworkRef", "name"):
            yield key_of(network)


def map_instance_to_firewalls(instance: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an instance to its firewall, and to firewalls whose rules may select it as a peer."""
    yield from map_to_firewall(instance, cache)
    namespace, firewalls = key_of(instance).namespace, cache.store(FIREWALL)
    for sort in ("firewallRef", "networkRef"):
        name = text_at(instance, "spec", sort, "name")
        if name:
            found = firewalls.indexed(BY_PEER, _peer_key(namespace, sort, name))
            yield from map(key_of, found)
    yield from map(key_of, firewalls.indexed(BY_PEER, _peer_key(namespace, "instances")))
    yield from _list_closers(uid_of(instance), namespace, cache)


def map_pod_to_firewalls(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a pod to the firewalls whose rules name the network of its instance."""
    for network in map_pod_to_networks(pod, cache):
        key = _peer_key(network.namespace, "networkRef", network.name)
        yield from map(key_of, cache.store(FIREWALL).indexed(BY_PEER, key))


def map_deny_policy(policy: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a policy to the Network in its annotation `kept-for`."""
    if not text_at(policy, "metadata", "annotations", KEPT_FOR):
        return
    held = key_of(policy)
    for network in cache.store(NETWORK).list(held.namespace):
        key = key_of(network)
        if deny_policy_name(key.name) == held.name:
            yield key


def map_closing_policy(policy: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a policy to the Firewall in its annotation `kept-for`."""
    if not text_at(policy, "metadata", "annotations", KEPT_FOR):
        return
    held = key_of(policy)
    for firewall in cache.store(FIREWALL).list(held.namespace):
        key = key_of(firewall)
        if closing_policy_name(key.name) == held.name:
            yield key


def _list_closers(uid: str, namespace: str, cache: Cache) -> Iterable[Key]:
    """Return the firewalls whose closing policy selects an instance."""
    for policy in cache.store(NETWORK_POLICY).indexed(BY_MEMBER, uid):
        if key_of(policy).namespace == namespace:
            yield from map_closing_policy(policy, cache)


def map_network_to_firewalls(network: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a network to its firewalls and to the firewalls of its instances."""
    key = str(key_of(network))
    yield from map(key_of, cache.store(FIREWALL).indexed(BY_NETWORK, key))
    for instance in cache.store(INSTANCE).indexed(BY_NETWORK, key):
        yield from map_to_firewall(instance, cache)


def map_policy_to_firewalls(policy: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a policy to the firewalls of its instances, and to firewalls that isolate them."""
    uids = set(list_selected(policy))
    namespace = key_of(policy).namespace
    if not uids:
        return
    for uid in uids:
        yield from _list_closers(uid, namespace, cache)
    for firewall in cache.store(FIREWALL).list(namespace):
        key = key_of(firewall)
        members = cache.store(INSTANCE).indexed(BY_FIREWALL, str(key))
        if any(member["metadata"].get("uid") in uids for member in members):
            yield key
