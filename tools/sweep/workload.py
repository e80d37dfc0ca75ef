"""Workload: what users do to an operator, step by step, and what must hold all the while.

Adding an operator to the sweep takes one file in `tools/sweep/workloads` with its workloads, each
of them phases and invariants.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.common.client import Client
from libs.common.errors import AlreadyExists, Conflict, NotFound
from libs.common.kinds import POD, Key, Kind, Manifest, uid_of
from libs.common.rbac import PolicyRule
from libs.common.runtime.operator import Operator
from tools.sweep.recorder import Book, Version

OPERATORS: Final = ("podset", "volumes")
"""Operators that have workloads."""

type State = dict[str, Manifest]
"""Normalized objects by `resource name`."""
type Invariant = Callable[[Sequence[Version]], list[str]]
"""Check a history of versions; returns one sentence for each offense."""


class User:
    """Act as a person with all rights in the namespace of a trial.

    Args:
        client: Connection.
        namespace: Namespace of the trial.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        """Keep both."""
        self._client = client
        self._namespace = namespace

    async def create(self, kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
        """Create an object."""
        manifest: Manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": dict(spec),
        }
        with contextlib.suppress(AlreadyExists):
            await self._client.create(kind, manifest)

    async def patch(self, kind: Kind, name: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch into an object."""
        await self._client.patch(kind, Key(self._namespace, name), dict(patch))

    async def delete(self, kind: Kind, name: str) -> None:
        """Delete an object as it is now; it is no matter if it is gone already."""
        key = Key(self._namespace, name)
        with contextlib.suppress(NotFound, Conflict):
            live = await self._client.get(kind, key)
            grace = 0 if kind is POD else None
            await self._client.delete(kind, key, uid=uid_of(live), grace_seconds=grace)


type Act = Callable[[User], Awaitable[None]]
type Until = Callable[[Book], bool]


@dataclass(frozen=True, slots=True)
class Phase:
    """Hold one step of a workload.

    Attributes:
        name: Its one word.
        act: What the user does.
        until: Tells whether the operator has done what was asked; it must have said so too.
        quiet: Whether faults stay out of it: it only shows that the operator still reacts.
    """

    name: str
    act: Act
    until: Until
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Say what is tried with an operator.

    Attributes:
        id: Its one word.
        operator: The operator.
        rules: Rights of its service account beside those of the framework.
        crds: CRDs to install.
        primary: Kind that users write.
        children: Kinds that the operator writes.
        phases: What happens, in order.
        invariants: What holds at each version.
        world: Cluster-scoped objects that are there before.
        fold: Rewrites a normalized state where different ends are equally right.
        renames: Whether which names children have may differ, so that counts are by kind only.
    """

    id: str
    operator: Operator
    rules: Sequence[PolicyRule]
    crds: Sequence[Manifest]
    primary: Kind
    children: tuple[Kind, ...]
    phases: tuple[Phase, ...]
    invariants: tuple[Invariant, ...] = ()
    world: tuple[tuple[Kind, Manifest], ...] = ()
    fold: Callable[[State], State] = lambda state: state
    renames: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Primary and children."""
        return (self.primary, *self.children)


def load_workloads(operator_id: str) -> tuple[Workload, ...]:
    """Return the workloads of an operator.

    Raises:
        ValueError: It has none.
    """
    if operator_id not in OPERATORS:
        raise ValueError(f"{operator_id}: no workloads; choose one of {', '.join(OPERATORS)}")
    module = importlib.import_module(f"tools.sweep.workloads.{operator_id}")
    workloads: tuple[Workload, ...] = module.WORKLOADS
    return workloads


def is_observed(primary: Manifest | None, *, ready: bool = True) -> bool:
    """Tell whether the status of an object is about its newest spec, and says that it is Ready."""
    if primary is None:
        return False
    status = primary.get("status") or {}
    if status.get("observedGeneration") != primary["metadata"]["generation"]:
        return False
    return not ready or any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )
