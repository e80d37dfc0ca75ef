"""Planning: computes the next writes for a PodSet from its pods. Pure: no I/O, no clock.

How many pods can exist?
------------------------
Let N be `replicas` plus the surge that an update allows. A pod is *active* if it belongs to the
PodSet, has not ended and is not being deleted. The planner follows three rules:

1. A reconcile creates at most `N - active(view)` pods. It never relies on a deletion in the same
   reconcile to make room.
2. A pod is created only in a free slot: a slot whose pod name no pod in the view has, in any state.
   Terminating and ended pods occupy their slot until the object no longer exists. The lowest free
   slots are filled first (an ended pod is deleted and replaced in its own slot), so equal views
   lead to equal names.
3. Each deletion names one incarnation of a pod by UID.

**One writer: active <= N, whatever the watch has missed.** The view is the watch cache including
the responses to our own writes (read-your-writes). If a write gets no response, the object is read
before the next reconcile. A PodSet gains pods only by our own writes: creates and adoptions. So the
view can only lack changes by other clients: deletions and pods that ended. Hence
`active(view) >= active`, and by rule 1 a create never takes the PodSet above N. An outdated view
may lead to too few pods for a while, but never to too many. A crash does not change this: the next
process lists all pods before it plans, including the pods that the previous process created. A
leader that lost its Lease is fenced off before the next leader starts. (N comes from the spec in
the view, so a scale-down applies only after it has been observed.)

**Many writers with arbitrary views: at most N pods with a slot below N.** Names are locks. If two
leaders both scale from 0 to 500, they compete for the same 500 names, and half of their creates
fail because the pod exists. Pods with a higher slot or without a slot exist only in a few cases:

* pods that remain after a scale-down that deleted pods with lower slots;
* replacements of pods that are still terminating or are kept as history;
* replacements in higher slots because another owner's pod has the name of a lower slot;
* adopted pods.

Only while such pods exist, a second writer with an outdated view can create one pod too many; the
next reconcile deletes it.

**`podReplacementPolicy: TerminationComplete`** excludes most of these cases: only slots below N are
filled, a terminating pod keeps its slot, no history is kept, and a slot stays empty if another
owner's pod has its name. While no pod has a higher slot, at most N pods of the PodSet *exist*,
including terminating pods, with any number of writers and any views of the pods.

Pods with high slots are not moved: after a scale-down from 3 to 2 that deleted slot 0, the PodSet
has slots 1 and 2; the number is correct, so nothing is created. A scale-up to 3 fills slot 0, the
lowest free slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, repeat

from libs.common.conditions import render_time
from libs.common.crd import SELECTOR_LIMIT
from libs.common.errors import TerminalError
from libs.common.kinds import POD, Key, Manifest, key_of, uid_of
from libs.common.labels import matches_selector, render_selector
from libs.common.ownership import build_adopt_patch, build_release_patch
from libs.common.plan import Create, Delete, Patch, Step
from operators.podset.api.v1 import PodReplacementPolicy, PodSet, Reason
from operators.podset.backoff import Vacancies, plan_vacancies
from operators.podset.naming import TEMPLATE_HASH_LABEL
from operators.podset.ranking import rank_for_deletion
from operators.podset.resources import DEFAULT_IMAGE, Blueprint, build_blueprint, build_pod
from operators.podset.revisions import History, Revision
from operators.podset.rollout import (
    Budget,
    Rollout,
    observe_rollout,
    parse_budget,
    plan_replacements,
)
from operators.podset.slots import Lookup, Slots
from operators.podset.view import PodView, seconds_of


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of a PodSet, computed once per reconcile.

    Attributes:
        former: Blueprint of the pods that a partition protects, or of all new pods while `is_held`
            prevents an update; None if it is the same.
        can_create: Whether a template is known from which pods may be created.
        problem: Why the template that the spec names cannot be used; empty if it can.
    """

    podset: PodSet
    blueprint: Blueprint
    budget: Budget
    owner: Manifest
    former: Blueprint | None = None
    can_create: bool = True
    problem: str = ""

    @property
    def hashes(self) -> frozenset[str]:
        """Hashes of the templates from which new pods are created."""
        former = () if self.former is None else (self.former.template_hash,)
        return frozenset((self.blueprint.template_hash, *former))

    @property
    def is_strict(self) -> bool:
        """Whether a pod is replaced only after it no longer exists (TerminationComplete)."""
        policy = self.podset.spec.pod_replacement_policy
        return policy is PodReplacementPolicy.TERMINATION_COMPLETE

    @property
    def is_held(self) -> bool:
        """Whether pods are created and deleted, but not updated."""
        return self.podset.spec.paused or self.budget.paused


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the pods and revisions that are relevant for a PodSet.

    Attributes:
        released: Pods that it controls but must release: the selector no longer matches them.
        orphans: Pods without a controller that it may adopt.
        lookup: Finds any pod of the namespace by name.
    """

    pods: tuple[PodView, ...]
    released: tuple[Manifest, ...] = ()
    orphans: tuple[Manifest, ...] = ()
    history: History = field(default_factory=History)
    lookup: Lookup = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Assessment:
    """The difference between the actual and the desired state.

    Attributes:
        active: Pods that have not ended and are not being deleted.
        available: Names of the pods that have been ready for minReadySeconds.
        available_after: Seconds until the next ready pod becomes available; None if no ready pod
            waits for minReadySeconds.
        missing: Number of pods to create, now or after a back-off; negative if there are too many.
        vacancies: Missing pods, and how to replace them.
        window: Number of slots that the PodSet needs. Pods of other owners with a slot below this
            number are a conflict.
    """

    active: tuple[PodView, ...]
    terminating: tuple[PodView, ...]
    available: frozenset[str]
    available_after: float | None
    rollout: Rollout
    missing: int
    vacancies: Vacancies
    slots: Slots
    window: int

    @property
    def surplus(self) -> int:
        """Number of pods that exceed the current target."""
        return max(0, len(self.active) - self.rollout.target)


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes of a reconcile in batches, and the time of the next reconcile.

    Attributes:
        batches: Steps; a batch starts only after all steps of the previous batch have succeeded.
        replaced: Ended pods that get a replacement.
        requeue_after: Seconds until the next reconcile is due even without an event; None for
            never.
    """

    batches: tuple[tuple[Step, ...], ...] = ()
    replaced: tuple[PodView, ...] = ()
    requeue_after: float | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        return tuple(step for batch in self.batches for step in batch)


