"""Read the objects of a KubernetesCluster from the cache, and map changes to clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from libs.common.kinds import (
    CONFIG_MAP,
    ENDPOINT_SLICE,
    SECRET,
    SERVICE,
    Key,
    Kind,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import (
    build_inherit_patch,
    controller_of,
    controller_uid,
    is_former_child,
)
from libs.common.plan import Patch, Step
from libs.common.reading import maps_at, text_at, text_map_at
from libs.common.runtime import Cache, Context
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView, OperationView
from libs.contracts.ip_claims import IP_CLAIM, IpClaimView
from libs.contracts.network import FIREWALL, NETWORK, NetworkView
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.certificates import Authorities, BadCertificate
from operators.clusters.naming import authorities_name, endpoint_name
from operators.clusters.observed import Observed, Workload, read_data
from operators.clusters.resources import build_child

NEEDED: Final = (INSTANCE, OPERATION, IP_CLAIM, FIREWALL, NETWORK)
"""Required kinds of other operators."""
_OBJECTS: Final = (SERVICE, ENDPOINT_SLICE, IP_CLAIM, FIREWALL, SECRET)


type Addons = Mapping[str, Mapping[str, str]]


def observe(ctx: Context, workload: Workload, addons: Addons | None = None) -> Observed:
    """Read everything on which plan and status depend; see `read_addons` for the addons."""
    missing = tuple(kind.resource for kind in NEEDED if not ctx.is_served(kind))
    objects = {
        (kind, key_of(each).name): each
        for kind in _OBJECTS
        if kind not in NEEDED or ctx.is_served(kind)
        for each in ctx.children(kind)
    }
    authorities, problem = _find_authorities(ctx, objects)
    claim = objects.get((IP_CLAIM, endpoint_name(ctx.key.name)))
    instances = _children(ctx, INSTANCE)
    operations = [OperationView.parse(each) for each in _list(ctx, OPERATION)]
    names = {key_of(each).name for each in instances}
    ours = {key_of(each).name for each in _children(ctx, OPERATION)}
    at_work = {each.instance for each in operations if not each.finished}
    views = [InstanceView.parse(each) for each in instances]
    return Observed(
        missing_apis=missing,
        authorities=authorities,
        authorities_problem=problem,
        objects=objects,
        claim=None if claim is None else IpClaimView.parse(claim),
        instances={view.key.name: view for view in views},
        operations={each.key.name: each for each in operations if each.key.name in ours},
        busy=frozenset(at_work & names) | {view.key.name for view in views if view.operation},
        workload=workload,
        network=_find_network(ctx),
        addons=addons or {},
    )


def plan_adoption(ctx: Context, cluster: KubernetesCluster) -> list[Step]:
    """Plan the adoption of what an earlier cluster with this name has left, as after a restore.

    This comes before everything else: without its keys and machines, the cluster would be created
    again.
    """
    return [
        Patch(
            kind,
            key_of(held),
            uid_of(held),
            build_inherit_patch(desired),
            resource_version=text_at(held, "metadata", "resourceVersion"),
        )
        for kind in (*_OBJECTS, INSTANCE)
        for held in _list(ctx, kind)
        if controller_uid(held) != ctx.uid
        and is_former_child(held, desired := build_child(cluster, kind, key_of(held).name))
    ]


async def read_addons(ctx: Context) -> Addons:
    """Read the ConfigMaps of addons, of which the cache holds only the metadata."""
    asked = maps_at(ctx.primary, "spec", "addons")
    keys = [Key(ctx.key.namespace, text_at(each, "configMapRef", "name")) for each in asked]
    seen = [key for key in keys if ctx.get(CONFIG_MAP, key) is not None]
    held = {key.name: await ctx.live_get(CONFIG_MAP, key) for key in seen}
    return {
        name: text_map_at(each, "data")
        for name, each in held.items()
        if each is not None and not is_deleting(each)
    }


def _find_network(ctx: Context) -> NetworkView | None:
    name = text_at(ctx.primary, "spec", "networkRef", "name")
    if not ctx.is_served(NETWORK):
        return None
    found = ctx.get(NETWORK, Key(ctx.key.namespace, name))
    return None if found is None else NetworkView.parse(found)


def _find_authorities(
    ctx: Context, objects: dict[tuple[Kind, str], Manifest]
) -> tuple[Authorities | None, str]:
    held = objects.get((SECRET, authorities_name(ctx.key.name)))
    if held is None:
        return None, ""
    try:
        return Authorities.parse(read_data(held)), ""
    except BadCertificate as err:
        return None, str(err)


def _children(ctx: Context, kind: Kind) -> list[Manifest]:
    return ctx.children(kind) if ctx.is_served(kind) else []


def _list(ctx: Context, kind: Kind) -> list[Manifest]:
    return ctx.list(kind) if ctx.is_served(kind) else []


def map_network(network: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a Network to the clusters whose nodes use it."""
    key = key_of(network)
    for cluster in cache.store(KUBERNETES_CLUSTER).list(key.namespace):
        if text_at(cluster, "spec", "networkRef", "name") == key.name:
            yield key_of(cluster)


def map_addon(config_map: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a ConfigMap to the clusters that use it as an addon."""
    key = key_of(config_map)
    for cluster in cache.store(KUBERNETES_CLUSTER).list(key.namespace):
        for addon in maps_at(cluster, "spec", "addons"):
            if text_at(addon, "configMapRef", "name") == key.name:
                yield key_of(cluster)


def map_operation(operation: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an Operation to the cluster of its Instance."""
    namespace = key_of(operation).namespace
    key = Key(namespace, text_at(operation, "spec", "targetRef", "name"))
    instance = cache.store(INSTANCE).get(key)
    owner = None if instance is None else controller_of(instance)
    if owner is not None and owner.get("kind") == KUBERNETES_CLUSTER.kind:
        yield Key(namespace, str(owner.get("name")))
