"""What the podset operator may do, in each namespace that it watches."""

from __future__ import annotations

from typing import Final

from libs.common.crd import kind_of
from libs.common.kinds import CONTROLLER_REVISION, POD
from libs.common.rbac import PolicyRule, children, own
from operators.podset.api import PodSet

RULES: Final[tuple[PolicyRule, ...]] = (
    *own(kind_of(PodSet), finalizer=False),
    # patch is for the owner references of pods that are adopted or released.
    *children(POD, "create", "delete", "patch", why="manage the pods of PodSets"),
    *children(
        CONTROLLER_REVISION, "create", "delete", "patch", why="store earlier templates of PodSets"
    ),
)
"""Rules beyond those of the framework."""
