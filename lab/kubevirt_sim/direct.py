"""`DirectKubeVirt`: the controllers of the simulator on a fake API server, within a function call.

Crash tests run a machine hundreds of times. They need no HTTP, caches and delays, but the rules of
KubeVirt. Here the controllers of `KubeVirtSim` work on the objects of a `FakeApi` directly, one
after the other, so that there is one model of KubeVirt and CDI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from lab.kubevirt_sim.attach import attach
from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.edge import SimulatorContext
from lab.kubevirt_sim.nodes import build_node
from lab.kubevirt_sim.settings import DEFAULT_IMAGE
from lab.kubevirt_sim.simulator import build_controllers
from lab.kubevirt_sim.storage import build_class
from lab.kubevirt_sim.timing import INSTANT, StepTimers, Timing
from libs.common.client import Client
from libs.common.kinds import Kind, Manifest, is_deleting, key_of
from libs.common.runtime import Context, Controller, IndexFunction, Result
from libs.common.testing.clock import FakeClock
from libs.common.testing.direct import DirectClient, DirectContext, finish, list_shared
from libs.common.testing.fakeapi import FakeApi

SECOND: Final = 1.0
"""Seconds that pass with each run."""
_ROUNDS: Final = 100
"""Maximum number of rounds of a run; controllers that need more go in circles."""


class DirectKubeVirt:
    """A KubeVirt and CDI that do what is due whenever `run` is called.

    Args:
        api: API server, with the CRDs of the simulator.
        timing: How long things take. Each run takes a second.
        nodes: Number of nodes.

    Attributes:
        clock: Time of the simulator.
        client: Connection of the subresources.
        actions: The subresources of machines and instances.
    """

    def __init__(self, api: FakeApi, timing: Timing = INSTANT, nodes: int = 2) -> None:
        """Add the nodes, the storage class and the admission webhooks."""
        self.clock = FakeClock()
        self._api = api
        self._controllers = build_controllers(
            SimulatorContext(
                timing=timing,
                watches=StepTimers(self.clock),
                mode="Simulated",
                image=DEFAULT_IMAGE,
                heartbeats=False,
                chance=lambda: 0.0,
            )
        )
        self._indexes = {
            (watch.kind, name): function
            for controller in self._controllers
            for watch in controller.watched
            for name, function in watch.indexes.items()
        }
        self._seen: dict[str, int] = {}
        self._due: set[str] = set()
        self._changed: dict[tuple[str, str], int] = {}
        api.store.listeners.append(self._notice)
        for number in range(1, nodes + 1):
            api.create(build_node(number))
        api.create(build_class(default=True))
        self.client = cast(Client, DirectClient(api))
        self.actions = attach(self, api)

    def run(self) -> None:
        """Let a second pass and do everything that is due.

        Raises:
            AssertionError: There is no end to it.
        """
        self.clock.advance(SECOND)
        tracked, self._api.settings.track_managers = self._api.settings.track_managers, False
        try:
            self._converge()
        finally:
            self._api.settings.track_managers = tracked

    def _converge(self) -> None:
        waiting, self._due = self._due, set()
        for _ in range(_ROUNDS):
            version = self._api.store.version
            for controller in self._controllers:
                if controller.name in waiting or self._is_affected(controller):
                    self._seen[controller.name] = self._api.store.version
                    self._reconcile(controller)
            waiting = set()
            self._api.collector.run()
            if self._api.store.version == version:
                return
        raise AssertionError("The simulator does not converge")

    def _notice(self, change: Any) -> None:
        self._changed[change.table] = change.version

    def _is_affected(self, controller: Controller) -> bool:
        """Return whether something that a controller watches has changed since its last turn."""
        kinds = (controller.primary, *(watch.kind for watch in controller.watched))
        seen = self._seen.get(controller.name, -1)
        return any(self._changed.get((kind.group, kind.plural), 0) > seen for kind in kinds)

    def _reconcile(self, controller: Controller) -> None:
        for manifest in list_shared(self._api, controller.primary):
            result = self._reconcile_one(controller, manifest)
            if result is None:
                continue
            if result.error is not None:
                raise result.error
            if result.requeue_after is not None:
                self._due.add(controller.name)

    def _reconcile_one(self, controller: Controller, manifest: Manifest) -> Result | None:
        kind, finalizer = controller.primary, controller.finalizer
        held = list(manifest["metadata"].get("finalizers") or ())
        if not is_deleting(manifest):
            if finalizer and finalizer not in held:
                manifest = self._set_finalizers(kind, manifest, [*held, finalizer])
            return finish(controller.reconcile(self._build_context(kind, manifest)))
        if controller.finalize is None or finalizer not in held:
            return None
        result = finish(controller.finalize(self._build_context(kind, manifest)))
        if result is None:
            self._set_finalizers(kind, manifest, [name for name in held if name != finalizer])
        return result

    def _build_context(self, kind: Kind, manifest: Manifest) -> Context:
        context = DirectContext(self._api, kind, manifest, self.clock.now, self._find_index)
        return cast(Context, context)

    def _find_index(self, kind: Kind, name: str) -> IndexFunction:
        return self._indexes[kind, name]

    def _set_finalizers(self, kind: Kind, manifest: Manifest, names: list[str]) -> Manifest:
        change = {"metadata": {"finalizers": names}}
        return self._api.patch(kind, key_of(manifest), change)


def annotate_new(
    api: FakeApi, kind: Kind, note: str, value: str, chosen: Callable[[Manifest], bool] = bool
) -> None:
    """Give each object of a kind that is created from now on an order for the simulator."""

    def mark(change: Any) -> None:
        obj = change.record.obj
        if change.table == (kind.group, kind.plural) and chosen(obj):
            notes = obj["metadata"].get("annotations") or {}
            obj["metadata"]["annotations"] = {PREFIX + note: value, **notes}

    api.store.listeners.insert(0, mark)
