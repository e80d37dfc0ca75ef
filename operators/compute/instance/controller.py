"""Controller of Instance: watches, and the reconcile.

A reconcile observes the machine and its environment, plans, executes, and reports the status.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from libs.common.actions import NEXT_SECONDS, Action, batches_of, refusals_of
from libs.common.client import METADATA
from libs.common.errors import NotFound
from libs.common.kinds import NODE, POD, PVC, SECRET, Manifest
from libs.common.plan import Apply, Create, Outcome, Patch
from libs.common.runtime import Context, Controller, Result
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.instancetypes import MATCHED_KINDS, shrink_instancetype
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.contracts.launchers import LAUNCHER_SELECTOR, shrink_launcher
from libs.contracts.network import FIREWALL, NETWORK
from libs.contracts.volumes import DEMO_VOLUME
from operators.compute.api.instance import INSTANCE, Instance, InstanceStatus, Power
from operators.compute.api.operation import OPERATION
from operators.compute.api.reasons import ConditionType, Reason
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.instance.boot import seconds_to_deletion
from operators.compute.instance.observe import observe
from operators.compute.instance.observed import Observed, find_current_disk
from operators.compute.instance.places import find_place
from operators.compute.instance.reconcile import plan_instance, seconds_to_rerun
from operators.compute.instance.record import inherit_record
from operators.compute.instance.resources import hash_cloud_init
from operators.compute.instance.status import build_final_status, build_status
from operators.compute.instance.teardown import plan_teardown
from operators.compute.instance.watches import (
    DISK_INDEXES,
    INSTANCE_INDEXES,
    MACHINE_INDEXES,
    OPERATION_INDEXES,
    POD_INDEXES,
    map_disk,
    map_launcher,
    map_mounted,
    map_named,
    map_operation,
    map_self,
    map_used,
    mounts_change,
    names_change,
    shrink_claim,
    shrink_node,
)
from operators.compute.metrics import ACTIONS
from operators.compute.naming import FINALIZER, INSTANCES
from operators.compute.settings import Settings

_WRITES: Final = ("create", "patch", "delete")
_STALE_SECONDS: Final = 1.0
"""Seconds until the retry of an Instance whose cached version is outdated."""
_USER_DATA_SECONDS: Final = 15.0
"""Interval in which a missing Secret with user data is looked for; Secrets are not watched."""


def build_instances(settings: Settings) -> Controller:
    """Build the controller of Instance."""
    reconciler = InstanceReconciler(settings)
    controller = Controller(
        INSTANCES,
        primary=INSTANCE,
        reconcile=reconciler.reconcile,
        finalize=reconciler.finalize,
        finalizer=FINALIZER,
        source="reflector",
        stalls_after=1800,  # The import of a large image takes long.
        resting=frozenset({Reason.PAUSED}),
    ).watches(INSTANCE, map_named, predicate=names_change, indexes=INSTANCE_INDEXES)
    for kind, writes, why in (
        (VIRTUAL_MACHINE, _WRITES, "manage the machines of Instances"),
        (VIRTUAL_MACHINE_INSTANCE, ("delete",), "delete one run of a machine by its UID"),
    ):
        controller.watches(kind, map_mounted, predicate=mounts_change, optional=True)
        controller.watches(
            kind, map_self, optional=True, indexes=MACHINE_INDEXES, writes=writes, why=why
        )
    controller.watches(
        DATA_VOLUME,
        map_disk(DATA_VOLUME),
        optional=True,
        indexes=DISK_INDEXES,
        writes=_WRITES,
        why="manage the root disks of Instances",
    )
    controller.watches(
        PVC,
        map_disk(PVC),
        transform=shrink_claim,
        source="reflector",
        indexes=DISK_INDEXES,
        writes=("patch", "delete"),
        why="manage root disks whose DataVolume was garbage-collected, and find volumes",
    )
    controller.watches(
        IP_CLAIM,
        map_used(IP_CLAIM),
        optional=True,
        writes=_WRITES,
        why="claim public addresses",
    )
    for kind, why in (
        (NETWORK, "start machines only when their network is ready"),
        (FIREWALL, "start machines only when their firewall is ready"),
        (DEMO_VOLUME, "find the claims of further volumes"),
    ):
        controller.watches(kind, map_used(kind), optional=True, why=why)
    controller.watches(
        POD,
        map_launcher,
        transform=shrink_launcher,
        label_selector=LAUNCHER_SELECTOR,
        source="reflector",
        indexes=POD_INDEXES,
        why="report the addresses of launcher pods",
    )
    controller.watches(INSTANCE_SIZE, map_used(INSTANCE_SIZE), why="read the sizes of machines")
    for kind in MATCHED_KINDS.values():
        controller.watches(
            kind,
            map_used(kind),
            optional=True,
            transform=shrink_instancetype,
            source="reflector",
            why="find the instancetypes that Instances name",
        )
    controller.watches(
        NODE,
        map_used(NODE),
        transform=shrink_node,
        source="reflector",
        why="detect nodes that do not report",
    )
    return controller.watches(OPERATION, map_operation, indexes=OPERATION_INDEXES)


class InstanceReconciler:
    """The reconciler of Instances."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings; the reconciler has no other state."""
        self._settings = settings

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile an Instance that is not being deleted."""
        instance = Instance.parse(ctx.primary)
        observed = observe(ctx, instance, self._settings.image_hosts)
        if disk := observed.disks.get(find_current_disk(instance, observed)):
            instance = inherit_record(instance, disk.manifest)
        lacks = await _lacks_user_data(ctx, instance, observed)
        observed = replace(observed, lacks_user_data=lacks)
        actions = plan_instance(instance, observed, ctx.now())
        steps = [action.step for action in actions]
        if any(isinstance(step, Create) and step.kind == DATA_VOLUME for step in steps):
            observed = replace(observed, place=await find_place(ctx, instance, observed))
            actions = plan_instance(instance, observed, ctx.now())
        if any(isinstance(action.step, Patch) for action in actions) and not await ctx.is_current():
            # A patch may set the owner reference of an existing child. If this Instance no longer
            # exists, the garbage collector would delete that child.
            return Result(requeue_after=_STALE_SECONDS)
        outcome = await ctx.execute(*batches_of(actions))
        report_actions(ctx, actions, outcome)
        observed = observe(ctx, instance, self._settings.image_hosts)
        observed = replace(observed, lacks_user_data=lacks)
        refusals = refusals_of(actions, outcome)
        status = build_status(instance, observed, refusals, now=ctx.now())
        _show_cloud_init(status, actions, outcome)
        ctx.warn_on_new_condition(status, ConditionType.BLOCKED)
        await ctx.apply_status(status)
        kept = InstanceStatus.from_manifest(status).kept_disks
        waits = (
            seconds_to_deletion(instance, kept, ctx.now()),
            seconds_to_rerun(observed, ctx.now()),
            _USER_DATA_SECONDS if lacks else None,
        )
        again = min((seconds for seconds in waits if seconds is not None), default=None)
        if observed.missing_apis:
            again = self._settings.missing_api_poll_seconds
        return Result.from_outcome(outcome, requeue_after=again)

    async def finalize(self, ctx: Context) -> Result | None:
        """Reconcile an Instance that is being deleted; None removes the finalizer."""
        # If the spec is invalid, parse() raises and the finalizer remains: without a valid deletion
        # policy, neither keeping nor deleting the children would be right.
        instance = Instance.parse(ctx.primary)
        if ctx.is_orphaning:
            return None
        observed = observe(ctx, instance, self._settings.image_hosts)
        ending = plan_teardown(instance, observed)
        if ending.done:
            return None
        outcome = await ctx.execute(*batches_of(ending.actions))
        report_actions(ctx, ending.actions, outcome)
        if ending.actions:
            observed = observe(ctx, instance, self._settings.image_hosts)
        rest = plan_teardown(instance, observed)
        if outcome.ok and rest.done:
            return None
        refusals = refusals_of(ending.actions, outcome)
        status = build_final_status(instance, observed, rest, refusals, now=ctx.now())
        await ctx.apply_status(status)
        # A machine may be deleted immediately; then the next step deletes its disk without delay.
        again = NEXT_SECONDS if rest.actions else None
        return Result.from_outcome(outcome, requeue_after=again)


async def _lacks_user_data(ctx: Context, instance: Instance, observed: Observed) -> bool:
    """Return whether a machine that must start waits for a Secret; its content is not read."""
    name, run = instance.spec.user_data_secret_name, observed.run
    runs = run is not None and (run.view.running or run.view.deleting)
    if name is None or runs or instance.spec.power is Power.STOPPED:
        return False
    try:
        await ctx.client.raw("GET", SECRET.path(ctx.key.namespace, name), accept=METADATA)
    except NotFound:
        return True
    return False


def _show_cloud_init(status: Manifest, actions: tuple[Action, ...], outcome: Outcome) -> None:
    """Record the hash of the written cloud-init Secret in the status, so that it is written once.

    After a failure, no hash is recorded: the status would be a proof that the Secret existed for
    the run that it names.
    """
    steps = [action.step for action in actions]
    written = [step for step in steps if isinstance(step, Apply) and step.kind == SECRET]
    if written and outcome.ok:
        status["cloudInitHash"] = hash_cloud_init(written[0].manifest)
    elif written:
        status.pop("cloudInitHash", None)


def report_actions(ctx: Context, actions: tuple[Action, ...], outcome: Outcome) -> None:
    """Record Events, log lines and metrics for the steps that were taken."""
    for action in ctx.report(actions, outcome):
        ctx.metrics.counter(ACTIONS).labels(str(action.reason)).inc()
