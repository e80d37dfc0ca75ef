"""Volume expansion: the size to request, and the progress of the expansion. Pure.

Kubernetes restricts the requested size of a claim as follows:

* A claim that is not bound is immutable. The operator expands it after it is bound.
* A bound claim can request a larger size if its StorageClass allows volume expansion.
* A bound claim can request a smaller size only while the request exceeds the capacity, and the new
  request must still exceed the capacity. This reverts an infeasible expansion. If spec.size is
  reverted to exactly the capacity, the API server would refuse that request; so the operator
  requests `SLACK` more.
* The capacity in the status is updated last, after the file system has grown. So only the capacity
  proves that an expansion is complete; conditions and Events do not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from libs.common.conditions import Condition
from libs.common.quantity import parse_quantity, render_quantity
from libs.contracts.claims import ClaimCondition, ClaimView, StorageClassView
from operators.volumes.api.v1alpha1 import ConditionType, Reason
from operators.volumes.naming import ADOPTED_BY, REQUESTED

SLACK: Final = 2**20
"""Bytes that a request must exceed the capacity by. Storage that allocates in larger units, such as
whole GiB, grows the volume by one unit."""

_FAILURES: Final = ("ControllerResizeError", "NodeResizeError")
_FILE_SYSTEM: Final = ("NodeResizePending", "FileSystemResizePending")


@dataclass(frozen=True, slots=True)
class GrowthRule:
    """The decision whether a claim may grow.

    Attributes:
        allowed: Whether the API server accepts a larger request.
        obstacle: Why it does not, as a clause of a message; empty if it does.
    """

    allowed: bool
    obstacle: str = ""


def find_rule(claim: ClaimView, storage_class: StorageClassView | None) -> GrowthRule:
    """Return whether the StorageClass of a claim allows volume expansion.

    Args:
        claim: The claim.
        storage_class: Its StorageClass; None if the claim has none or the class does not exist.
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
    """Return the size that a claim should request.

    Only a request of the operator itself is reduced. A claim that somebody else grew, such as an
    autoresizer or an administrator, keeps its size: spec.size is a minimum.

    Returns:
        The size in bytes, which is never less than the capacity; None to keep the current request.
    """
    requested, capacity = claim.requested, claim.capacity
    if requested is None or capacity is None or not claim.bound:
        return None
    if size > requested:
        return size if rule.allowed else None
    if size == requested or requested <= capacity or requested != _read_record(claim):
        return None
    target = max(size, capacity + SLACK)
    return target if target < requested else None


def must_recreate(size: str, claim: ClaimView, users: Collection[object]) -> bool:
    """Return whether a claim must be recreated, because it can neither grow nor shrink.

    Kubernetes allows no change of a claim that is not bound. Such a claim contains no data.

    Args:
        size: Size in the spec, as the operator would request it.
        claim: A claim of the DemoVolume.
        users: Pods that use it.
    """
    if claim.phase != "Pending" or claim.volume_name or users or ADOPTED_BY in claim.annotations:
        return False
    # Compare with what the operator requested: admission may have changed the request, and would
    # change that of the next claim.
    requested = claim.annotations.get(REQUESTED, claim.requested_text)
    return parse_quantity(size) != _parse(requested)


def _read_record(claim: ClaimView) -> Fraction | None:
    return _parse(claim.annotations.get(REQUESTED, ""))


def _parse(text: str) -> Fraction | None:
    try:
        return parse_quantity(text)
    except ValueError:
        return None


def evaluate_growth(
    size: Fraction, claim: ClaimView, rule: GrowthRule, refusal: str = ""
) -> Condition:
    """Build the condition Resized.

    Args:
        size: Size in the spec, in bytes.
        claim: The claim.
        rule: Whether the claim may grow.
        refusal: Error message of the API server for the last change of the size; empty for none.
    """
    if claim.capacity is None or claim.requested is None or not claim.bound:
        if claim.requested is not None and claim.requested < size and not rule.allowed:
            wants = f"spec.size is {render_quantity(size)}, the claim asks for"
            message = f"{wants} {claim.requested_text}, and {rule.obstacle}"
            return _growing(Reason.CLASS_FORBIDS, message)
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
