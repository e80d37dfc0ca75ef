"""The thin edge between the pure parts of the simulator and the runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lab.kubevirt_sim.behavior import is_silent
from lab.kubevirt_sim.instance import Watch
from lab.kubevirt_sim.rollout import Strategy
from lab.kubevirt_sim.settings import LoadBalancer, Mode
from lab.kubevirt_sim.timing import StepTimers, Timing
from libs.common.kinds import Key, Kind, Manifest, key_of, uid_of
from libs.common.plan import Patch, Step
from libs.common.runtime import Context, Result

_MOST_STEPS: Final = 40
"""Steps that one reconcile may take; a state machine with more goes in circles."""


@dataclass(slots=True)
class SimulatorContext:
    """The state that all controllers of one simulator share.

    Attributes:
        timing: How long things take.
        watches: Duration of running steps.
        mode: Who runs pods and binds claims.
        image: Image of launcher pods.
        heartbeats: Whether nodes renew their Leases.
        chance: Source of jitter.
        rollout: Rollout strategy of the installation.
        load_balancer: Load balancer that is played; `Off` for none.
        placements: Node of each pod that was put on one, by UID.
        granted: UIDs of migrations that were let begin.
        rested: Versions of a pod, its node and its instance at which nothing was left to do, by the
            UID of the pod.
    """

    timing: Timing
    watches: StepTimers
    mode: Mode
    image: str
    heartbeats: bool
    chance: Callable[[], float]
    rollout: Strategy = "LiveUpdate"
    load_balancer: LoadBalancer = "Off"
    placements: dict[str, str] = field(default_factory=dict)
    granted: set[str] = field(default_factory=set)
    rested: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether the simulator runs pods and binds claims itself."""
        return self.mode == "Simulated"

    def watch(self, uid: str) -> Watch:
        """Return what says how much of a step of an object is left."""
        return lambda step, seconds: self.watches.left(uid, step, seconds)

    def silence_left(self, node: Mapping[str, Any] | None) -> float | None:
        """Return the seconds until a silent node counts as lost; None for one that is not."""
        if node is None:
            return None
        uid = uid_of(node)
        if not is_silent(node):
            self.watches.reset(uid, "silence")
            return None
        return self.watches.left(uid, "silence", self.timing.node_lost)


type Turn = Callable[[Manifest], Awaitable[TurnResult]]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of one turn: writes, or the time of the next turn."""

    steps: Sequence[Step] = ()
    wait: float | None = None
    done: bool = False


async def take_turns(ctx: Context, kind: Kind, turn: Turn) -> tuple[Result, bool]:
    """Take turns on an object until one wants no write.

    Returns:
        How the pass ends, and whether the last turn was done with the object.
    """
    for _ in range(_MOST_STEPS):
        held = ctx.get(kind, ctx.key)
        if held is None or uid_of(held) != ctx.uid:
            return Result(), True
        turned = await turn(held)
        if not turned.steps:
            return Result(requeue_after=turned.wait), turned.done
        for step in turned.steps:
            outcome = await ctx.execute([step])
            if not outcome.ok:
                return Result.from_outcome(outcome), False
    return Result(requeue_after=0.0), False


def patch_status(
    kind: Kind,
    manifest: Manifest,
    status: Mapping[str, Any],
    *others: Manifest,
    subresource: str = "status",
) -> Patch:
    """Build the step that replaces a status, guarded by the version that was looked at."""
    return Patch(
        kind,
        key_of(manifest),
        uid_of(manifest),
        [{"op": "add", "path": "/status", "value": dict(status)}, *others],
        resource_version=manifest["metadata"]["resourceVersion"],
        subresource=subresource,
    )


def sibling_key(ctx: Context, name: str) -> Key:
    """Return the key of an object in the namespace of the primary."""
    return Key(ctx.key.namespace, name)
