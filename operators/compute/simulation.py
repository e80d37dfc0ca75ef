"""An in-memory simulation for the tests: the operator, KubeVirt, and a crash at any write.

The real controllers reconcile with a context that reads and writes a `FakeApi` directly. So a
complete Operation takes less than 0.1 s, and the tests can crash the process at each write.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

import structlog

from libs.common.clock import Clock
from libs.common.errors import ApiError, TransientError
from libs.common.kinds import SECRET, Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.metrics import Metrics
from libs.common.ownership import controller_uid
from libs.common.plan import Apply, Create, Delete, Outcome, Patch, Step, StepFailure
from libs.common.runtime import Context, IndexFunction
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.patches import PatchError, apply_json_patch
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.fake_kubevirt import build_crds, reboot_guest, run_kubevirt
from operators.compute.instance.controller import InstanceReconciler
from operators.compute.instance.watches import DISK_INDEXES, OPERATION_INDEXES, POD_INDEXES
from operators.compute.metrics import METRICS
from operators.compute.operation.controller import OperationReconciler
from operators.compute.settings import Settings

_INDEXES: Final[Mapping[str, IndexFunction]] = {**DISK_INDEXES, **OPERATION_INDEXES, **POD_INDEXES}
_ROUNDS: Final = 200
"""Maximum number of rounds until the simulation must have converged."""


class Killed(Exception):
    """The process crashed."""


class Simulation:
    """The operator and its environment, one reconcile after the other.

    Attributes:
        api: Fake API server.
        clock: Clock.
        writes: Descriptions of all writes.
        kill_at: Number of the write at which the process crashes; None for none.
        lose: Whether that write still arrives.
        drive: Performs the actions of the rest of the cluster.
        unseen: Kind whose objects are not in the cache yet; None for none.
        current: Whether the primaries in the cache equal those of the API server.
        writable: Whether the API server accepts a status; it refuses one of an old version.
    """

    def __init__(self, drive: Callable[[FakeApi], None] = run_kubevirt) -> None:
        """Start with the CRDs only."""
        self.api = FakeApi()
        for crd in build_crds():
            self.api.register(crd)
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


class SimulatedContext:
    """A replacement of `Context` that reads and writes the objects directly."""

    def __init__(self, simulation: Simulation, kind: Kind, primary: Manifest) -> None:
        """Start a reconcile of an object."""
        self.simulation = simulation
        self.kind = kind
        self.primary = primary
        self.key = key_of(primary)
        self.uid = uid_of(primary)
        self.generation = int(primary["metadata"].get("generation") or 0)
        self.log = structlog.get_logger("simulation")
        self.metrics = simulation.metrics
        self.client = SimulationClient(simulation)

    def now(self) -> datetime:
        """Return the time."""
        return cast(Clock, self.simulation.clock).now()

    def get(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object from the simulated cache, or None."""
        return None if kind == self.simulation.unseen else self.simulation.api.find(kind, key)

    async def live_get(self, kind: Kind, key: Key) -> Manifest | None:
        """Return an object, or None."""
        return self.simulation.api.find(kind, key)

    def indexed(self, kind: Kind, index: str, value: str) -> list[Manifest]:
        """Return the objects of an index with a value."""
        function = _INDEXES[index]
        return [held for held in self.simulation.api.objects(kind) if value in function(held)]

    def is_served(self, kind: Kind) -> bool:
        """Return True: all kinds are served."""
        return True

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
        held = self.simulation.api.find(self.kind, self.key)
        wanted = _without_nothing(status)
        if (
            held is None
            or not self.simulation.writable
            or uid_of(held) != self.uid
            or _without_nothing(held.get("status")) == wanted
        ):
            return False
        gone = {name: None for name in held.get("status") or {} if name not in wanted}
        api, patch = self.simulation.api, {**gone, **wanted}
        self.simulation.write(
            f"status {self.kind.kind}", lambda: api.patch_status(self.kind, self.key, patch)
        )
        return True

    async def execute(self, *batches: Sequence[Step]) -> Outcome:
        """Execute steps as the writer of the runtime does."""
        done: list[Step] = []
        for step in (step for batch in batches for step in batch):
            try:
                self._take(step)
            except (ApiError, PatchError) as err:
                return Outcome(tuple(done), (StepFailure(step, err),))
            done.append(step)
        return Outcome(tuple(done))

    def _take(self, step: Step) -> None:
        api = self.simulation.api
        match step:
            case Create():
                held = api.find(step.kind, step.key)
                if held is None:
                    manifest = copy.deepcopy(step.manifest)
                    self.simulation.write(str(step), lambda: api.create(manifest))
                elif not (step.ours(held) if step.ours else controller_uid(held) == self.uid):
                    raise PatchError(f"{step.key} belongs to another owner")
            case Apply():
                self._apply(step)
            case Delete():
                held = api.find(step.kind, step.key)
                if held is not None and uid_of(held) == step.uid and not is_deleting(held):
                    self.simulation.write(str(step), lambda: api.delete(step.kind, step.key))
            case Patch():
                held = api.get(step.kind, step.key)
                version = step.resource_version
                if uid_of(held) != step.uid or version not in ("", _version(held)):
                    raise PatchError("conflict")
                patched = apply_json_patch(held, step.operations)
                self.simulation.write(str(step), lambda: _replace(api, step.kind, held, patched))

    def _apply(self, step: Apply) -> None:
        api, manifest = self.simulation.api, copy.deepcopy(step.manifest)
        held = api.find(step.kind, step.key)
        if held is None:
            self.simulation.write(str(step), lambda: api.create(manifest))
        elif step.kind != SECRET and held["spec"] != manifest["spec"]:
            patched = {**held, "spec": manifest["spec"]}
            self.simulation.write(str(step), lambda: _replace(api, step.kind, held, patched))


class SimulationClient:
    """A client for requests without a kind; it replaces `Client`."""

    def __init__(self, simulation: Simulation) -> None:
        """Store the simulation."""
        self._simulation = simulation

    async def raw(
        self, method: str, path: str, body: object = None, *, accept: str = "application/json"
    ) -> Manifest:
        """Ask a guest to reboot, the only action that Operations request by path.

        virt-api refuses requests that accept only JSON, because the response has no body.
        """
        if "*/*" not in accept:
            raise ApiError(406, "NotAcceptable", "406: Not Acceptable")
        *_, namespace, _plural, name, action = path.split("/")
        assert (method, action) == ("PUT", "softreboot")
        api = self._simulation.api
        self._simulation.write("softreboot", lambda: reboot_guest(api, Key(namespace, name)))
        return {}


def kinds_of(writes: Iterable[str]) -> list[str]:
    """Return writes without status writes."""
    return [write for write in writes if not write.startswith("status")]


def _replace(api: FakeApi, kind: Kind, held: Manifest, wanted: Manifest) -> None:
    api.patch(kind, key_of(held), _difference(held, wanted))


def _difference(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> Manifest:
    """Build the merge patch that turns one object into another."""
    patch: Manifest = {name: None for name in held if name not in wanted}
    for name, value in wanted.items():
        before = held.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = _difference(before, value)
            if inner:
                patch[name] = inner
        elif value != before:
            patch[name] = value
    return patch


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])


def _without_nothing(value: Any) -> Any:
    if isinstance(value, Mapping):
        cleaned = {name: _without_nothing(member) for name, member in value.items()}
        return {
            name: member for name, member in cleaned.items() if member not in ({}, [], None, "")
        }
    return value
