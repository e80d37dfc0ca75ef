"""An in-memory simulation for the tests: the operator, KubeVirt, and a crash at any write.

The real controllers reconcile with a context that reads and writes a `FakeApi` directly. So a
complete Operation takes less than 0.1 s, and the tests can crash the process at each write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from libs.common.clock import Clock
from libs.common.errors import TransientError, api_error
from libs.common.kinds import SECRET, Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.metrics import Metrics
from libs.common.runtime import Context, IndexFunction
from libs.common.testing.clock import FakeClock
from libs.common.testing.direct import DirectClient, DirectContext, finish
from libs.common.testing.fakeapi import FakeApi
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.fake_cluster import build_crds, find_kubevirt, run_cluster
from operators.compute.instance.controller import InstanceReconciler
from operators.compute.instance.watches import (
    DISK_INDEXES,
    INSTANCE_INDEXES,
    MACHINE_INDEXES,
    OPERATION_INDEXES,
    POD_INDEXES,
)
from operators.compute.metrics import METRICS
from operators.compute.operation.controller import OperationReconciler
from operators.compute.settings import Settings

_INDEXES: Final[Mapping[str, IndexFunction]] = {
    **DISK_INDEXES,
    **INSTANCE_INDEXES,
    **MACHINE_INDEXES,
    **OPERATION_INDEXES,
    **POD_INDEXES,
}
_ROUNDS: Final = 200
"""Maximum number of rounds until the simulation must have converged."""


class Killed(Exception):
    """The process crashed."""


class Simulation:
    """The operator and its environment, one reconcile after the other.

    Attributes:
        api: Fake API server.
        writes: Descriptions of all writes.
        kill_at: Number of the write at which the process crashes; None for none.
        drive: Performs the actions of the rest of the cluster.
        unseen: Kind whose objects are not in the cache yet; None for none.
        current: Whether the primaries in the cache equal those of the API server.
        writable: Whether the API server accepts a status; it refuses one of an old version.
    """

    def __init__(self, drive: Callable[[FakeApi], None] = run_cluster, *, seed: int = 0) -> None:
        """Start with the CRDs only; the seed decides UIDs."""
        self.api = FakeApi(seed=seed)
        for crd in build_crds():
            self.api.register(crd)
        self.api.settings.track_managers = False
        self.clock = FakeClock()
        self.writes: list[str] = []
        self.kill_at: int | None = None
        self.lose = False
        self.drive = drive
        self.unseen: Kind | None = None
        self.current = True
        self.writable = True
        self._instances = InstanceReconciler(Settings())
        self._operations = OperationReconciler(Settings())
        self.metrics = Metrics(METRICS, process=False)

    def write(self, what: str, commit: Callable[[], Any]) -> Any:
        """Perform one write, and crash if it is the configured one.

        Raises:
            Killed: The process crashes at this write.
        """
        self.writes.append(what)
        dies = self.kill_at == len(self.writes) - 1
        if dies and not self.lose:
            raise Killed
        answer = commit()
        if dies:
            raise Killed
        return answer

    async def settle(self) -> None:
        """Run all components until none has anything to do."""
        for _ in range(_ROUNDS):
            version, died = self.api.store.version, False
            for kind in (OPERATION, INSTANCE):
                for held in self.api.objects(kind):
                    try:
                        await self._pass(kind, held)
                    except Killed:
                        # The next process knows only the state in the API server.
                        died = True
            self.drive(self.api)
            if self.api.store.version == version and not died:
                return
        raise AssertionError("the simulation does not converge")

    async def _pass(self, kind: Kind, held: Manifest) -> None:
        ctx = SimulatedContext(self, kind, held)
        context = cast(Context, ctx)
        work = self._operations if kind == OPERATION else self._instances
        if not is_deleting(held):
            with contextlib.suppress(TransientError):
                await work.reconcile(context)
        elif await work.finalize(context) is None:
            self.api.patch(kind, key_of(held), {"metadata": {"finalizers": []}})


class SimulatedContext(DirectContext):
    """The context of a reconcile of the operator."""

    def __init__(self, simulation: Simulation, kind: Kind, primary: Manifest) -> None:
        """Start a reconcile of an object."""
        super().__init__(
            simulation.api,
            kind,
            primary,
            cast(Clock, simulation.clock).now,
            lambda _, index: _INDEXES[index],
            simulation.write,
        )
        self.simulation = simulation
        self.metrics = simulation.metrics
        self.client = SimulationClient(simulation)

    def get(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object from the simulated cache, or None."""
        return None if kind == self.simulation.unseen else super().get(kind, key)

    def event(self, *_: Any, **__: Any) -> None:
        """Tell nobody."""

    def report(self, *_: Any) -> tuple[()]:
        """Tell nobody."""
        return ()

    def warn_on_new_condition(self, *_: Any) -> tuple[()]:
        """Tell nobody."""
        return ()

    async def is_current(self) -> bool:
        """Return whether a reconcile sees what exists."""
        return self.simulation.current

    async def apply_status(self, status: Mapping[str, Any]) -> bool:
        """Write the status if it has changed."""
        held, wanted = self.api.find(self.kind, self.key), _without_nothing(status)
        if (
            held is None
            or not self.simulation.writable
            or uid_of(held) != self.uid
            or _without_nothing(held.get("status")) == wanted
        ):
            return False
        change = [{"op": "add", "path": "/status", "value": wanted}]
        self.simulation.write(
            f"status {self.kind.kind}",
            lambda: self.api.patch(self.kind, self.key, change, subresource="status"),
        )
        return True


class SimulationClient:
    """A client for requests without a kind; it replaces `Client`."""

    def __init__(self, simulation: Simulation) -> None:
        """Store the simulation."""
        self._objects = DirectClient(simulation.api)
        self._simulation = simulation

    async def raw(
        self, method: str, path: str, body: Any = None, *, accept: str = "application/json"
    ) -> Manifest | None:
        """Read a Secret, or ask for a subresource of a machine, such as a reboot of its guest."""
        if method == "GET":
            return await self._objects.get(SECRET, Key(*path.split("/")[-3::2]))
        *_, namespace, plural, name, action = path.split("/")
        actions = find_kubevirt(self._simulation.api).actions
        key = Key(namespace, name)
        answer: tuple[int, Manifest | None] = self._simulation.write(
            action, lambda: finish(actions.act(method, plural, key, action, body, accept=accept))
        )
        if answer[0] >= 400:
            raise api_error(answer[0], answer[1] or {}, operation=path)
        return answer[1]


def kinds_of(writes: Iterable[str]) -> list[str]:
    """Return writes without status writes."""
    return [write for write in writes if not write.startswith("status")]


def _without_nothing(value: Any) -> Any:
    if isinstance(value, Mapping):
        cleaned = {name: _without_nothing(member) for name, member in value.items()}
        return {
            name: member for name, member in cleaned.items() if member not in ({}, [], None, "")
        }
    return value