def build_desired(
    podset: PodSet,
    owner: Manifest,
    *,
    image: str = DEFAULT_IMAGE,
    blueprint: Blueprint | None = None,
) -> Desired:
    """Compute the desired state from the spec.

    Args:
        podset: The PodSet.
        owner: Controller reference for the pods.
        image: Image of the pods of a PodSet without a template.
        blueprint: Template to use instead of spec.template; None for spec.template.

    Raises:
        TerminalError: The spec contradicts itself.
    """
    blueprint = blueprint or build_blueprint(podset, default_image=image)
    if not matches_selector(blueprint.selector, blueprint.labels):
        # Otherwise each pod would be created, released because it does not match, and created
        # again, indefinitely.
        message = (
            f"PodSet {podset.key}: spec.selector does not match the labels of spec.template; "
            "add the labels to spec.template.metadata.labels"
        )
        raise TerminalError(Reason.INVALID_SPEC, message, field="spec.template.metadata.labels")
    if len(render_selector(blueprint.selector)) > SELECTOR_LIMIT:
        # Otherwise the API server would refuse every status, so nothing would ever be reported.
        message = (
            f"PodSet {podset.key}: spec.selector has more than {SELECTOR_LIMIT} characters as "
            "text, which autoscalers need; select by fewer labels"
        )
        raise TerminalError(Reason.INVALID_SPEC, message, field="spec.selector")
    return Desired(podset, blueprint, parse_budget(podset.spec), owner)


