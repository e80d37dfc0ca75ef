"""Controller of PodSet: watches, indexes, and the reconcile of one PodSet.

A reconcile observes pods and revisions, plans, writes, and reports the status.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from libs.common.crd import kind_of
from libs.common.errors import ApiError, Forbidden, ForeignObject, TerminalError
from libs.common.kinds import CONTROLLER_REVISION, POD, Key, Kind, Manifest, is_deleting, uid_of
from libs.common.labels import matches_selector
from libs.common.ownership import controller_of
from libs.common.plan import Create, Delete, Outcome, Patch, Step, StepFailure
from libs.common.rbac import grant
from libs.common.runtime import Cache, Context, Controller, Operator, Result
from operators.podset.api.v1 import ConditionType, PodSet, Reason
from operators.podset.history import (
    REVISION_INDEXES,
    keep_history,
    map_revision,
    observe_history,
    read_desired,
    read_former,
)
from operators.podset.meaning import POD_TEMPLATE
from operators.podset.naming import SET_LABEL, parse_pod_name
from operators.podset.progress import find_time_left
from operators.podset.reconcile import Desired, Observed, Plan, assess, plan_podset
from operators.podset.resources import OPERATOR_ID
from operators.podset.revisions import shrink_revision
from operators.podset.settings import Settings
from operators.podset.shrink import shrink_pod
from operators.podset.status import build_status, count_pods
from operators.podset.view import PodView, is_gone, parse_pod

PODSET: Final[Kind] = kind_of(PodSet)

_ORPHANS: Final = "orphans"
_ROUNDS: Final = 8
"""Maximum number of plans that one reconcile executes. Two or three are usual and enough for an
update."""
_NAME_TAKEN_SECONDS: Final = 30.0
"""Seconds until the retry of a ControllerRevision whose name is used by another object."""
_SHOWN: Final = 3
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
_OVER_QUOTA: Final = "exceeded quota"
"""Part of the API server's error message; there is no specific status or reason for a quota."""
_NOTHING: Final[Manifest] = {
    "matchExpressions": [{"key": SET_LABEL, "operator": "In", "values": []}]
}
"""Selector that matches no pod, for PodSets without a selector."""


@dataclass(slots=True)
class RoundResults:
    """The results of all rounds of a reconcile."""

    done: list[Step]
    replaced: list[PodView]
    outcome: Outcome
    requeue_after: float | None = None

    def add(self, plan: Plan, outcome: Outcome) -> None:
        """Add the results of one round."""
        self.done.extend(outcome.done)
        if _names(outcome.done, Create):
            self.replaced.extend(plan.replaced)
        self.outcome = outcome
        self.requeue_after = plan.requeue_after


async def reconcile(ctx: Context, *, image: str) -> Result | None:
    """Bring one PodSet closer to its spec."""
    try:
        desired = await read_desired(ctx, image)
    except TerminalError as err:
        # The runtime reports the error. The counts remain current for autoscalers and people.
        err.status = _count_pods(ctx)
        raise
    observed = await _observe(ctx, desired)
    if observed is None:
        # The PodSet was deleted or recreated; the event of that change triggers the next reconcile.
        return None
    work = RoundResults([], [], Outcome())
    recorded = Outcome()
    if not desired.is_held:
        recorded, desired, observed = await keep_history(ctx, desired, observed, image)
    retry = _NAME_TAKEN_SECONDS if recorded.failures else None
    desired = await read_former(ctx, desired, observed, image)
    for _ in range(_ROUNDS if desired.is_held or not _must_stop(recorded) else 0):
        plan = plan_podset(desired, observed, ctx.now())
        if not plan.steps:
            work.requeue_after = plan.requeue_after
            if not _must_stop(work.outcome):
                # Only name conflicts remain. The new plan avoids these names, and the condition
                # Conflict reports them.
                work.outcome = Outcome()
            break
        outcome = await _execute(ctx, plan)
        work.add(plan, outcome)
        # The cache contains the responses to these writes, so the next plan is based on them.
        observed = observe(ctx, desired)
        if _must_stop(outcome):
            break
    else:
        work.requeue_after = 0.0
    if _must_stop(recorded) and not work.outcome.failures:
        work.outcome = recorded
    if _is_namespace_terminating(work.outcome):
        # The namespace is being deleted, so the PodSet will be deleted as well: report nothing and
        # do not retry.
        ctx.log.debug("Skipping a PodSet in a namespace that is being deleted")
        return None
    status = await _publish_status(ctx, desired, observed, work)
    time_left = find_time_left(
        desired, assess(desired, observed, ctx.now()), status["conditions"], ctx.now()
    )
    deadline = time_left if time_left is not None and time_left > 0 else None
    delays = (work.requeue_after, deadline, retry)
    requeue_after = min((delay for delay in delays if delay is not None), default=None)
    return Result.from_outcome(work.outcome, requeue_after=requeue_after)


