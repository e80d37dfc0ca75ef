"""Controller of Operation: decides, records the decision, acts, and repeats until it must wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from libs.common.actions import batches_of, refusals_of
from libs.common.client import ANY_ANSWER
from libs.common.errors import BadRequest, Conflict, Forbidden, SlipwayError, TransientError
from libs.common.kinds import LEASE, POD, Key, Manifest, is_deleting, key_of, uid_of
from libs.common.plan import Delete, Outcome
from libs.common.reading import text_at
from libs.common.runtime import Context, Controller, Result
from libs.contracts.compute import INSTANCE_UID_LABEL
from libs.contracts.kubevirt import (
    RUNNING_MACHINE_ACTIONS,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.launchers import LAUNCHER_SELECTOR, shrink_launcher
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import (
    FINAL_PHASES,
    OPERATION,
    Operation,
    OperationPhase,
    OperationReason,
)
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.instance.watches import OPERATION_INDEXES
from operators.compute.metrics import OPERATION_SECONDS, OPERATIONS
from operators.compute.naming import FINALIZER
from operators.compute.naming import OPERATIONS as NAME
from operators.compute.operation.observe import (
    count_newer,
    find_agent,
    is_behind,
    map_launcher_to_operation,
    map_lease,
    map_sibling,
    map_snapshot,
    map_target,
    observe_operation,
    observe_restorable,
    observe_saved_disks,
    seconds_left,
    shrink_lease,
)
from operators.compute.operation.observed import NextAction, Observed
from operators.compute.operation.reboots import refuse_reboot
from operators.compute.operation.reconcile import decide
from operators.compute.operation.requests import BASELINE, TAKE
from operators.compute.operation.resources import record_begin
from operators.compute.operation.status import build_operation_status
from operators.compute.settings import Settings

_TURNS: Final = 16
"""Maximum number of turns of one reconcile, which exceeds the number of steps of any Operation."""
_LOOK_SECONDS: Final = 1.0
"""Seconds until the next reconcile if the last one did not converge."""


def build_operations(settings: Settings) -> Controller:
    """Build the controller of Operation."""
    reconciler = OperationReconciler(settings)
    return (
        Controller(
            NAME,
            primary=OPERATION,
            reconcile=reconciler.reconcile,
            finalize=reconciler.finalize,
            finalizer=FINALIZER,
            needs_finalizer=_is_open,
            source="reflector",
        )
        .watches(
            OPERATION,
            map_sibling,
            indexes=OPERATION_INDEXES,
            writes=("patch", "delete"),
            why="record that Operations have begun, and delete them after their time to live",
        )
        .watches(INSTANCE, map_target)
        .watches(VIRTUAL_MACHINE_INSTANCE, _map_run, optional=True)
        .owns(
            VIRTUAL_MACHINE_INSTANCE_MIGRATION,
            optional=True,
            writes=("create", "delete"),
            why="start and cancel migrations",
        )
        .watches(
            POD,
            map_launcher_to_operation,
            transform=shrink_launcher,
            label_selector=LAUNCHER_SELECTOR,
            source="reflector",
            why="quote the scheduler if no node can run a machine that moves",
        )
        .watches(
            MACHINE_SNAPSHOT,
            map_snapshot,
            optional=True,
            writes=("create", "delete"),
            why="create and cancel snapshots",
        )
        .reads(INSTANCE_SIZE, why="read the sizes of machines")
        .watches(
            LEASE,
            map_lease,
            transform=shrink_lease,
            label_selector=INSTANCE_UID_LABEL,
            source="reflector",
            writes=("create", "delete"),
            why="lock an Instance for one Operation at a time",
        )
    )


class OperationReconciler:
    """The reconciler that carries out Operations."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings; the reconciler has no other state."""
        self._settings = settings

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile an Operation."""
        operation = Operation.parse(ctx.primary)
        if operation.finished:
            return await self._delete_expired(ctx, operation)
        return await _advance(ctx)

    async def finalize(self, ctx: Context) -> Result | None:
        """Reconcile an Operation that is being deleted; None removes the finalizer."""
        if Operation.parse(ctx.primary).finished:
            return None
        result = await _advance(ctx)
        ended = not _is_open(_held(ctx))
        return None if ended else result or Result()

    async def _delete_expired(self, ctx: Context, operation: Operation) -> Result | None:
        """Delete a finished Operation after its time to live, or beyond the history limit."""
        # Operations that ended under an earlier version of the operator have no annotation.
        await ctx.execute(*batches_of(record_begin(operation)))
        time_left = seconds_left(operation, ctx.now())
        limit = self._settings.operation_history_limit
        exceeds_limit = limit > 0 and count_newer(ctx, ctx.primary) >= limit
        if not exceeds_limit and (time_left is None or time_left > 0):
            return Result(requeue_after=time_left)
        ctx.log.info("Deleting a finished Operation", for_age=not exceeds_limit)
        outcome = await ctx.execute([Delete(OPERATION, ctx.key, ctx.uid)])
        return Result.from_outcome(outcome)


async def _advance(ctx: Context) -> Result | None:
    """Take turns until the Operation must wait for an event."""
    for _ in range(_TURNS):
        operation = Operation.parse(_held(ctx))
        observed = await _observe(ctx, operation)
        turn = decide(operation, observed, ctx.now())
        if turn.asks_guest:
            await _ask_guest(ctx, operation, turn)
            continue
        outcome = await ctx.execute(*batches_of(turn.actions))
        acted = bool(turn.actions) and outcome.ok
        if turn.changes or not acted:
            await _write(ctx, operation, turn, outcome)
        if not acted and not turn.again:
            # The next reconcile removes the finalizer of an Operation that has just ended. Our own
            # status write does not trigger it, so it is requested here.
            ended = turn.changes.get("phase") in FINAL_PHASES
            return Result.from_outcome(outcome, requeue_after=0.0 if ended else turn.look_again)
    return Result(requeue_after=_LOOK_SECONDS)


async def _ask_guest(ctx: Context, operation: Operation, turn: NextAction) -> None:
    """Record that the guest is asked to reboot, then send the request.

    The order matters: a request that was sent but not recorded would be sent again after a crash.
    Only the behaviour of the guest shows whether the request arrived; only a refusal ends the wait.
    """
    if not await ctx.apply_status(build_operation_status(operation, turn, now=ctx.now())):
        return
    uid = operation.observed.facts.vmi_uid
    key = Key(ctx.key.namespace, operation.spec.target_ref.name)
    live = await ctx.live_get(VIRTUAL_MACHINE_INSTANCE, key)
    if live is None or uid_of(live) != uid:
        return
    try:
        await ctx.client.raw(
            "PUT",
            RUNNING_MACHINE_ACTIONS.path(key.namespace, key.name, "softreboot"),
            {},
            accept=ANY_ANSWER,
        )
    except (BadRequest, Conflict, Forbidden) as err:
        refusal = refuse_reboot(err.message)
        await _write(ctx, Operation.parse(_held(ctx)), refusal, Outcome())
    except SlipwayError as err:
        ctx.log.warning("The request to reboot the guest failed", error=str(err))


async def _observe(ctx: Context, operation: Operation) -> Observed:
    """Observe the Instance.

    Before the UID of a run is recorded, read the run from the API server.
    """
    observed = observe_operation(ctx, operation)
    if await is_behind(ctx, operation, observed):
        raise TransientError(
            f"{ctx} names an object that the cache does not have yet", retry_after=_LOOK_SECONDS
        )
    target = observed.target
    if operation.observed.step == TAKE:
        saved = await observe_saved_disks(ctx, observed.snapshot)
        return replace(observed, saved=saved)
    if target is None or operation.observed.step != BASELINE:
        return observed
    observed = replace(observed, restorable=await observe_restorable(ctx, operation))
    if not ctx.is_served(VIRTUAL_MACHINE_INSTANCE):
        return observed
    live = await ctx.live_get(VIRTUAL_MACHINE_INSTANCE, target.instance.key)
    uid = "" if live is None else uid_of(live)
    ending = live is not None and is_deleting(live)
    agent = None if live is None else find_agent(live)
    run = replace(target, run_uid=uid, run_ending=ending, agent_since=agent)
    return replace(observed, target=run)


async def _write(ctx: Context, operation: Operation, turn: NextAction, outcome: Outcome) -> None:
    refusal = next(iter(refusals_of(turn.actions, outcome).values()), "")
    if operation.observed.outcome is not None:
        # The outcome is already recorded and must not be replaced by errors of the clean-up, which
        # are logged.
        refusal = ""
    status = build_operation_status(operation, turn, now=ctx.now(), refusal=refusal)
    await ctx.apply_status(status)
    _report_phase(ctx, operation, status)


def _report_phase(ctx: Context, operation: Operation, status: Manifest) -> None:
    """Record Events and metrics when a phase begins."""
    phase = status.get("phase")
    if phase == operation.observed.phase:
        return
    message = f"{operation.spec.type}: {status.get('message') or phase}"
    if phase in FINAL_PHASES:
        bad = phase == OperationPhase.FAILED
        reason = status.get("reason") or str(phase)
        ctx.event("Warning" if bad else "Normal", reason, message)
        ctx.metrics.counter(OPERATIONS).labels(str(operation.spec.type), str(phase)).inc()
        begun = operation.observed.started_at
        if begun is not None:
            seconds = (ctx.now() - begun).total_seconds()
            labels = (str(operation.spec.type), str(phase))
            ctx.metrics.histogram(OPERATION_SECONDS).labels(*labels).observe(seconds)
    elif phase == OperationPhase.ROLLING_BACK:
        ctx.event("Warning", OperationReason.ROLLING_BACK, message)
    elif phase == OperationPhase.RUNNING:
        ctx.event("Normal", OperationReason.ACCEPTED, message)


def _held(ctx: Context) -> Manifest:
    """Return the Operation from the cache, which contains the writes of the last turn."""
    held = ctx.get(OPERATION, ctx.key)
    return held if held is not None and uid_of(held) == ctx.uid else ctx.primary


def _is_open(operation: Any) -> bool:
    return text_at(operation, "status", "phase") not in FINAL_PHASES


def _map_run(run: Manifest, cache: Any) -> Any:
    """Map a run to the Operations on the Instance with the same name."""
    instance = cache.store(INSTANCE).get(key_of(run))
    if instance is not None:
        yield from map_target(instance, cache)
