"""Observe the target of an address, and map changes to claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from libs.common.kinds import (
    ENDPOINT_SLICE,
    POD,
    SERVICE,
    Key,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.labels import MANAGED_BY, SERVICE_NAME
from libs.common.reading import map_at, maps_at, text_at, text_map_at, texts_at
from libs.common.runtime import Cache, Context, IndexFunction
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE, VmiView
from libs.contracts.launchers import LauncherView
from operators.ipam.api.v1alpha1.claims import (
    IP_CLAIM,
    ClaimReason,
    ClaimTarget,
    IPClaim,
    TargetKind,
)
from operators.ipam.api.v1alpha1.pools import IP_POOL, AddressTargets
from operators.ipam.claim.announcement import list_announced, list_requested, normalize
from operators.ipam.claim.binding import (
    Binding,
    Finding,
    Observation,
    RoutedEndpoint,
    find_machine,
    sort_places,
)
from operators.ipam.claim.pods import TRUST_SECONDS, PodEndpoints
from operators.ipam.claim.resources import PortMap, parse_binding, parse_place
from operators.ipam.ledger_projection import LedgerProjection
from operators.ipam.naming import OPERATOR_ID

BY_TARGET: Final = "target"
"""Index of claims by target: `Instance default/web`."""
BY_ADDRESS: Final = "address"
"""Index of claims and Services by their addresses."""
BY_RUN: Final = "run"
"""Index of launcher pods by the UID of their VirtualMachineInstance."""
BY_SERVICE: Final = "service"
"""Index of EndpointSlices by their Service: `default/web`."""

_KINDS: Final = {TargetKind.INSTANCE: INSTANCE, TargetKind.SERVICE: SERVICE}
_ENDPOINTS_LIMIT: Final = 100
"""Maximum number of endpoints of a Service to copy: the default size of a slice in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a claim.

    Attributes:
        finding: Location of the target; None if the claim has no target.
        ports: Ports of the target itself.
        ports_at: Ports of places that differ from `ports`.
        again: Seconds until its endpoints must be compared with their pods again; None for never.
    """

    finding: Finding | None
    ports: tuple[PortMap, ...] = ()
    ports_at: Mapping[RoutedEndpoint, tuple[PortMap, ...]] = field(default_factory=dict)
    again: float | None = None


async def observe_target(
    ctx: Context, claim: IPClaim, families: Collection[bool], pods: PodEndpoints
) -> Target:
    """Observe the target of a claim."""
    target = claim.spec.target
    if target is None:
        return Target(None)
    named = Binding(target=f"{target.kind}/{target.name or target.address}")
    match target.kind:
        case TargetKind.INSTANCE:
            return Target(_observe_machine(ctx, target, named, families))
        case TargetKind.SERVICE:
            found = _observe_service(ctx, target, named, families)
            return found if _allows_addresses(ctx, claim) else await _keep_pods(ctx, found, pods)
        case TargetKind.ADDRESS:
            return Target(_observe_address(ctx, claim, target, named, families))


async def has_target(ctx: Context, claim: IPClaim) -> bool:
    """Return whether the target of a claim exists, according to the API server.

    A claim whose target was deleted must not wait: otherwise the deletion of a namespace that
    contains both would never complete.
    """
    target = claim.spec.target
    if target is None:
        return False
    kind = _KINDS.get(target.kind)
    if kind is None or not ctx.is_served(kind):
        # A plain address always exists, and a machine without an Instance may only be stopped.
        return True
    return await ctx.live_get(kind, Key(ctx.key.namespace, target.name or "")) is not None


def observe_binding(ctx: Context, claim: IPClaim) -> Binding:
    """Return the current binding: from the slices, or from the status if there are none."""
    shown = claim.status.binding if claim.status is not None else None
    slices = ctx.children(ENDPOINT_SLICE)
    if slices:
        held = parse_binding(slices)
        return replace(held, epoch=max(held.epoch, shown.epoch if shown is not None else 0))
    if shown is None:
        return Binding()
    key = Key(ctx.key.namespace, shown.pod_name) if shown.pod_name else None
    place = RoutedEndpoint(shown.pod_ip or "", shown.node_name or "", key, shown.pod_uid or "")
    return Binding(
        target=shown.target or "",
        target_uid=shown.target_uid or "",
        vmi_uid=shown.vmi_uid or "",
        vmi_created=shown.vmi_created or "",
        places=(place,) if shown.pod_ip else (),
        epoch=shown.epoch,
    )


def narrow_unserved(claim: IPClaim, finding: Finding, *, v6: bool) -> Finding:
    """Reduce a finding to the one place that the status of a claim without ports can contain."""
    is_machine = claim.spec.target is not None and claim.spec.target.kind is TargetKind.INSTANCE
    # Other operators read the location of a machine from its claim. Other targets do not move.
    places = tuple(each for each in finding.binding.places if (":" in each.address) == v6)
    kept = places[:1] if is_machine else ()
    return replace(finding, binding=replace(finding.binding, places=kept))


def _observe_machine(
    ctx: Context, target: ClaimTarget, named: Binding, families: Collection[bool]
) -> Finding:
    key = Key(ctx.key.namespace, target.name or "")
    held = ctx.get(VIRTUAL_MACHINE_INSTANCE, key)
    instance = ctx.get(INSTANCE, key)
    if ctx.is_served(INSTANCE) and instance is None:
        message = f"spec.target: {target} does not exist in namespace {key.namespace}"
        return Finding(Observation.ABSENT, named, ClaimReason.TARGET_NOT_FOUND, message)
    vmi = None if held is None else VmiView.parse(held)
    if instance is not None:
        named = replace(named, target_uid=uid_of(instance))
        if vmi is not None and vmi.labels.get(INSTANCE_UID_LABEL, uid_of(instance)) != uid_of(
            instance
        ):
            # The VirtualMachineInstance of an earlier Instance of that name, which is being
            # deleted.
            vmi = None
    pods = [] if vmi is None else ctx.indexed(POD, BY_RUN, vmi.uid)
    return find_machine(named, vmi, [LauncherView.parse(pod) for pod in pods], families)


def _observe_service(
    ctx: Context, target: ClaimTarget, named: Binding, families: Collection[bool]
) -> Target:
    key = Key(ctx.key.namespace, target.name or "")
    service = ctx.get(SERVICE, key)
    if service is None or is_deleting(service):
        message = f"spec.target: {target} does not exist in namespace {key.namespace}"
        return Target(Finding(Observation.ABSENT, named, ClaimReason.TARGET_NOT_FOUND, message))
    named = replace(named, target_uid=uid_of(service))
    if text_at(service, "metadata", "labels", MANAGED_BY) == OPERATOR_ID:
        # Two claims at each other's Service would copy their endpoints in turn, without an end.
        message = f"spec.target: {target} belongs to an IPClaim; name the target of that claim"
        return Target(Finding(Observation.ABSENT, named, ClaimReason.TARGET_NOT_ALLOWED, message))
    slices = [
        each
        for each in ctx.indexed(ENDPOINT_SLICE, BY_SERVICE, str(key))
        if (text_at(each, "addressType") == "IPv6") in families
    ]
    found = {
        parse_place(endpoint, address): read_ports(service, [each])
        for each in slices
        for endpoint in maps_at(each, "endpoints")
        if map_at(endpoint, "conditions").get("ready") is not False
        for address in texts_at(endpoint, "addresses")[:1]
    }
    places = sort_places(found)[:_ENDPOINTS_LIMIT]
    ports = read_ports(service, slices)
    if not places:
        message = f"{target} has no ready endpoint"
        finding = Finding(Observation.ABSENT, named, ClaimReason.TARGET_NOT_RUNNING, message)
        return Target(finding, ports)
    there = Finding(Observation.FOUND, replace(named, places=places), ClaimReason.BOUND)
    return Target(there, ports, {place: found[place] for place in places})


async def _keep_pods(ctx: Context, target: Target, pods: PodEndpoints) -> Target:
    """Remove the endpoints that are neither pods nor machines of the namespace."""
    finding = target.finding
    if finding is None or finding.observation is not Observation.FOUND:
        return target
    machines = {text_at(each, "status", "privateIP") for each in ctx.list(INSTANCE)}
    kept = [
        place
        for place in finding.binding.places
        if place.address in machines or await pods.contains(ctx, place)
    ]
    places = tuple(kept)
    binding = replace(finding.binding, places=places)
    if places:
        found = replace(finding, binding=binding)
        return replace(target, finding=found, again=TRUST_SECONDS)
    message = (
        f"spec.target: no endpoint of {binding.target} is a pod of namespace {ctx.key.namespace}, "
        "and the IPPool does not allow plain IPs; its spec.addressTargets is Deny"
    )
    reason = ClaimReason.TARGET_NOT_ALLOWED
    return replace(target, finding=Finding(Observation.ABSENT, binding, reason, message))


def _allows_addresses(ctx: Context, claim: IPClaim) -> bool:
    pool = ctx.get(IP_POOL, Key("", claim.spec.pool_ref.name))
    return pool is not None and text_at(pool, "spec", "addressTargets") == AddressTargets.ALLOW


def _observe_address(
    ctx: Context, claim: IPClaim, target: ClaimTarget, named: Binding, families: Collection[bool]
) -> Finding:
    address = target.address or ""
    if not _allows_addresses(ctx, claim):
        message = (
            f"spec.target: IPPool {claim.spec.pool_ref.name} does not allow a plain "
            "IP as the target of a claim; its spec.addressTargets is Deny"
        )
        return Finding(Observation.ABSENT, named, ClaimReason.TARGET_NOT_ALLOWED, message)
    if (":" in address) not in families:
        message = f"spec.target: {address} and the address have different address families"
        return Finding(Observation.ABSENT, named, ClaimReason.TARGET_NOT_ALLOWED, message)
    found = replace(named, places=(RoutedEndpoint(address),))
    return Finding(Observation.FOUND, found, ClaimReason.BOUND)


def read_ports(service: Manifest, slices: Sequence[Manifest]) -> tuple[PortMap, ...]:
    """Return the ports of a Service, each with the port of its endpoints.

    Pods of one Service can have different numbers for a named port, or lack it; such pods are in
    different slices. Without slices, the ports are read from the Service as far as possible.
    """
    numbers = {
        text_at(port, "name"): number
        for each in reversed(slices)
        for port in maps_at(each, "ports")
        if isinstance(number := port.get("port"), int)
    }
    ports = []
    for port in maps_at(service, "spec", "ports"):
        number, wanted, name = port.get("port"), port.get("targetPort"), text_at(port, "name")
        goal = numbers.get(name) if numbers else (wanted if isinstance(wanted, int) else number)
        if isinstance(number, int) and isinstance(goal, int):
            ports.append(PortMap(name, text_at(port, "protocol") or "TCP", number, goal))
    return tuple(ports)


# Indexes, and the mapping of changes to the claims that they affect.


def index_claim_by_target(claim: Manifest) -> Iterable[str]:
    """Index a claim by its target."""
    kind, name = text_at(claim, "spec", "target", "kind"), text_at(claim, "spec", "target", "name")
    if name:
        yield f"{kind} {Key(key_of(claim).namespace, name)}"
    elif kind:
        yield f"{kind} of {text_at(claim, 'spec', 'poolRef', 'name')}"


def index_claim_by_address(claim: Manifest) -> Iterable[str]:
    """Index a claim by its addresses."""
    found = (text_at(claim, "status", name) for name in ("address", "secondaryAddress"))
    return [address for address in found if address]


def index_service_by_address(service: Manifest) -> Iterable[str]:
    """Index a Service by its external addresses; the Service of a claim by requested ones too."""
    found = [*map(normalize, texts_at(service, "spec", "externalIPs")), *list_announced(service)]
    if text_at(service, "metadata", "labels", MANAGED_BY) == OPERATOR_ID:
        found += list_requested(service)
    return {*found}


def index_pod_by_run(pod: Manifest) -> Iterable[str]:
    """Index a launcher pod by the UID of its VirtualMachineInstance."""
    return (LauncherView.parse(pod).owner_uid,)


def index_slice_by_service(endpoint_slice: Manifest) -> Iterable[str]:
    """Index an EndpointSlice by its Service."""
    name = text_map_at(endpoint_slice, "metadata", "labels").get(SERVICE_NAME)
    if name:
        yield str(Key(key_of(endpoint_slice).namespace, name))


def map_allocation(entry: Manifest, cache: Cache) -> Iterable[Key]:
    """Map an entry of the ledger to its claim."""
    key = Key(
        text_at(entry, "spec", "claimRef", "namespace"), text_at(entry, "spec", "claimRef", "name")
    )
    claim = cache.store(IP_CLAIM).get(key)
    if claim is not None and uid_of(claim) == text_at(entry, "spec", "claimRef", "uid"):
        yield key


def map_pool(pool: Manifest, cache: Cache) -> Iterable[Key]:
    """Map a pool to claims that it affects.

    These are the claims that wait for a deleted or invalid pool, and claims with a plain address as
    target, which the pool can allow or deny.
    """
    name, ledger = key_of(pool).name, cache.projection(LedgerProjection).ledger
    if cache.store(IP_POOL).get(key_of(pool)) is None or name not in ledger.ranges:
        yield from (request.claim for request in ledger.open.get(name, {}).values())
    claims = cache.store(IP_CLAIM).indexed(BY_TARGET, f"Address of {name}")
    yield from (key_of(claim) for claim in claims)


def map_machine(machine: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the claims whose target is an Instance, or the Instance of a machine."""
    return _map_target(TargetKind.INSTANCE, key_of(machine), cache)


