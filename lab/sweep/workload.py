"""Workload: the actions of users in phases, and the invariants that must always hold.

To add an operator to the sweep, add a file with its workloads to `lab/sweep/workloads`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.sweep.canaries import build_canary
from lab.sweep.components import EVERYBODY, Component
from lab.sweep.external_system import ExternalSystem
from lab.sweep.modes import Mode
from lab.sweep.ownership import belongs, short_name
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.triggers import Trigger
from libs.common.client import Client
from libs.common.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from libs.common.kinds import CRD, POD, SECRET, Key, Kind, Manifest, build_object, uid_of
from libs.common.rbac import PolicyRule
from libs.common.runtime.operator import Operator

OPERATORS: Final = tuple(
    sorted(path.stem for path in Path(__file__).with_name("workloads").glob("[a-z]*.py"))
)
"""Operators that have workloads: each is a file of `workloads`."""

AWAY: Final = (ServerError, UnknownOutcome, Unreachable)
"""Errors of a client while an API server is not available or is starting."""
_AWAY_SECONDS: Final = 60.0
_POLL: Final = 0.05
_WITH_STATUS: Final[Mapping[str, Any]] = {"status": {}}

type State = dict[str, Manifest]
"""Normalized objects by `resource name`."""
type Invariant = Callable[[Sequence[Version]], list[str]]
"""Checks a history of versions; returns one sentence for each violation."""


class User:
    """A user with all permissions in the namespace of a trial.

    Args:
        client: Connection.
        namespace: Namespace of the trial.
        outside: URL of each external system, for objects that refer to it.
    """

    def __init__(
        self, client: Client, namespace: str, outside: Mapping[str, str] | None = None
    ) -> None:
        """Store the arguments."""
        self._client = client
        self._namespace = namespace
        self.outside = dict(outside or {})

    @property
    def canary(self) -> str:
        """Text for the Secrets of a workload, which must not appear anywhere else."""
        return build_canary(self._namespace, "secret")

    async def create_secret(self, name: str, **data: str) -> None:
        """Create a Secret; use `canary` in values that the operator must not reveal."""
        await self.add(SECRET, {"metadata": {"name": name}, "stringData": data})

    async def create(self, kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
        """Create an object with a spec."""
        await self.add(kind, {"metadata": {"name": name}, "spec": dict(spec)})

    async def add(self, kind: Kind, fields: Mapping[str, Any]) -> None:
        """Create an object from a manifest."""
        manifest: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **fields}
        if kind.namespaced:
            manifest["metadata"] = {**fields["metadata"], "namespace": self._namespace}
        with contextlib.suppress(AlreadyExists):
            await _insist(lambda: self._client.create(kind, manifest))

    def scoped(self, name: str) -> str:
        """Return the name of a cluster-scoped object of this trial."""
        return f"{self._namespace}-{name}"

    @property
    def short_name(self) -> str:
        """Short name of this trial, for names with a limited length."""
        return short_name(self._namespace)

    async def list(self, kind: Kind) -> Sequence[Manifest]:
        """Return the objects of a kind."""
        namespace = self._namespace if kind.namespaced else ""
        listing = await _insist(lambda: self._client.list(kind, namespace))
        return [each for each in listing.items if belongs(each, self._namespace)]

    async def patch(
        self, kind: Kind, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> None:
        """Merge a patch into an object."""
        key = self._key(kind, name)
        await _insist(lambda: self._client.patch(kind, key, dict(patch), subresource=subresource))

    async def delete(self, kind: Kind, name: str) -> None:
        """Delete the current incarnation of an object, if it exists."""
        key = self._key(kind, name)
        with contextlib.suppress(NotFound, Conflict):
            live = await _insist(lambda: self._client.get(kind, key))
            grace = 0 if kind is POD else None
            await _insist(
                lambda: self._client.delete(kind, key, uid=uid_of(live), grace_seconds=grace)
            )

    def _key(self, kind: Kind, name: str) -> Key:
        return Key(self._namespace if kind.namespaced else "", name)


async def _insist[T](act: Callable[[], Awaitable[T]]) -> T:
    """Repeat an action while the API server is not available, as a person would."""
    async with asyncio.timeout(_AWAY_SECONDS):
        while True:
            try:
                return await act()
            except AWAY:
                await asyncio.sleep(_POLL)


type Act = Callable[[User], Awaitable[None]]


def change(kind: Kind, name: str, /, **spec: Any) -> Act:
    """Return an act that merges fields into the spec of an object."""
    return lambda user: user.patch(kind, name, {"spec": spec})


def remove(kind: Kind, name: str) -> Act:
    """Return an act that deletes an object."""
    return lambda user: user.delete(kind, name)


type Until = Callable[[NamespaceRecord], bool]
type Shown = Mapping[str, Manifest]
"""Objects of external systems by title."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a workload.

    Attributes:
        name: One word that names it.
        act: Performs the actions of the user.
        until: Returns whether the operator has finished, including its status.
        quiet: Whether it has no faults, because it only checks that the operator still reacts.
        outside: Returns whether the operator has finished, from objects of external systems.
    """

    name: str
    act: Act
    until: Until
    quiet: bool = False
    outside: Callable[[Shown], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Workload:
    """The description of a trial of an operator.

    Attributes:
        id: One word that names it.
        operator: The operator.
        rules: Permissions of its service account in addition to the rules of the framework.
        crds: CRDs to install.
        primary: Kind that users write.
        children: Kinds that the operator writes.
        phases: Phases, in order.
        invariants: Invariants that must hold at each version.
        initial_objects: Cluster-scoped objects that exist before.
        fold: Rewrites a normalized state if different final states are equally correct.
        renames: Whether the names of children may differ, so that counts and moments are by kind
            only.
        components: Other components of the cluster, which act on the children.
        unwatched: Kinds of children that the operator writes and never watches.
        outside: External systems that the operator uses.
        arguments: Flags of the operator, which enable the features that the workload tests.
        rewrite: Rewrites a title such as `pods web-0` or a line of a state if it has a part that
            differs from run to run, such as a hash of a UID.
        hand_to_foreigner: Makes an object foreign, for kinds whose ownership depends on more than
            labels and owners.
        scaled: Shorter waits of the operator in trials: seconds by name, by module.
        spares: Returns whether a fault is skipped because a different final state is correct after
            it, for example after a permanent refusal or a loss of data.
    """

    id: str
    operator: Operator
    rules: Sequence[PolicyRule]
    crds: Sequence[Manifest]
    primary: Kind
    children: tuple[Kind, ...]
    phases: tuple[Phase, ...]
    invariants: tuple[Invariant, ...] = ()
    initial_objects: tuple[tuple[Kind, Manifest], ...] = ()
    fold: Callable[[State], State] = lambda state: state
    renames: bool = False
    components: tuple[Component, ...] = EVERYBODY
    unwatched: tuple[Kind, ...] = ()
    outside: tuple[ExternalSystem, ...] = ()
    arguments: tuple[str, ...] = ()
    rewrite: Callable[[str], str] = str
    hand_to_foreigner: Callable[[Manifest], Manifest] = lambda manifest: manifest
    scaled: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    spares: Callable[[Mode, Trigger], bool] = lambda *_: False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Primary and children."""
        return (self.primary, *self.children)

    def name_in_moments(self, name: str, trial: str) -> str:
        """Return the name of an object in moments, which is the same in each run."""
        return "*" if self.renames else self.rewrite(name.replace(trial, "<namespace>"))


