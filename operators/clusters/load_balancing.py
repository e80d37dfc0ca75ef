"""Addresses of Services of type LoadBalancer in a managed cluster. Pure.

Each such Service gets an IPClaim in the management cluster, for a Service whose endpoints are the
ready nodes of the pools. Its address is written to the status of the Service in the cluster. While
the API of the cluster does not respond, existing addresses stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from libs.common.actions import Action
from libs.common.conditions import Condition
from libs.common.kinds import ENDPOINT_SLICE, SERVICE, Kind, Manifest, is_deleting
from libs.common.plan import Apply, Delete
from libs.common.reading import int_at, maps_at, text_at, texts_at
from libs.contracts.compute import InstanceView
from libs.contracts.ip_claims import IP_CLAIM, IpClaimView
from operators.clusters.api.reasons import ConditionType, Reason
from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.naming import GUEST_SERVICE, exposure_name
from operators.clusters.observed import Observed
from operators.clusters.resources import Exposure, build_claim, build_endpoint_slice, build_service
from operators.clusters.services import (
    MESSAGE_LIMIT,
    Admission,
    ExposedPort,
    GuestService,
    Publish,
)

_KINDS: Final = (ENDPOINT_SLICE, SERVICE, IP_CLAIM)
_EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The actions for Services.

    Attributes:
        actions: Writes in the management cluster.
        steps: Steps in the managed cluster.
    """

    actions: tuple[Action, ...] = ()
    steps: tuple[Publish, ...] = ()


def find_admission(cluster: KubernetesCluster, observed: Observed) -> Admission | None:
    """Return which Services get an address; None if the Services need not be listed."""
    asked, held = cluster.spec.load_balancers, frozenset(_list_held(observed, IP_CLAIM))
    if asked is None and not held:
        return None
    return Admission(cluster.metadata.name, asked.limit if asked else 0, held)


def plan_services(cluster: KubernetesCluster, observed: Observed) -> ServicePlan:
    """Plan the addresses of Services."""
    services = observed.workload.services
    if services is None:
        kept = _list_held(observed, SERVICE)
        return ServicePlan(tuple(_plan_kept(cluster, observed, kept)))
    if cluster.spec.load_balancers is None:
        steps = tuple(Publish(each.key, each.uid) for each in services if each.message)
        # The addresses are kept until no Service shows them any more.
        return ServicePlan(() if steps else tuple(_plan_removal(observed, ())), steps)
    wanted = {exposure_name(cluster.metadata.name, each.key): each for each in services}
    actions = [
        *_plan_kept(cluster, observed, {name for name, each in wanted.items() if each.problem}),
        *_plan_removal(observed, wanted),
    ]
    for each in services:
        if not each.problem:
            actions += _plan_exposure(cluster, observed, each)
    planned = [_build_step(cluster, observed, each) for each in services]
    return ServicePlan(tuple(actions), tuple(step for step in planned if step is not None))


def _build_step(
    cluster: KubernetesCluster, observed: Observed, service: GuestService
) -> Publish | None:
    claim = _find_claim(cluster, observed, service)
    address = claim.address if claim is not None else ""
    is_routed, message = _explain(observed, service, claim)
    # An address that was published stays, although nothing serves it for a moment: otherwise, DNS
    # entries that follow it would be removed.
    shown = (address,) if address and (is_routed or address in service.published) else ()
    if shown == service.published and message == service.message:
        return None
    return Publish(service.key, service.uid, "".join(shown), message, is_routed)


def _explain(
    observed: Observed, service: GuestService, claim: IpClaimView | None
) -> tuple[bool, str]:
    """Return whether the address of a Service routes traffic to it, and a message."""
    if service.problem:
        return False, service.problem
    if claim is None or not claim.address:
        words = claim.message if claim is not None and claim.message else "it is being created"
        return False, f"waiting for an address: {words}"[:MESSAGE_LIMIT]
    if not _list_backends(observed, service):
        which = f" with an {' or '.join(sorted(service.families)) or 'IP'} address"
        which += " and an endpoint of it" if service.is_local else ""
        return False, f"{claim.address} is reserved; no ready node of a pool{which} serves it"
    if not claim.bound:
        return False, f"{claim.address} is not routed yet: {claim.bound_message}"[:MESSAGE_LIMIT]
    ports = ", ".join(str(each) for each in service.ports)
    return True, f"{claim.address} routes {ports} to the nodes"


def _find_claim(
    cluster: KubernetesCluster, observed: Observed, service: GuestService
) -> IpClaimView | None:
    name = exposure_name(cluster.metadata.name, service.key)
    held = observed.objects.get((IP_CLAIM, name))
    return None if held is None else IpClaimView.parse(held)


def list_exposures(cluster: KubernetesCluster, observed: Observed) -> list[Exposure]:
    """Return the addresses of Services whose ports the Firewall of the nodes opens."""
    found = {
        name: _recall(name, held)
        for name, held in _list_held(observed, SERVICE).items()
        if not is_deleting(held)
    }
    if cluster.spec.load_balancers is not None:
        for each in observed.workload.services or ():
            if not each.problem:
                exposure = _expose(cluster, observed, each)
                found[exposure.name] = exposure
    return [found[name] for name in sorted(found)]