def assess(desired: Desired, observed: Observed, now: datetime) -> Assessment:
    """Compare the pods of a set with its spec."""
    spec, seconds = desired.podset.spec, now.timestamp()
    active = tuple(pod for pod in observed.pods if pod.is_active)
    terminating = tuple(pod for pod in observed.pods if pod.is_deleting)
    ended = tuple(pod for pod in observed.pods if pod.has_ended)
    template_hash = desired.blueprint.template_hash
    rollout = observe_rollout(active, spec.replicas, template_hash, desired.budget)
    held = len(active) + len(observed.orphans) + (len(terminating) if desired.is_strict else 0)
    missing = rollout.target - held
    available, available_after = find_available(active, spec.min_ready_seconds, now)
    return Assessment(
        active=active,
        terminating=terminating,
        available=available,
        available_after=available_after,
        rollout=rollout,
        missing=missing,
        vacancies=plan_vacancies(ended, missing, seconds, desired.hashes, spec.backoff),
        slots=Slots(
            desired.podset.metadata.name,
            frozenset(pod.slot for pod in observed.pods if pod.slot is not None),
            frozenset(pod["metadata"]["name"] for pod in observed.orphans),
            observed.lookup,
        ),
        window=spec.replicas + desired.budget.surge,
    )


def find_current(desired: Desired, observed: Observed, facts: Assessment) -> Revision | None:
    """Return the current revision: the update revision once all pods have it and are available."""
    update = observed.history.find(desired.blueprint.template_hash)
    wanted = desired.podset.spec.replicas
    # A set without pods has completed no update, and a partition means that none is complete: pods
    # that it protects get their older template again after a scale-down deleted them.
    exact = 0 < wanted == len(facts.active) == len(facts.available)
    if exact and not facts.rollout.outdated and not desired.budget.partition:
        return update
    hashes = [pod.template_hash for pod in facts.active]
    return observed.history.find_former(desired.podset, hashes) or update


def plan_podset(desired: Desired, observed: Observed, now: datetime) -> Plan:
    """Plan the next writes for a PodSet; the plan has no steps if the PodSet has converged.

    The result of one plan may allow further steps: plan again until a plan has no steps.
    """
    facts = assess(desired, observed, now)
    obsolete = facts.vacancies.obsolete(_history_limit(desired))
    batches: tuple[tuple[Step, ...], ...] = (
        (*_plan_releases(desired, observed), *_plan_adoptions(desired, observed)),
        tuple(_build_delete(desired, pod) for pod in obsolete),
        tuple(_plan_creates(desired, facts, obsolete)),
        tuple(_build_delete(desired, pod) for pod in _choose_victims(desired, facts, now)),
    )
    return Plan(
        batches=tuple(batch for batch in batches if batch),
        replaced=tuple(failure.pod for failure in facts.vacancies.due),
        requeue_after=_seconds_to_next_reconcile(facts, now),
    )


def find_objection(desired: Desired, blueprint: Blueprint, pod: Manifest) -> str:
    """Return why a pod is unusable after admission changed its labels; empty if it is usable.

    A pod that the selector does not match would be released and replaced. A pod without the hash of
    its template would always count as outdated. Both would be replaced indefinitely.
    """
    labels = pod["metadata"].get("labels") or {}
    selects = desired.podset.spec.selector is not None
    if selects and not matches_selector(blueprint.selector, labels):
        broken = "so that spec.selector does not match them"
    elif desired.budget.replaces and labels.get(TEMPLATE_HASH_LABEL) != blueprint.template_hash:
        broken = f"including {TEMPLATE_HASH_LABEL}, which identifies the pods of an update"
    else:
        return ""
    return (
        f"admission changed its labels, {broken}; it must keep the labels of spec.template and of"
        " the operator"
    )


def _plan_creates(desired: Desired, facts: Assessment, obsolete: list[PodView]) -> list[Step]:
    """Fill the vacancies.

    The replacement of an ended pod gets the slot of that pod if this plan deletes the pod. All
    other pods get free slots.
    """
    if not desired.can_create:
        return []
    limit = facts.window if desired.is_strict else None
    freed = {pod.slot for pod in obsolete if pod.slot is not None}
    gone = {pod.uid for pod in obsolete}
    wanted: list[tuple[int, int]] = []
    attempts: list[int] = []
    for failure in facts.vacancies.due:
        slot = failure.pod.slot if failure.pod.uid in gone else None
        if slot is not None and (limit is None or slot < limit):
            wanted.append((slot, failure.next_attempt))
            freed.discard(slot)
        else:
            attempts.append(failure.next_attempt)
    attempts.extend([0] * facts.vacancies.fresh)
    if attempts:
        # A PodSet that is in sync creates no pods, so it does not look up any slot.
        free = facts.slots.free(besides=freed, limit=limit)
        wanted.extend(zip(islice(free, len(attempts)), attempts, strict=False))
    blueprints = _choose_blueprints(desired, facts)
    return [
        _build_create(desired, next(blueprints), slot, attempt) for slot, attempt in sorted(wanted)
    ]


