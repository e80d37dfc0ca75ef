"""Trial: run an operator in this process for a check that the conformance suite does not have."""

from __future__ import annotations

from collections.abc import Iterable

from lab.fuzz.subject import FuzzSubject, run_nothing
from libs.common.testing.conformance import Subject


def list_alone(subjects: Iterable[FuzzSubject]) -> list[Subject]:
    """List the workloads of operators that reach nothing except the API server.

    Conformance suites show what the other operators do without a permission.
    """
    return [
        subject.live
        for subject in subjects
        if subject.live is not None and subject.run_external is run_nothing
    ]


def list_makers(subjects: Iterable[FuzzSubject]) -> list[Subject]:
    """List the workloads in which the operator created every child.

    Workloads that start with objects of such kinds are excluded, such as pods for jmxexporter and
    Services of users for ipam: these objects prove nothing about the operator.
    """
    return [
        subject
        for subject in list_alone(subjects)
        if not {each["kind"] for each in subject.initial_objects()}
        & {each.kind for each in subject.children}
    ]
