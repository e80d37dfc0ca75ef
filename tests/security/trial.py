"""Trial: run an operator in this process for a check that the conformance suite does not have."""

from __future__ import annotations

from libs.common.testing.conformance import OperatorConformance, Subject


def build_trial(subject: Subject) -> OperatorConformance:
    """Build what knows how to run an operator through its workload."""
    trial = OperatorConformance()
    trial.__class__ = type("Trial", (OperatorConformance,), {"subject": subject})
    return trial