def _count_pods(ctx: Context) -> Manifest:
    pods = [parse_pod(pod, ctx.key.name) for pod in ctx.children(POD) if not is_gone(pod)]
    spec, held = (ctx.primary.get(part) or {} for part in ("spec", "status"))
    return count_pods(held, pods, spec, ctx.now())


def observe(ctx: Context, desired: Desired) -> Observed:
    """Read the pods and revisions of a PodSet from the cache, without orphans to adopt."""
    podset, namespace = desired.podset, ctx.key.namespace
    children = [pod for pod in ctx.children(POD) if not is_gone(pod)]
    released: list[Manifest] = []
    if podset.spec.selector is not None:
        selector = desired.blueprint.selector
        released = [pod for pod in children if not _matches(pod, selector)]
        children = [pod for pod in children if _matches(pod, selector)]

    def lookup(name: str) -> Manifest | None:
        pod = ctx.get(POD, Key(namespace, name))
        return None if pod is None or is_gone(pod) else pod

    return Observed(
        pods=tuple(parse_pod(pod, ctx.key.name) for pod in children),
        # A pod that is being deleted needs no release: its owner reference disappears with it.
        released=tuple(pod for pod in released if not is_deleting(pod)),
        history=observe_history(ctx),
        lookup=lookup,
    )


async def _observe(ctx: Context, desired: Desired) -> Observed | None:
    """Read pods, revisions and orphans; None if the PodSet was deleted or recreated."""
    observed = observe(ctx, desired)
    orphans = _find_orphans(ctx, desired)
    if not (orphans or observed.history.orphans):
        return observed
    # After `kubectl delete --cascade=orphan`, the garbage collector removes the owner references,
    # possibly before the cache shows the deletion of the PodSet. Adopting the pods again would make
    # the garbage collector delete them once the PodSet no longer exists. So check with the API
    # server, never with the cache, before adopting anything.
    live = await ctx.live_get(PODSET, ctx.key)
    if live is None or uid_of(live) != ctx.uid or is_deleting(live):
        return None
    return replace(observed, orphans=tuple(orphans))


def _find_orphans(ctx: Context, desired: Desired) -> list[Manifest]:
    selector, name = desired.blueprint.selector, ctx.key.name
    orphans = ctx.indexed(POD, _ORPHANS, ctx.key.namespace)
    return [pod for pod in orphans if _matches(pod, selector) and parse_pod(pod, name).is_active]


def _matches(pod: Manifest, selector: Manifest) -> bool:
    return matches_selector(selector, pod["metadata"].get("labels") or {})


async def _execute(ctx: Context, plan: Plan) -> Outcome:
    """Execute a plan; an exhausted quota does not prevent its deletions.

    A failed batch normally skips the batches after it. But if an update allows both maxSurge and
    maxUnavailable and the quota refuses the surge, only the deletion of an old pod makes room for a
    new one.
    """
    outcome = await ctx.execute(*plan.batches)
    if not outcome.failures or not all(map(_is_over_quota, outcome.failures)):
        return outcome
    deletions = [step for step in outcome.skipped if isinstance(step, Delete)]
    rest = await ctx.execute(deletions)
    return replace(
        outcome,
        done=(*outcome.done, *rest.done),
        failures=(*outcome.failures, *rest.failures),
        skipped=tuple(step for step in outcome.skipped if not isinstance(step, Delete)),
        changed=outcome.changed + rest.changed,
    )


def _is_over_quota(failure: StepFailure) -> bool:
    """Return whether a quota refused a pod: deleting another pod helps only in this case."""
    return (
        isinstance(failure.step, Create)
        and isinstance(failure.error, Forbidden)
        and _OVER_QUOTA in failure.message
    )


def _must_stop(outcome: Outcome) -> bool:
    """Return whether a failure ends the reconcile.

    A name conflict does not: the next plan uses another name.
    """
    return any(not isinstance(failure.error, ForeignObject) for failure in outcome.failures)


