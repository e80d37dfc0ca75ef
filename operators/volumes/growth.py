"""Growth of a volume: which size to ask for, and how far growing has come; pure.

What Kubernetes says about sizes, and what follows:

* A claim that is not bound cannot change at all. It is grown once it is bound.
* A bound claim may ask for more, if its class allows it.
* It may ask for less only while it asks for more than it has, and then for more than it has: this
  reverts an infeasible expansion. A request for exactly the current size, as after reverting a
  commit, is refused; the operator requests `SLACK` more then.
* The capacity in the status is raised last, after the file system. No event and no condition is
  proof, the capacity is.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from libs.common.conditions import Condition
from libs.common.quantity import render_quantity
from libs.contracts.claims import ClaimCondition, ClaimView, StorageClassView
from operators.volumes.api.v1alpha1 import ConditionType, Reason

SLACK: Final = 2**20
"""Bytes above the capacity that the smallest allowed request has; storage counts in MiB or more."""

_FAILURES: Final = ("ControllerResizeError", "NodeResizeError")
_FILE_SYSTEM: Final = ("NodeResizePending", "FileSystemResizePending")


@dataclass(frozen=True, slots=True)
class GrowthRule:
    """The decision whether a claim may grow.

    Attributes:
        allowed: Whether the API server would take a larger size.
        obstacle: Sentence that names what forbids it; empty when allowed.
    """

    allowed: bool
    obstacle: str = ""


def find_rule(claim: ClaimView, storage_class: StorageClassView | None) -> GrowthRule:
    """Find out whether the class of a claim lets it grow.

    Args:
        claim: The claim.
        storage_class: Its class; None when it has none, or one that does not exist.
    """
    if storage_class is None and claim.storage_class:
        return GrowthRule(False, f"storage class {claim.storage_class} does not exist")
    if storage_class is None:
        return GrowthRule(False, "the claim has no storage class, which is required to grow")
    if not storage_class.expandable:
        return GrowthRule(
            False, f"storage class {storage_class.name} does not set allowVolumeExpansion"
        )
    return GrowthRule(True)


def plan_request(size: Fraction, claim: ClaimView, rule: GrowthRule) -> Fraction | None:
    """Decide on the size that a claim should ask for.

    Returns:
        Bytes; None when the claim must be left as it is. Never less than the capacity.
    """
    requested, capacity = claim.requested, claim.capacity
    if requested is None or capacity is None or not claim.bound:
        return None
    if size > requested:
        return size if rule.allowed else None
    if size == requested or requested <= capacity:
        return None
    target = max(size, capacity + SLACK)
    return target if target < requested else None


def evaluate_growth(
    size: Fraction, claim: ClaimView, rule: GrowthRule, refusal: str = ""
) -> Condition:
    """State how far growing has come.

    Args:
        size: Bytes that the spec asks for.
        claim: The claim.
        rule: Whether it may grow.
        refusal: What the API server said to the last change of the size; empty for nothing.
    """
    if claim.capacity is None or claim.requested is None or not claim.bound:
        return Condition.unknown(
            ConditionType.RESIZED, Reason.NOT_BOUND, "the claim has no volume yet"
        )
    has = render_quantity(claim.capacity)
    if claim.capacity >= size:
        return Condition.true(ConditionType.RESIZED, Reason.SIZE_REACHED, f"the volume has {has}")
    wants = f"spec.size is {render_quantity(size)}, the volume has {has}"
    if claim.requested < size and not rule.allowed:
        remedy = f"until that changes, set spec.size to {has}"
        return _growing(Reason.CLASS_FORBIDS, f"{wants}, and {rule.obstacle}; {remedy}")
    if refusal:
        return _growing(Reason.RESIZE_FAILED, f"{wants}: {refusal}")
    return _evaluate_progress(claim, wants)


def _evaluate_progress(claim: ClaimView, wants: str) -> Condition:
    status = claim.resize_status
    failure = claim.condition(*_FAILURES)
    if status.endswith("Infeasible"):
        held = render_quantity(claim.capacity or 0)
        hint = f"set spec.size to {held} or to a size that the storage supports"
        return _growing(
            Reason.INFEASIBLE,
            _say(f"{wants}; the storage does not support this size; {hint}", failure),
        )
    if failure is not None:
        return _growing(Reason.RESIZE_FAILED, _say(f"{wants}; the expansion failed", failure))
    if status in _FILE_SYSTEM or claim.condition(*_FILE_SYSTEM) is not None:
        return _growing(
            Reason.FILE_SYSTEM_PENDING, f"{wants}; the file system grows when a pod mounts it"
        )
    return _growing(Reason.RESIZING, wants)


def _say(text: str, failure: ClaimCondition | None) -> str:
    return f"{text} ({failure.message})" if failure is not None and failure.message else text


def _growing(reason: Reason, message: str) -> Condition:
    return Condition.false(ConditionType.RESIZED, reason, message)
