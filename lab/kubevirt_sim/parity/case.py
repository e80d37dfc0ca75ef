"""The registry of cases: what each one shows, and how much of a cluster it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from lab.kubevirt_sim.parity.site import Site

type Check = Callable[[Site], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One behaviour of KubeVirt or CDI.

    Attributes:
        check: Drives the Kubernetes API and asserts what a client sees.
        row: Row of the table in README.md that it belongs to.
        nodes: How many nodes that can run machines it needs.
        webhooks: Whether it needs an API server that calls webhooks, which the fake one does not.
    """

    check: Check
    row: str
    nodes: int = 1
    webhooks: bool = False


CASES: Final[dict[str, Case]] = {}
"""Cases by name; the modules that begin with `cases_` fill it."""


def case(row: str, *, nodes: int = 1, webhooks: bool = False) -> Callable[[Check], Check]:
    """Register a check as a case."""

    def register(check: Check) -> Check:
        CASES[check.__name__] = Case(check, row, nodes, webhooks)
        return check

    return register