def build_open_crd(kind: Kind, subresources: Mapping[str, Any] = _WITH_STATUS) -> Manifest:
    """Build a CRD without a schema, for a kind of another project that is not installed."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": dict(subresources),
    }
    # The API server requires this annotation for groups of Kubernetes.
    approved = {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"}
    spec = {
        "group": kind.group,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
        "versions": [version],
    }
    return build_object(CRD, kind.resource, metadata={"annotations": approved}, spec=spec)


def is_empty(record: NamespaceRecord) -> bool:
    """Return whether no objects remain."""
    return not record.live


def load_workloads(operator_id: str) -> tuple[Workload, ...]:
    """Return the workloads of an operator.

    Raises:
        ValueError: The operator has no workloads.
    """
    if operator_id not in OPERATORS:
        raise ValueError(f"{operator_id}: no workloads; choose one of {', '.join(OPERATORS)}")
    module = importlib.import_module(f"lab.sweep.workloads.{operator_id}")
    workloads: tuple[Workload, ...] = module.WORKLOADS
    return workloads


def is_observed(primary: Manifest | None, *, ready: bool = True) -> bool:
    """Return whether the status of an object describes its current spec and reports Ready."""
    if primary is None:
        return False
    status = primary.get("status") or {}
    if status.get("observedGeneration") != primary["metadata"]["generation"]:
        return False
    return not ready or any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )
