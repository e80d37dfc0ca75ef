"""The addresses and the status of a claim; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import Manifest
from operators.ipam.api.v1alpha1.claims import (
    BindingState,
    ClaimBinding,
    ClaimCondition,
    ClaimReason,
    IPClaim,
    IPClaimStatus,
)
from operators.ipam.api.v1alpha1.fields import NamedReference
from operators.ipam.claim.binding import Binding, BindingPlan
from operators.ipam.ledger import Entry
from operators.ipam.pool.reconcile import PendingReason


@dataclass(frozen=True, slots=True)
class Holding:
    """The address that a claim has from one pool.

    Attributes:
        pool: Name of the pool.
        address: Its address; empty for none.
        entry: Entry of that address; None if it was lost, or if there is no address.
        pending_reason: Why there is no address or no entry; None while that is unknown.
    """

    pool: str
    address: str = ""
    entry: Entry | None = None
    pending_reason: PendingReason | None = None

    @property
    def known(self) -> bool:
        """Whether the state is known."""
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
        held: Address that its status says, which is final; empty for none.
        entries: Its entries in the ledger, the lowest first.
        pending_reason: Why the pool has no address for it.
    """
    if held:
        entry = next((each for each in entries if each.address == held), None)
        return Holding(pool, held, entry, pending_reason if entry is None else None)
    if entries:
        # The lowest, if two leaders made one each; once it is in the status the other goes.
        return Holding(pool, entries[0].address, entries[0])
    return Holding(pool, pending_reason=pending_reason)


def may_publish(holdings: Sequence[Holding]) -> bool:
    """Return whether the addresses of a claim may lead anywhere.

    Nothing is announced that the ledger does not have, and no second address before the first: the
    family that a Service has first cannot be changed.
    """
    return bool(holdings[0].address) and not any(holding.lost for holding in holdings)


def plan_unpublished(current: Binding, holdings: Sequence[Holding]) -> BindingPlan:
    """Lead the addresses of a claim nowhere, since they may not be published."""
    lost = next((holding.address for holding in holdings if holding.lost), "")
    state, message = BindingState.UNBOUND, "the claim has no address yet"
    if lost:
        state, message = BindingState.WITHDRAWN, f"{lost} has no entry in the ledger any more"
    off = replace(current, places=(), epoch=current.epoch + bool(current.places))
    return BindingPlan(off, state, ClaimReason.NO_ADDRESS, message)


def plan_lingering(plan: BindingPlan, service: str) -> BindingPlan:
    """Call no address unbound while its Service is still there."""
    message = f"Service {service} is being deleted; the address is announced until it is gone"
    return replace(
        plan, state=BindingState.WITHDRAWN, reason=ClaimReason.WITHDRAWING, message=message
    )


def check_reach(plan: BindingPlan, address: str) -> BindingPlan:
    """Call no address bound whose target has none of its family."""
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
    """Call no address bound without a port: no Service routes traffic to its target."""
    if plan.state is not BindingState.BOUND:
        return plan
    message = f"spec.ports is empty, so nothing routes traffic to {plan.binding.target}"
    return replace(
        plan, state=BindingState.PENDING, reason=ClaimReason.NO_PORTS, message=f"{message}; set it"
    )


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
        holdings: What it has of its pool, and of its second one.
        binding: Where its address leads.
        current: Conditions as the object shows them.
        now: Time of the transitions that happen here.
        announced: Whether its address is announced; None while it has no Service.
        terminating: What a deleted claim waits for.
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
    conditions = [
        terminating_ready(terminating) or evaluate_ready(holdings),
        evaluate_bound(binding),
        *(each for each in (announced, terminating) if each is not None),
    ]
    status["conditions"] = build_conditions(
        current, conditions, generation=claim.metadata.generation, now=now
    )
    return status


def terminating_ready(terminating: Condition | None) -> Condition | None:
    """State that a claim which is on its way out is not ready."""
    if terminating is None:
        return None
    return Condition.false(ClaimCondition.READY, terminating.reason, terminating.message)


def evaluate_ready(holdings: Sequence[Holding]) -> Condition:
    """State whether a claim has what it asks for."""
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
    """State whether the address routes traffic to its target."""
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
