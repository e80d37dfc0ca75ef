"""Modes: the kinds of faults of writes and watch events, and when they apply. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lab.sweep.triggers import Trigger


class Mode(StrEnum):
    """Mode names one way to go wrong."""

    NONE = "none"
    """No fault: the run that others are compared with."""
    K0 = "K0"
    """The process is killed before the write is sent."""
    K1 = "K1"
    """The write is executed, its response is lost, and the process is killed."""
    K2 = "K2"
    """The process is killed right after the response."""
    K3 = "K3"
    """As K1, and again at a write of the recovery."""
    A1 = "A1"
    """The write is executed, its response is lost and its event is late; the process lives."""
    E409 = "E409"
    """A create meets a foreign object; the response to any other write is Conflict."""
    E429 = "E429"
    """The write is refused with Retry-After."""
    E500 = "E500"
    """The write is refused as an internal error."""
    DONE500 = "done500"
    """The write is executed, and answered as an internal error."""
    E503 = "E503"
    """The write is refused because the service is unavailable."""
    E403 = "E403"
    """The write is forbidden."""
    OUTAGE = "outage"
    """The write, and every request after it for a while, is refused."""
    HANG = "hang"
    """The write is not executed and gets no response."""
    LATE = "late"
    """The write is executed some seconds late."""
    H = "H"
    """The write is held back until a second leader has taken over, and then executed."""
    STALE = "stale"
    """As K2, and the next process lists the state before the write; the rest comes late."""
    LEASE = "lease"
    """From the write on the Lease cannot be renewed for longer than the deadline."""
    EVENTS = "events"
    """From the write on, all Events are refused."""
    API = "apiserver"
    """The API server is killed while the write is in progress, and restarted."""
    ETCD = "etcd"
    """etcd is killed while the write is in progress, and restarted."""
    DELAY = "delay"
    """An event and all later ones arrive a second late."""
    DROP = "drop"
    """An event never arrives."""
    DUPLICATE = "duplicate"
    """An event arrives twice."""
    CUT = "cut"
    """The connection breaks before an event, and the watch is resumed."""
    GONE = "410"
    """The connection breaks before an event, a child is deleted, and resuming is refused."""
    SILENT = "silent"
    """The connection stays open, but no more events arrive."""


REQUEST_TIMEOUT: Final = 1.5
"""Request timeout of an operator in seconds, in trials in which a response never arrives."""
RENEW_SECONDS: Final = 3.5
"""Seconds without a renewal after which a leader gives up."""
FULL_WRITES: Final = (
    *(Mode.K0, Mode.K1, Mode.K2, Mode.A1, Mode.E409),
    *(Mode.K3, Mode.E429, Mode.E500, Mode.E503, Mode.E403, Mode.OUTAGE, Mode.HANG, Mode.H),
    *(Mode.STALE, Mode.LEASE, Mode.EVENTS, Mode.API, Mode.ETCD),
)
FULL_EVENTS: Final = (*(Mode.GONE, Mode.DROP, Mode.DELAY, Mode.DUPLICATE, Mode.CUT, Mode.SILENT),)

KILLS: Final = frozenset({Mode.K0, Mode.K1, Mode.K2, Mode.K3, Mode.STALE})
BY_CLASS: Final = frozenset({Mode.LEASE, Mode.EVENTS, Mode.API, Mode.ETCD})
"""Modes that are about another request than the write: once for each sort of write is enough."""
EXCLUSIVE: Final = frozenset({Mode.API, Mode.ETCD})
"""Modes that affect all concurrent trials, so that their trials run alone."""
NEEDS_SWEEP: Final = frozenset({Mode.DROP, Mode.SILENT})
"""Modes that no watch can recover from: only the comparison of the cache with a listing does."""
NEEDS_TIMEOUT: Final = frozenset({Mode.HANG, Mode.H, *EXCLUSIVE})
"""Modes in which a response never arrives; in all others operators wait for slow responses."""
NEEDS_ELECTION: Final = frozenset({Mode.H, Mode.LEASE})
ALIKE: Final = (
    (Mode.E429, Mode.E500, Mode.E503),
    (Mode.API, Mode.ETCD),
    (Mode.DELAY, Mode.DUPLICATE, Mode.CUT),
)
"""Modes that the runtime handles in the same code for every operator."""
SLOW: Final = frozenset({*NEEDS_ELECTION, Mode.HANG, Mode.SILENT, Mode.E429})
"""Modes whose trials take the longest."""


def applies(mode: Mode, trigger: Trigger, *, first: bool) -> bool:
    """Return whether a mode is worth a trial at a moment.

    Args:
        mode: Kind of fault.
        trigger: Moment of the fault.
        first: Whether it is the first write of the workload: killed before any later write is the
            same as killed after the previous one it.
    """
    if mode is Mode.NONE:
        return False  # The runs without faults are part of each sweep already.
    if mode is Mode.K0:
        return first
    if mode in FULL_EVENTS:
        return trigger.side == "event"
    return trigger.side == "write"
