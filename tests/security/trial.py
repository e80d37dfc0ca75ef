"""Trial: run an operator in this process for a check that the conformance suite does not have."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.testing.conformance import Subject
from tools.fuzz.subject import FuzzSubject, run_nothing


def list_alone(subjects: Iterable[FuzzSubject]) -> list[Subject]:
    """List the workloads of operators that reach nothing beside the API server.

    What the others do without a right is asked by their conformance suites.
    """
    return [
        subject.live
        for subject in subjects
        if subject.live is not None and subject.run_external is run_nothing
    ]


def list_makers(subjects: Iterable[FuzzSubject]) -> list[Subject]:
    """List the workloads in which every child that there is was made by the operator.

    Left out are those whose world has objects of such kinds before, as pods are to jmxexporter and
    Services of users to ipam: what is there says nothing of the operator.
    """
    return [
        subject
        for subject in list_alone(subjects)
        if not {each["kind"] for each in subject.initial_objects()}
        & {each.kind for each in subject.children}
    ]
