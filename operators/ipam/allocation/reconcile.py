"""When an address is released; pure.

An address is released when one of two things is certain: the claim is gone, by its UID, which no
other claim will ever have; or the claim shows another address, which the API server never lets it
change. As long as neither is certain the entry stays, whatever a cache believes.
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
        uid: Which incarnation has the name now.
        addresses: What its status says that it has, by pool; empty if it says nothing.
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
        move: KEEP it, begin its REST, WAIT for its end, or RETURN the address.
        released_at: When the rest began.
        until: When the rest is over.
    """

    move: EntryAction
    released_at: datetime | None = None
    until: datetime | None = None


def evaluate_hold(
    pool: str, address: str, claim_uid: str, holder: CurrentClaim | None
) -> ClaimState:
    """Return whether a claim has an address.

    Args:
        pool: Pool of the entry.
        address: Address of the entry.
        claim_uid: Claim that the entry names.
        holder: What has the name of that claim now; None for nothing.
    """
    if holder is None or holder.uid != claim_uid:
        return ClaimState.GONE
    shown = holder.addresses.get(pool, "")
    return ClaimState.SURPLUS if shown and shown != address else ClaimState.HELD


def plan_release(
    hold: ClaimState, *, grace_seconds: int, released_at: datetime | None, now: datetime
) -> ReleasePlan:
    """Decide what becomes of an entry.

    Args:
        hold: What its claim has to do with it.
        grace_seconds: How long the pool lets addresses rest; 0 where the address would not come
            back to the pool anyway.
        released_at: When the rest began; None when it did not.
        now: The time.
    """
    if hold is ClaimState.HELD:
        return ReleasePlan(EntryAction.KEEP)
    # A surplus address was never in use, so nobody has to forget it.
    if hold is ClaimState.SURPLUS or grace_seconds == 0:
        return ReleasePlan(EntryAction.RETURN)
    began = now.replace(microsecond=0) if released_at is None else released_at
    until = began + timedelta(seconds=grace_seconds)
    if released_at is None:
        return ReleasePlan(EntryAction.REST, began, until)
    return ReleasePlan(EntryAction.RETURN if now >= until else EntryAction.WAIT, began, until)