def _is_namespace_terminating(outcome: Outcome) -> bool:
    """Return whether a create was refused because the namespace is being deleted."""
    return any(
        cause.get("reason") == _NAMESPACE_TERMINATING
        for failure in outcome.failures
        if isinstance(failure.error, ApiError)
        for cause in failure.error.details.get("causes") or ()
    )


async def _publish_status(
    ctx: Context, desired: Desired, observed: Observed, work: RoundResults
) -> Manifest:
    """Write the status, record Events for changes and problems, and return the status."""
    status = build_status(desired, observed, ctx.now(), work.outcome)
    for reason, note in describe_work(work):
        ctx.event("Normal", reason, note)
    for pod in work.replaced:
        note = f"{pod.name} ended and is replaced: {pod.problem or pod.phase}"
        ctx.event("Warning", Reason.PODS_ENDED, note)
    if await ctx.apply_status(status):
        ctx.warn_on_new_condition(
            status, ConditionType.REPLICA_FAILURE, ConditionType.STALLED, ConditionType.CONFLICT
        )
    return status


def describe_work(work: RoundResults) -> Iterable[tuple[Reason, str]]:
    """Yield the reason and note of one Event for each type of completed step."""
    adopts = [step for step in work.done if isinstance(step, Patch) and _adopts(step)]
    releases = [step for step in work.done if isinstance(step, Patch) and not _adopts(step)]
    sorts: tuple[tuple[Reason, str, list[str]], ...] = (
        (Reason.PODS_ADOPTED, "Adopted", [step.key.name for step in adopts]),
        (Reason.PODS_RELEASED, "Released", [step.key.name for step in releases]),
        (Reason.PODS_CREATED, "Created", _names(work.done, Create)),
        (Reason.PODS_DELETED, "Deleted", _names(work.done, Delete)),
    )
    for reason, verb, names in sorts:
        if names:
            shown = ", ".join(names[:_SHOWN])
            rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            yield reason, f"{verb} {shown}{rest}"


def _names(steps: Iterable[Step], sort: type[Create | Delete]) -> list[str]:
    return [step.key.name for step in steps if isinstance(step, sort)]


def _adopts(step: Patch) -> bool:
    return any(operation["op"] == "add" for operation in step.operations)


def index_orphans(pod: Manifest) -> list[str]:
    """Index pods without a controller by namespace."""
    return [] if controller_of(pod) else [pod["metadata"].get("namespace") or ""]


def map_pod(pod: Manifest, cache: Cache) -> list[Key]:
    """Map a pod to PodSets that do not control it but are affected by it.

    These are the PodSet whose slot has the name of the pod, and the PodSets that may adopt the pod
    if it is an orphan.
    """
    metadata = pod["metadata"]
    namespace = metadata.get("namespace") or ""
    labels = metadata.get("labels") or {}
    sets = cache.store(PODSET)
    names = {parse_pod_name(metadata["name"])[0]}
    if controller_of(pod) is None:
        names.add(labels.get(SET_LABEL, ""))
        names.update(
            held["metadata"]["name"]
            for held in sets.list(namespace)
            if matches_selector((held.get("spec") or {}).get("selector") or _NOTHING, labels)
        )
    keys = [Key(namespace, name) for name in sorted(names) if name]
    return [key for key in keys if sets.get(key) is not None]


def build_controller(settings: Settings) -> Controller:
    """Build the controller of PodSets."""
    return (
        Controller(
            OPERATOR_ID, primary=PODSET, reconcile=partial(reconcile, image=settings.default_image)
        )
        .owns(
            POD,
            transform=shrink_pod,
            source="reflector",
            indexes={_ORPHANS: index_orphans},
            # Adopting and releasing a pod patches its owner references.
            writes=("create", "delete", "patch"),
            why="manage the pods of PodSets",
        )
        .watches(POD, map_pod)
        .owns(
            CONTROLLER_REVISION,
            transform=shrink_revision,
            label_selector=SET_LABEL,
            source="reflector",
            indexes=REVISION_INDEXES,
            writes=("create", "delete", "patch"),
            why="store earlier templates of PodSets",
        )
        .watches(CONTROLLER_REVISION, map_revision, label_selector=SET_LABEL)
    )


OPERATOR: Final = Operator(
    OPERATOR_ID,
    (build_controller,),
    settings=Settings,
    permissions=(grant(POD_TEMPLATE, "create", why="compare templates by dry runs"),),
    summary="Runs a number of identical pods.",
)
"""The operator, which `main` and the tests run."""
