"""Controller of DemoVolume: watches and the reconcile.

A reconcile observes the claim and its environment, plans, executes, and reports the status.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from libs.common.actions import Action, batches_of, refusals_of
from libs.common.conditions import conditions_of
from libs.common.kinds import POD, PVC, STORAGE_CLASS, Key, Manifest, uid_of
from libs.common.plan import Outcome
from libs.common.rbac import grant
from libs.common.runtime import Context, Controller, Operator, Result
from libs.contracts.claims import shrink_pod
from libs.contracts.snapshots import VOLUME_SNAPSHOT, VolumeSnapshotView
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, ConditionType, DemoVolume
from operators.volumes.metrics import ACTIONS, METRICS
from operators.volumes.naming import FINALIZER, KEPT_FOR, OPERATOR_ID
from operators.volumes.observe import (
    POD_INDEXES,
    VOLUME_INDEXES,
    map_claim,
    map_class,
    map_pod,
    map_snapshot,
    map_volume,
    observe,
    observe_claim,
)
from operators.volumes.observed import Observed
from operators.volumes.reconcile import plan_finalize, plan_volume
from operators.volumes.settings import Settings
from operators.volumes.status import PROBLEMS, build_final_status, build_status

_STALE_SECONDS: Final = 1.0
"""Seconds until the retry of a DemoVolume whose cached version is outdated."""


def build_controller(settings: Settings) -> Controller:
    """Build the controller of DemoVolume."""
    reconciler = Reconciler(settings)
    return (
        Controller(
            OPERATOR_ID,
            primary=DEMO_VOLUME,
            reconcile=reconciler.reconcile,
            finalize=reconciler.finalize,
            finalizer=FINALIZER,
        )
        .watches(DEMO_VOLUME, map_volume, indexes=VOLUME_INDEXES)
        .watches(
            PVC,
            map_claim,
            source="reflector",
            writes=("create", "patch", "delete"),
            why="manage the claims of DemoVolumes",
        )
        .watches(
            VOLUME_SNAPSHOT,
            map_snapshot,
            optional=True,
            writes=("create",),
            why="take the last snapshot under reclaimPolicy Snapshot",
        )
        .watches(
            POD,
            map_pod,
            transform=shrink_pod,
            source="reflector",
            indexes=POD_INDEXES,
            why="find the pods that use a volume",
        )
        .watches(
            STORAGE_CLASS,
            map_class,
            why="check whether volumes can grow, and whether they wait for a pod",
        )
    )


class Reconciler:
    """The reconciler of DemoVolumes and their claims."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings; the reconciler has no other state."""
        self._settings = settings

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile a DemoVolume that is not being deleted."""
        volume = DemoVolume.parse(ctx.primary)
        observed = observe(ctx, volume)
        plan = plan_volume(volume, observed)
        if plan.takes_over and not await _may_claim_ownership(ctx, observed):
            return Result(requeue_after=_STALE_SECONDS)
        if plan.recreates:
            await ctx.apply_status(_forget_claim(ctx.primary.get("status") or {}))
        outcome = await ctx.execute(*batches_of(plan.actions))
        _report_actions(ctx, plan.actions, outcome)
        if plan.recreates and outcome.ok:
            return None  # The deletion triggers the next reconcile.
        observed = observe(ctx, volume)
        status = build_status(
            volume,
            observed,
            refusals_of(plan.actions, outcome),
            current=conditions_of(ctx.primary),
            now=ctx.now(),
        )
        ctx.warn_on_new_reason(status, ConditionType.READY, PROBLEMS)
        await ctx.apply_status(status)
        return Result.from_outcome(outcome, requeue_after=self._poll_interval(volume, observed))

    async def finalize(self, ctx: Context) -> Result | None:
        """Reconcile a DemoVolume that is being deleted; None removes the finalizer."""
        # If the spec is invalid, parse() raises and the finalizer remains: without a valid
        # reclaimPolicy, neither keeping nor deleting the data would be right.
        volume = DemoVolume.parse(ctx.primary)
        observed = await _observe_for_deletion(ctx, volume)
        plan = plan_finalize(volume, observed)
        if plan.done:
            return None
        outcome = await ctx.execute(*batches_of(plan.actions))
        _report_actions(ctx, plan.actions, outcome)
        if plan.actions:
            observed = await _observe_for_deletion(ctx, volume)
        rest = plan_finalize(volume, observed)
        if outcome.ok and rest.done:
            return None
        status = build_final_status(
            volume,
            observed,
            rest,
            refusals_of(plan.actions, outcome),
            current=conditions_of(ctx.primary),
            now=ctx.now(),
        )
        ctx.warn_on_new_reason(status, ConditionType.TERMINATING, PROBLEMS)
        await ctx.apply_status(status)
        return Result.from_outcome(outcome, requeue_after=self._poll_interval(volume, observed))

    def _poll_interval(self, volume: DemoVolume, observed: Observed) -> float | None:
        """Return the seconds until the next reconcile if the DemoVolume waits for VolumeSnapshot.

        Installing the CRDs of snapshots causes no event, so the reconciler polls.
        """
        waits = volume.needs_snapshots and not observed.snapshots_served
        return self._settings.snapshot_api_poll_seconds if waits else None


def _forget_claim(status: Manifest) -> Manifest:
    return {field: value for field, value in status.items() if field != "pvcRef"}


async def _may_claim_ownership(ctx: Context, observed: Observed) -> bool:
    """Check with the API server whether this DemoVolume may become the owner of an existing claim.

    Two races make the cache insufficient. The DemoVolume may have been deleted: then the garbage
    collector would delete a claim that refers to it. And the claim may belong to a DemoVolume that
    is not in the cache yet, because the previous leader has just created the claim for it: then the
    claim looks as if nobody owned it.
    """
    if not await ctx.is_current():
        return False
    kept_for = observed.claim.annotations.get(KEPT_FOR, "") if observed.claim is not None else ""
    if kept_for in ("", ctx.uid):
        return True
    volumes = await ctx.client.list(DEMO_VOLUME, ctx.key.namespace, metadata_only=True)
    return all(uid_of(volume) != kept_for for volume in volumes.items)


async def _observe_for_deletion(ctx: Context, volume: DemoVolume) -> Observed:
    """Observe the environment from the cache, but claim and snapshot from the API server.

    A deletion cannot be undone, and watches of different kinds are not ordered: the cache may show
    that the finalizer `orphan` was removed from the DemoVolume, but not yet the earlier removal of
    the owner reference from the claim. And after the finalizer is removed, no further reconcile can
    find a claim that the cache lacked, so the absence of the claim must be certain.
    """
    observed = replace(observe(ctx, volume), is_orphaning=ctx.is_orphaning)
    live = await ctx.live_get(PVC, Key(ctx.key.namespace, volume.claim_name))
    if live is None:
        return observed.without_claim()
    observed = observe_claim(ctx, live, observed)
    if observed.snapshot is None:
        return observed
    snapshot = await ctx.live_get(VOLUME_SNAPSHOT, observed.snapshot.key)
    view = None if snapshot is None else VolumeSnapshotView.parse(snapshot)
    return replace(observed, snapshot=view)


def _report_actions(ctx: Context, actions: Iterable[Action], outcome: Outcome) -> None:
    for action in ctx.report(actions, outcome):
        ctx.metrics.counter(ACTIONS).labels(str(action.reason)).inc()


OPERATOR: Final = Operator(
    OPERATOR_ID,
    (build_controller,),
    settings=Settings,
    # Claims are watched by name, not by `owns`, so the permission to set an owner reference that
    # blocks the owner's deletion is not derived from the watches.
    permissions=(grant(DEMO_VOLUME, "update", subresource="finalizers", why="own children"),),
    metrics=METRICS,
    summary="Manages a PersistentVolumeClaim for each DemoVolume.",
)
"""The operator, which the process and the tests run."""