def map_launcher(pod: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the claims with the machine of a launcher pod as target."""
    owners = maps_at(pod, "metadata", "ownerReferences")
    for owner in owners:
        key = Key(key_of(pod).namespace, text_at(owner, "name"))
        yield from _map_target(TargetKind.INSTANCE, key, cache)


def map_service(service: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the claims with a Service as target."""
    return _map_target(TargetKind.SERVICE, key_of(service), cache)


def map_carrier(service: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the claims that have an address of a Service."""
    for address in index_service_by_address(service):
        yield from map(key_of, cache.store(IP_CLAIM).indexed(BY_ADDRESS, address))


def map_slice(endpoint_slice: Manifest, cache: Cache) -> Iterable[Key]:
    """Return the claims with the Service of an EndpointSlice as target."""
    name = text_map_at(endpoint_slice, "metadata", "labels").get(SERVICE_NAME, "")
    return _map_target(TargetKind.SERVICE, Key(key_of(endpoint_slice).namespace, name), cache)


def _map_target(kind: TargetKind, key: Key, cache: Cache) -> Iterable[Key]:
    return [key_of(each) for each in cache.store(IP_CLAIM).indexed(BY_TARGET, f"{kind} {key}")]


CLAIM_INDEXES: Final[Mapping[str, IndexFunction]] = {
    BY_TARGET: index_claim_by_target,
    BY_ADDRESS: index_claim_by_address,
}
"""Indexes of the claims in the cache."""
SERVICE_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_ADDRESS: index_service_by_address}
"""Indexes of the Services in the cache."""
POD_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_RUN: index_pod_by_run}
"""Indexes of the launcher pods in the cache."""
SLICE_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_SERVICE: index_slice_by_service}
"""Indexes of the EndpointSlices in the cache."""
