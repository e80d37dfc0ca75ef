"""Growth: what is asked for, what is never asked for, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.quantity import parse_quantity, render_quantity
from libs.contracts.claims import ClaimView
from operators.volumes.api.parts import parse_size
from operators.volumes.api.v1alpha1 import Reason
from operators.volumes.growth import (
    SLACK,
    GrowthRule,
    evaluate_growth,
    find_rule,
    must_recreate,
    plan_request,
)
from operators.volumes.naming import ADOPTED_BY, REQUESTED
from operators.volumes.samples import EXPANDABLE, RIGID, build_bound_claim, parse_volume

MAY = GrowthRule(True)
sizes = st.integers(1, 4096).map(lambda mebibytes: Fraction(mebibytes * 2**20))


def view(requested: str = "10Gi", capacity: str = "10Gi", **status: Any) -> ClaimView:
    return ClaimView.parse(
        build_bound_claim(parse_volume(), requested=requested, capacity=capacity, **status)
    )


def plan(size: str | int, claim: ClaimView, rule: GrowthRule = MAY) -> str | None:
    planned = plan_request(parse_size(size), claim, rule)
    return None if planned is None else render_quantity(planned)


@pytest.mark.parametrize(
    ("size", "requested", "capacity", "asked"),
    [
        pytest.param(10, "10Gi", "10Gi", None, id="as it is"),
        pytest.param("10240Mi", "10Gi", "10Gi", None, id="the same in another unit"),
        pytest.param(20, "10Gi", "10Gi", "20Gi", id="growth"),
        pytest.param("15675Mi", "15675Mi", "16Gi", None, id="the driver rounded up"),
        pytest.param("15700Mi", "15675Mi", "16Gi", "15700Mi", id="growth below what there is"),
        pytest.param("15675Mi", "15700Mi", "16Gi", None, id="reduction below what there is"),
        pytest.param(20, "1000Ti", "10Gi", "20Gi", id="infeasible growth reduced"),
        pytest.param(10, "1000Ti", "10Gi", "10241Mi", id="infeasible growth reverted"),
        pytest.param(10, "10241Mi", "10Gi", None, id="reverted as far as it goes"),
        pytest.param(10, "10241Mi", "11Gi", None, id="reverted and rounded up"),
        pytest.param(10, "20Gi", "20Gi", None, id="grown by hand"),
    ],
)
def test_request_follows_the_size_as_far_as_kubernetes_lets_it(
    size: str | int, requested: str, capacity: str, asked: str | None
) -> None:
    assert plan(size, view(requested, capacity)) == asked


@pytest.mark.parametrize(
    ("size", "recorded", "requested", "asked"),
    [
        pytest.param(10, "10Gi", "15Gi", None, id="an autoresizer grows the claim"),
        pytest.param(12, "10Gi", "15Gi", None, id="spec.size follows as far as it goes"),
        pytest.param(20, "10Gi", "15Gi", "20Gi", id="spec.size overtakes"),
        pytest.param(10, "", "15Gi", None, id="who asked is not known"),
        pytest.param(10, "a lot", "15Gi", None, id="the record is unreadable"),
        pytest.param(10, "15Gi", "15360Mi", "10241Mi", id="our own request in another unit"),
    ],
)
def test_claim_that_somebody_else_grows_keeps_its_size(
    size: int, recorded: str, requested: str, asked: str | None
) -> None:
    # clickhouse-operator#1454, VictoriaMetrics/operator#1747, pvc-autoresizer#346.
    claim = view(requested, "10Gi")
    annotations = {**claim.annotations, REQUESTED: recorded}

    assert plan(size, replace(claim, annotations=annotations)) == asked


@pytest.mark.parametrize(
    ("size", "requested", "recorded", "replaced"),
    [
        pytest.param("20Gi", "10Gi", "10Gi", True, id="grown"),
        pytest.param("5Gi", "10Gi", "10Gi", True, id="shrunk"),
        pytest.param("10240Mi", "10Gi", "10Gi", False, id="the same in another unit"),
        pytest.param("15675Mi", "16Gi", "15675Mi", False, id="admission rounds up"),
        pytest.param("9Ei", "8Ei", "9Ei", False, id="more than Kubernetes knows"),
    ],
)
def test_claim_without_a_volume_is_replaced_by_one_of_the_right_size(
    size: str, requested: str, recorded: str, replaced: bool
) -> None:
    claim = ClaimView.parse(
        build_bound_claim(parse_volume(), requested=requested, recorded=recorded)
        | {"status": {"phase": "Pending"}}
    )
    unbound = replace(claim, volume_name="")

    assert must_recreate(size, unbound, ()) == replaced
    assert not must_recreate(size, claim, ()), "a volume is chosen"
    assert not must_recreate(size, unbound, ("web-0",))
    assert not must_recreate(size, replace(unbound, phase="Bound"), ())
    adopted = {**unbound.annotations, ADOPTED_BY: "uid"}
    assert not must_recreate(size, replace(unbound, annotations=adopted), ())


def test_request_is_left_alone_before_binding() -> None:
    claim = ClaimView.parse(build_bound_claim(parse_volume()) | {"status": {"phase": "Pending"}})

    assert plan(20, claim) is None
    assert plan(5, claim) is None


def test_request_is_not_raised_where_the_class_forbids_it() -> None:
    assert plan(20, view(), find_rule(view(), RIGID)) is None
    assert plan(20, view(), find_rule(view(), None)) is None
    assert plan(20, view(), find_rule(view(), EXPANDABLE)) == "20Gi"


def test_infeasible_growth_can_be_taken_back_whatever_the_class_says() -> None:
    assert plan(20, view("1000Ti"), find_rule(view(), RIGID)) == "20Gi"


@given(size=sizes, requested=sizes, capacity=sizes)
def test_request_is_never_one_that_the_api_server_refuses(
    size: Fraction, requested: Fraction, capacity: Fraction
) -> None:
    """Kubernetes takes a larger request, or a smaller one that is still above the capacity."""
    claim = view(render_quantity(requested), render_quantity(capacity))

    planned = plan_request(size, claim, MAY)

    if planned is not None:
        assert planned > requested or planned > capacity
        assert planned != requested


@given(size=sizes, requested=sizes, capacity=sizes)
def test_request_reaches_a_fixed_point_in_one_step(
    size: Fraction, requested: Fraction, capacity: Fraction
) -> None:
    planned = plan_request(size, view(render_quantity(requested), render_quantity(capacity)), MAY)
    after = view(render_quantity(planned or requested), render_quantity(capacity))

    assert plan_request(size, after, MAY) is None


@given(size=sizes, requested=sizes, capacity=sizes)
def test_request_covers_the_size_once_it_may(
    size: Fraction, requested: Fraction, capacity: Fraction
) -> None:
    planned = plan_request(size, view(render_quantity(requested), render_quantity(capacity)), MAY)

    assert (planned or requested) >= size
    if planned is not None and planned < requested:
        assert planned <= max(size, capacity + SLACK)


@pytest.mark.parametrize(
    ("claim", "status", "reason", "words"),
    [
        pytest.param(view("20Gi", "20Gi"), "True", Reason.SIZE_REACHED, "has 20Gi", id="reached"),
        pytest.param(view("20Gi", "32Gi"), "True", Reason.SIZE_REACHED, "has 32Gi", id="more"),
        pytest.param(view("20Gi"), "False", Reason.RESIZING, "20Gi", id="asked for"),
        pytest.param(
            view("20Gi", allocatedResourceStatuses={"storage": "ControllerResizeInProgress"}),
            *("False", Reason.RESIZING, "has 10Gi"),
            id="controller at it",
        ),
        pytest.param(
            view("20Gi", allocatedResourceStatuses={"storage": "NodeResizePending"}),
            *("False", Reason.FILE_SYSTEM_PENDING, "when a pod mounts it"),
            id="node pending",
        ),
        pytest.param(
            view("20Gi", conditions=[{"type": "FileSystemResizePending", "status": "True"}]),
            *("False", Reason.FILE_SYSTEM_PENDING, "when a pod mounts it"),
            id="file system pending as old drivers say it",
        ),
        pytest.param(
            view("20Gi", allocatedResourceStatuses={"storage": "NodeResizeInProgress"}),
            *("False", Reason.RESIZING, "has 10Gi"),
            id="node at it",
        ),
        pytest.param(
            view("20Gi", allocatedResourceStatuses={"storage": "ControllerResizeInfeasible"}),
            *("False", Reason.INFEASIBLE, "set spec.size to 10Gi"),
            id="infeasible",
        ),
        pytest.param(
            view(
                "20Gi",
                conditions=[
                    {"type": "ControllerResizeError", "status": "True", "message": "no space"}
                ],
            ),
            *("False", Reason.RESIZE_FAILED, "no space"),
            id="failing",
        ),
        pytest.param(
            view("20Gi", conditions=[{"type": "ControllerResizeError", "status": "False"}]),
            *("False", Reason.RESIZING, ""),
            id="no longer failing",
        ),
    ],
)
def test_growth_is_told_from_the_capacity_and_not_from_events(
    claim: ClaimView, status: str, reason: Reason, words: str
) -> None:
    """A success event without capacity is no success; conditions and allocations tell the way."""
    condition = evaluate_growth(parse_quantity("20Gi"), claim, MAY)

    assert (condition.status, condition.reason) == (status, reason)
    assert words in condition.message


@pytest.mark.parametrize(
    ("storage_class", "words"),
    [(RIGID, "rigid does not set allowVolumeExpansion"), (None, "standard does not exist")],
)
def test_class_that_forbids_growth_is_named_at_once(storage_class: Any, words: str) -> None:
    rule = find_rule(view(), storage_class)

    condition = evaluate_growth(parse_quantity("20Gi"), view(), rule)

    assert condition.reason == Reason.CLASS_FORBIDS
    assert words in condition.message
    assert "set spec.size to 10Gi" in condition.message


def test_class_does_not_matter_while_nothing_has_to_grow() -> None:
    condition = evaluate_growth(parse_quantity("10Gi"), view(), find_rule(view(), RIGID))

    assert condition.status == "True"


def test_refusal_of_the_api_server_is_shown() -> None:
    condition = evaluate_growth(parse_quantity("20Gi"), view(), MAY, "exceeded quota: storage")

    assert condition.reason == Reason.RESIZE_FAILED
    assert "exceeded quota: storage" in condition.message
