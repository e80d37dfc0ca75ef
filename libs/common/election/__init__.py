"""Leader election by a Lease: one replica is active, the others stand by with warm caches."""

from libs.common.election.core import LeaseCore, Timing, Verdict, decide
from libs.common.election.elector import LeaseElector
from libs.common.election.lease import LeaseRecord
from libs.common.election.seams import Elector, SoleLeader, build_identity

__all__ = [
    "Elector",
    "LeaseCore",
    "LeaseElector",
    "LeaseRecord",
    "SoleLeader",
    "Timing",
    "Verdict",
    "build_identity",
    "decide",
]
