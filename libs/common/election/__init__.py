"""Leader election by a Lease: one replica is active, the others stand by with warm caches."""

from libs.common.election.core import LeaseCore, LeaseState, Timing, decide
from libs.common.election.elector import LeaseElector
from libs.common.election.interfaces import Elector, SoleLeader, build_identity
from libs.common.election.lease import LeaseRecord

__all__ = [
    "Elector",
    "LeaseCore",
    "LeaseElector",
    "LeaseRecord",
    "LeaseState",
    "SoleLeader",
    "Timing",
    "build_identity",
    "decide",
]