def _choose_blueprints(desired: Desired, facts: Assessment) -> Iterator[Blueprint]:
    """Yield the template of each pod to create.

    Pods that a partition protects come first: they are recreated from their older template.
    """
    if desired.former is not None and desired.is_held:
        yield from repeat(desired.former)
    elif desired.former is not None:
        kept = min(desired.budget.partition, desired.podset.spec.replicas)
        yield from repeat(desired.former, max(0, kept - len(facts.rollout.outdated)))
    yield from repeat(desired.blueprint)


def _build_create(desired: Desired, blueprint: Blueprint, slot: int, attempt: int) -> Create:
    pod = build_pod(desired.podset, blueprint, slot, desired.owner, attempt=attempt)
    return Create(POD, pod, objection=partial(find_objection, desired, blueprint))


def _choose_victims(desired: Desired, facts: Assessment, now: datetime) -> list[PodView]:
    """Choose the pods to delete: the surplus if any, otherwise the next pods of an update."""
    spec = desired.podset.spec
    if facts.surplus:
        outdated = {pod.name for pod in facts.rollout.outdated} if facts.rollout.pending else ()
        ranked = rank_for_deletion(
            facts.active, now, preferred=spec.pods_to_delete, outdated=outdated
        )
        return ranked[: facts.surplus]
    return plan_replacements(
        facts.active, facts.available, spec.replicas, facts.rollout, desired.budget, now
    )


def _plan_releases(desired: Desired, observed: Observed) -> list[Step]:
    uid = desired.podset.metadata.uid
    return [_build_patch(pod, build_release_patch(pod, uid)) for pod in observed.released]


def _plan_adoptions(desired: Desired, observed: Observed) -> list[Step]:
    return [_build_patch(pod, build_adopt_patch(pod, desired.owner)) for pod in observed.orphans]


def _build_patch(pod: Manifest, operations: list[Manifest]) -> Patch:
    # The patch replaces the owner references as a whole; the resource version prevents that it
    # overwrites a concurrent change of them.
    version = pod["metadata"].get("resourceVersion") or ""
    return Patch(POD, key_of(pod), uid_of(pod), operations, resource_version=version)


def _build_delete(desired: Desired, pod: PodView) -> Delete:
    return Delete(POD, Key(desired.podset.metadata.namespace, pod.name), pod.uid)


def _history_limit(desired: Desired) -> int:
    """Return how many ended pods are kept: none if each of them would block a slot permanently."""
    return 0 if desired.is_strict else desired.podset.spec.failed_pods_history_limit


def find_available(
    pods: Sequence[PodView], min_ready_seconds: int, now: datetime
) -> tuple[frozenset[str], float | None]:
    """Return the names of available pods, and the seconds until the next pod becomes available."""
    ready = [pod for pod in pods if pod.is_ready]
    if not min_ready_seconds:
        return frozenset(pod.name for pod in ready), None
    latest = render_time(now - timedelta(seconds=min_ready_seconds))
    available = frozenset(pod.name for pod in ready if pod.ready_since <= latest)
    soon = [pod.ready_since for pod in ready if pod.ready_since > latest]
    start = seconds_of(min(soon)) if soon else None
    if start is None:
        return available, None
    return available, max(0.0, start + min_ready_seconds - now.timestamp())


def _seconds_to_next_reconcile(facts: Assessment, now: datetime) -> float | None:
    """Return the seconds until a back-off ends or a pod becomes available."""
    waits = [facts.available_after] if facts.available_after is not None else []
    waits += [failure.retry_at - now.timestamp() for failure in facts.vacancies.waiting[:1]]
    return min(waits, default=None)
