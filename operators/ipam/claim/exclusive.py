"""Detect other Services with the address of a claim, which kube-proxy may serve instead. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from libs.common.kinds import Key, Manifest, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.reading import maps_at, text_at
from operators.ipam.api.v1alpha1.claims import BindingState, ClaimReason, IPClaim, TargetKind
from operators.ipam.claim.binding import BindingPlan
from operators.ipam.claim.resources import PortMap


@dataclass(frozen=True, slots=True)
class AddressConflict:
    """Another Service with an address of a claim."""

    address: str
    service: Key


def is_conflicting(
    claim: IPClaim, owner_uid: str, ports: Sequence[PortMap], service: Manifest
) -> bool:
    """Return whether a Service with an address of a claim can receive the traffic of the claim."""
    if claim.metadata.uid == controller_uid(service) or uid_of(service) == owner_uid:
        return False
    key, target = key_of(service), claim.spec.target
    if key.namespace != claim.metadata.namespace:
        return True
    if target is not None and (target.kind, target.name) == (TargetKind.SERVICE, key.name):
        return False
    # The user of a namespace may share an address of the namespace by ports.
    own = {(each.protocol, each.port) for each in ports}
    return any(
        (text_at(port, "protocol") or "TCP", port.get("port")) in own
        for port in maps_at(service, "spec", "ports")
    )


def require_exclusive(
    plan: BindingPlan, namespace: str, conflicts: Iterable[AddressConflict]
) -> BindingPlan:
    """Change a binding from Bound to Pending if another Service has the address."""
    conflict = min(conflicts, key=lambda each: each.service.namespace != namespace, default=None)
    if plan.state is not BindingState.BOUND or conflict is None:
        return plan
    address, service = conflict.address, conflict.service
    if service.namespace == namespace:
        message = (
            f"Service {service.name} has {address} as well, so traffic can go there; remove the "
            "address from its spec.externalIPs"
        )
    else:
        # The name of the Service would tell what others run.
        message = (
            f"a Service of another namespace has {address} as well, so traffic can go there; an "
            "administrator must remove the address from that Service"
        )
    return replace(
        plan, state=BindingState.PENDING, reason=ClaimReason.ADDRESS_CONFLICT, message=message
    )