def evaluate_services(cluster: KubernetesCluster, observed: Observed) -> list[Condition]:
    """Build the condition LoadBalancersReady; empty if the spec asks for no addresses."""
    type_, services = ConditionType.LOAD_BALANCERS_READY, observed.workload.services
    if cluster.spec.load_balancers is None:
        return []
    if services is None:
        message = f"Services cannot be read: {observed.workload.services_problem or 'no response'}"
        return [Condition.unknown(type_, Reason.UNREACHABLE, message)]
    if observed.service_problem:
        return [Condition.false(type_, Reason.WRITE_REFUSED, observed.service_problem)]
    for each in services:
        is_routed, message = _explain(observed, each, _find_claim(cluster, observed, each))
        if not is_routed:
            words = f"Service {each.key} of the cluster: {message}"
            return [Condition.false(type_, Reason.SERVICES_WAITING, words)]
    message = f"{len(services)} Services of type LoadBalancer have an address"
    return [Condition.true(type_, Reason.AVAILABLE, message)]


def _list_held(observed: Observed, kind: Kind) -> dict[str, Manifest]:
    return {
        name: held
        for (of, name), held in observed.objects.items()
        if of == kind and text_at(held, "metadata", "annotations", GUEST_SERVICE)
    }


def _list_backends(observed: Observed, service: GuestService) -> list[InstanceView]:
    """Return the ready nodes of the pools that serve a Service."""
    nodes = observed.workload.nodes
    ready = [
        each
        for each in observed.workers()
        if observed.is_ready(each) and service.is_served_at(each.private_ip)
    ]
    if service.is_local:
        return [each for each in ready if each.key.name in service.nodes]
    open_ = [each for each in ready if _EXCLUDED not in nodes[each.key.name].labels]
    # Pods leave a node that is being drained; it forwards until it stops.
    return [each for each in open_ if nodes[each.key.name].draining_since is None] or open_


def _expose(cluster: KubernetesCluster, observed: Observed, service: GuestService) -> Exposure:
    asked, name = cluster.spec.load_balancers, exposure_name(cluster.metadata.name, service.key)
    held = observed.objects.get((IP_CLAIM, name)) or {}
    # The pool of a claim is immutable; the spec names the pool of new ones.
    pool = text_at(held, "spec", "poolRef", "name") or (asked.pool_name if asked else "")
    return Exposure(name, service.ports, pool, service.cidrs, str(service.key))


def _recall(name: str, service: Manifest) -> Exposure:
    """Return the address of a Service that is not known now, from its object."""
    ports = [
        ExposedPort(
            text_at(each, "protocol"), int_at(each, "port") or 0, int_at(each, "targetPort") or 0
        )
        for each in maps_at(service, "spec", "ports")
    ]
    note = text_at(service, "metadata", "annotations", GUEST_SERVICE)
    return Exposure(name, ports, service=note)


def _plan_exposure(
    cluster: KubernetesCluster, observed: Observed, service: GuestService
) -> Iterator[Action]:
    exposure = _expose(cluster, observed, service)
    claim, asked = observed.objects.get((IP_CLAIM, exposure.name)), cluster.spec.load_balancers
    wrong = asked is not None and exposure.pool != asked.pool_name
    if claim is not None and wrong and not text_at(claim, "status", "address"):
        # It waits for the former pool, and its pool is immutable, so it is created again.
        if not is_deleting(claim):
            yield Action(Delete.of(IP_CLAIM, claim), Reason.ADDRESS_RELEASED)
        return
    held = observed.objects.get((ENDPOINT_SLICE, exposure.name)) or {}
    addresses = [each.private_ip for each in _list_backends(observed, service)]
    for kind, manifest in (
        (SERVICE, build_service(cluster, exposure)),
        (ENDPOINT_SLICE, build_endpoint_slice(cluster, exposure, addresses, held)),
        (IP_CLAIM, build_claim(cluster, exposure)),
    ):
        yield Action(Apply(kind, manifest), Reason.APPLIED)


def _plan_kept(
    cluster: KubernetesCluster, observed: Observed, names: Collection[str]
) -> Iterator[Action]:
    """Remove the addresses of machines that no longer exist, because others may get them."""
    alive = {each.private_ip for each in observed.workers()}
    for name, service in _list_held(observed, SERVICE).items():
        held = observed.objects.get((ENDPOINT_SLICE, name))
        if name in names and held is not None and not is_deleting(held):
            addresses = [
                address
                for each in maps_at(held, "endpoints")
                for address in texts_at(each, "addresses")
                if address in alive
            ]
            manifest = build_endpoint_slice(cluster, _recall(name, service), addresses, held)
            yield Action(Apply(ENDPOINT_SLICE, manifest), Reason.APPLIED)


def _plan_removal(observed: Observed, wanted: Collection[str]) -> list[Action]:
    return [
        Action(Delete.of(kind, held), Reason.ADDRESS_RELEASED)
        for kind in _KINDS
        for name, held in _list_held(observed, kind).items()
        if name not in wanted and not is_deleting(held)
    ]
