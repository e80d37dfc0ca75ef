"""The addresses and the status of a claim. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import Manifest
from libs.common.labels import INSTANCE as INSTANCE_LABEL
from libs.common.labels import MANAGED_BY
from libs.common.ownership import build_release_patch, controller_of
from libs.common.plan import escape_pointer
from libs.common.reading import map_at, text_map_at
from libs.contracts.compute import INSTANCE
from operators.ipam.api.v1alpha1.claims import (
    BindingState,
    ClaimBinding,
    ClaimCondition,
    ClaimReason,
    IPClaim,
    IPClaimStatus,
    TargetKind,
)
from operators.ipam.api.v1alpha1.fields import NamedReference
from operators.ipam.claim.binding import Binding, BindingPlan
from operators.ipam.ledger import Entry
from operators.ipam.pool.reconcile import PendingReason


@dataclass(frozen=True, slots=True)
class Holding:
    """The address that a claim has from one pool.

    Attributes:
        address: The address; empty for none.
        entry: Entry of the address; None if there is no address or its entry was lost.
        pending_reason: Why there is no address or no entry; None if the pool has not decided yet.
    """

    pool: str
    address: str = ""
    entry: Entry | None = None
    pending_reason: PendingReason | None = None

    @property
    def known(self) -> bool:
        """Whether the claim has an address, or the pool has decided why not."""
        return bool(self.address) or self.pending_reason is not None

    @property
    def lost(self) -> bool:
        """Whether the status of the claim has an address that is no longer in the ledger."""
        return bool(self.address) and self.entry is None


def find_holding(
    pool: str, held: str, entries: Sequence[Entry], pending_reason: PendingReason | None
) -> Holding:
    """Return the address that a claim has from a pool.

    Args:
        pool: Name of the pool.
        held: Address in the status of the claim, which never changes; empty for none.
        entries: Entries of the claim in the ledger, the lowest address first.
        pending_reason: Why the pool has no address for the claim.
    """
    if held:
        entry = next((each for each in entries if each.address == held), None)
        return Holding(pool, held, entry, pending_reason if entry is None else None)
    if entries:
        # If two leaders created one entry each, use the lowest. After its address is in the status,
        # the other entry is surplus and is released.
        return Holding(pool, entries[0].address, entries[0])
    return Holding(pool, pending_reason=pending_reason)


def may_publish(holdings: Sequence[Holding]) -> bool:
    """Return whether traffic may be routed to the addresses of a claim.

    An address without an entry in the ledger is never announced, because another claim may have it.
    The second address is not announced before the first, because the first family of a Service is
    immutable.
    """
    return bool(holdings[0].address) and not any(holding.lost for holding in holdings)


def plan_unpublished(current: Binding, holdings: Sequence[Holding]) -> BindingPlan:
    """Plan that no traffic is routed to addresses that must not be published."""
    lost = next((holding.address for holding in holdings if holding.lost), "")
    state, message = BindingState.UNBOUND, "the claim has no address yet"
    if lost:
        state, message = BindingState.WITHDRAWN, f"{lost} has no entry in the ledger any more"
    off = replace(current, places=(), epoch=current.epoch + bool(current.places))
    return BindingPlan(off, state, ClaimReason.NO_ADDRESS, message)


def plan_lingering(plan: BindingPlan, service: str) -> BindingPlan:
    """Report Withdrawing instead of Unbound while the Service still exists."""
    message = f"Service {service} is being deleted; the address is announced until then"
    return replace(
        plan, state=BindingState.WITHDRAWN, reason=ClaimReason.WITHDRAWING, message=message
    )


def check_reach(plan: BindingPlan, address: str) -> BindingPlan:
    """Change a binding from Bound to Pending if the target has no address of the family."""
    v6 = ":" in address
    if plan.state is not BindingState.BOUND or any(
        (":" in place.address) == v6 for place in plan.binding.places
    ):
        return plan
    message = f"{plan.binding.target} has no address of the family of {address}"
    return replace(
        plan, state=BindingState.PENDING, reason=ClaimReason.TARGET_NOT_RUNNING, message=message
    )


def require_ports(plan: BindingPlan) -> BindingPlan:
    """Change a binding from Bound to Pending without ports: no Service routes its traffic."""
    if plan.state is not BindingState.BOUND:
        return plan
    message = f"spec.ports is empty, so nothing routes traffic to {plan.binding.target}"
    return replace(
        plan, state=BindingState.PENDING, reason=ClaimReason.NO_PORTS, message=f"{message}; set it"
    )


def admit_unserved(plan: BindingPlan, addresses: Sequence[str]) -> BindingPlan:
    """Report the addresses of a family of which the cluster has no Services."""
    if plan.state is not BindingState.BOUND or not addresses:
        return plan
    message = (
        f"{', '.join(addresses)} routes no traffic, because the cluster has no Services of its "
        "address family"
    )
    return replace(plan, reason=ClaimReason.FAMILY_NOT_SERVED, message=message)


def plan_owner_release(claim: Manifest) -> list[Manifest]:
    """Plan that a claim no longer belongs to an Instance if it has another target.

    Otherwise the address of the other target would be released with the Instance. Without the
    labels, the Instance does not adopt the claim again.

    Returns:
        Operations of a JSON patch; empty if nothing changes.
    """
    owner, target = controller_of(claim) or {}, map_at(claim, "spec", "target")
    if owner.get("kind") != INSTANCE.kind or not target:
        return []
    if (target.get("kind"), target.get("name")) == (TargetKind.INSTANCE, owner.get("name")):
        return []
    labels = text_map_at(claim, "metadata", "labels")
    return [
        *build_release_patch(claim, str(owner.get("uid"))),
        *(
            {"op": "remove", "path": f"/metadata/labels/{escape_pointer(name)}"}
            for name in (MANAGED_BY, INSTANCE_LABEL)
            if name in labels
        ),
    ]


def build_status(
    claim: IPClaim,
    holdings: Sequence[Holding],
    binding: BindingPlan,
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
    announced: Condition | None = None,
    terminating: Condition | None = None,
) -> Manifest:
    """Build the status of a claim.

    Args:
        claim: The claim.
        holdings: Its address from the first pool, and from the second pool if there is one.
        binding: Binding of its address.
        current: Current conditions of the claim.
        now: Time for conditions whose status changes.
        announced: Condition Announced; None if the claim has no Service.
        terminating: Condition Terminating of a claim that is being deleted.
    """
    waiting = [
        each.pending_reason.position
        for each in holdings
        if each.pending_reason and not each.address
    ]
    first, second = holdings[0], holdings[1] if len(holdings) > 1 else Holding("")
    status = IPClaimStatus(
        observed_generation=claim.metadata.generation,
        address=first.address or None,
        allocation_ref=_refer(first.entry),
        secondary_address=second.address or None,
        secondary_allocation_ref=_refer(second.entry),
        queue_position=max((each for each in waiting if each is not None), default=None),
        binding=_show(binding),
    ).to_manifest()
    ready = evaluate_ready(holdings)
    if terminating is not None:
        ready = Condition.false(ClaimCondition.READY, terminating.reason, terminating.message)
    conditions = [
        ready,
        evaluate_bound(binding),
        *(each for each in (announced, terminating) if each is not None),
    ]
    status["conditions"] = build_conditions(
        current, conditions, generation=claim.metadata.generation, now=now
    )
    return status


def evaluate_ready(holdings: Sequence[Holding]) -> Condition:
    """Build the condition Ready: whether the claim has its addresses."""
    for holding in holdings:
        if holding.entry is not None:
            continue
        if holding.pending_reason is not None:
            reason, message = holding.pending_reason.reason, holding.pending_reason.message
            return Condition.false(ClaimCondition.READY, reason, message)
        message = f"the entry of {holding.address} was lost and is being recreated"
        return Condition.false(ClaimCondition.READY, ClaimReason.RESTORING, message)
    return Condition.true(ClaimCondition.READY, ClaimReason.ALLOCATED)


def evaluate_bound(binding: BindingPlan) -> Condition:
    """Build the condition Bound."""
    if binding.state is BindingState.BOUND:
        return Condition.true(ClaimCondition.BOUND, binding.reason, binding.message)
    return Condition.false(ClaimCondition.BOUND, binding.reason, binding.message)


def _refer(entry: Entry | None) -> NamedReference | None:
    return None if entry is None else NamedReference(name=entry.name, uid=entry.uid)


def _show(plan: BindingPlan) -> ClaimBinding | None:
    binding = plan.binding
    if plan.state is BindingState.UNBOUND and not binding.epoch:
        return None
    place = binding.places[0] if binding.places else None
    return ClaimBinding(
        state=plan.state,
        epoch=binding.epoch,
        target=binding.target or None,
        target_uid=binding.target_uid or None,
        vmi_uid=binding.vmi_uid or None,
        vmi_created=binding.vmi_created or None,
        pod_uid=(place.pod_uid or None) if place else None,
        pod_name=place.pod.name if place and place.pod else None,
        pod_ip=place.address if place else None,
        node_name=(place.node or None) if place else None,
    )
