"""Planning: decides when an address is released. Pure.

An address is released only if one of two facts is certain: the claim with this UID no longer
exists, and a UID is never reused; or the claim has another address or requests none of the pool,
which the API server does not allow to change while it has the address. Otherwise the entry is
kept, whatever the cache contains.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto


class ClaimState(Enum):
    """The relation of a claim to an entry of the ledger."""

    HELD = auto()
    GONE = auto()
    SURPLUS = auto()


@dataclass(frozen=True, slots=True)
class CurrentClaim:
    """The claim that an entry names, as the API server returns it.

    Attributes:
        uid: UID of the object that has the name now.
        addresses: Addresses in its status, by pool; empty for a pool without an address.
    """

    uid: str
    addresses: dict[str, str]


class EntryAction(Enum):
    """The action for an entry."""

    KEEP = auto()
    REST = auto()
    WAIT = auto()
    RETURN = auto()


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """The plan for an entry.

    Attributes:
        move: KEEP the entry, start the quarantine (REST), WAIT for its end, or RETURN the address
            to the pool.
        released_at: Start of the quarantine.
        until: End of the quarantine.
    """

    move: EntryAction
    released_at: datetime | None = None
    until: datetime | None = None


def evaluate_hold(
    pool: str, address: str, claim_uid: str, holder: CurrentClaim | None
) -> ClaimState:
    """Return the relation of a claim to an entry."""
    if holder is None or holder.uid != claim_uid:
        return ClaimState.GONE
    if holder.addresses and pool not in holder.addresses:
        # The second pool of the claim was changed.
        return ClaimState.GONE
    shown = holder.addresses.get(pool, "")
    return ClaimState.SURPLUS if shown and shown != address else ClaimState.HELD


def plan_release(
    hold: ClaimState, *, grace_seconds: int, released_at: datetime | None, now: datetime
) -> ReleasePlan:
    """Plan the action for an entry.

    Args:
        hold: Relation of its claim to it.
        grace_seconds: Duration of the quarantine; 0 if the address does not return to the pool.
        released_at: Start of the quarantine; None if it has not started.
        now: The time.
    """
    if hold is ClaimState.HELD:
        return ReleasePlan(EntryAction.KEEP)
    began = now.replace(microsecond=0) if released_at is None else released_at
    until = began + timedelta(seconds=grace_seconds)
    # A surplus address was never in use, so no client can still send traffic to it.
    if hold is ClaimState.SURPLUS or now >= until:
        return ReleasePlan(EntryAction.RETURN, began, until)
    return ReleasePlan(EntryAction.REST if released_at is None else EntryAction.WAIT, began, until)
