"""What a set needs next: from the pods that exist to the writes to make. Pure: no I/O, no clock.

How many pods can there be?
---------------------------
Let N be `replicas` plus the surge that an update is allowed. *Active* are pods of the set that have
not ended and are not being deleted. The rules of planning are:

1. A reconcile creates `N - active(view)` pods at most, and never counts on a deletion of the same
   pass to make room.
2. A pod is created only under the name of a slot that no pod in the view holds, whatever state that
   pod is in: a terminating pod, and one that ended, hold their slot until the object is gone. The
   lowest such slots are taken (a pod that ended is deleted and replaced in its own), so that from
   equal views equal names follow.
3. Deletions name one incarnation by UID.

**One writer: active <= N, whatever is missed.** The view is the watch cache with the responses to
our own writes in it (read-your-writes), and after a write without a response the object is read
before the next reconcile. All pods that the set gains are gained by our own writes: creates and
adoptions. So what the view lacks are only changes by others: deletions, pods that ended. Hence
`active(view) >= active`, and by rule 1 a create never takes the set above N. A view that lags makes
us create too few for a while, never too many. A crash changes nothing: the next process lists
before it plans, and what the last one created is in the list. A leader that lost its Lease is
fenced off before the next one starts. (N comes from the spec in the view: a scale-down applies only
once it has been observed.)

**Many writers with arbitrary views: at most N pods with a slot below N.** Names are locks. Two
leaders that both scale 0 to 500 meet on the same 500 names, and half of their creates answer that
the pod exists. A pod with a higher slot, or with none, is there in few cases only: survivors of a
scale-down (the ranking took pods with lower slots), replacements of pods that are still terminating
or kept as history, slots skipped as somebody else has their name, adopted pods. Only while such
pods live can a second writer with an old view create a pod too many; the next reconcile deletes it.

**`podReplacementPolicy: TerminationComplete`** gives most of these up: only slots below N are
filled, a terminating pod keeps its place, no history is kept, and a name that somebody else has
leaves the slot empty.
While no pod has a higher slot, at most N pods of the set *exist*, terminating ones included, with
any number of writers and any views of the pods.

Survivors are left in peace: after 3 to 2 with slot 0 deleted, slots 1 and 2 are what the set has,
the number is right, and nothing is created. Back to 3, slot 0 is the lowest free one and is filled.
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
    """The desired state of a set, computed once per reconcile.

    Attributes:
        podset: The set.
        blueprint: What its pods have in common.
        budget: Bounds of an update.
        owner: Controller reference for the pods.
        former: What pods that a partition protects have in common; None if nothing else.
    """

    podset: PodSet
    blueprint: Blueprint
    budget: Budget
    owner: Manifest
    former: Blueprint | None = None

    @property
    def hashes(self) -> frozenset[str]:
        """Hashes of the templates that new pods are made from."""
        former = () if self.former is None else (self.former.template_hash,)
        return frozenset((self.blueprint.template_hash, *former))

    @property
    def is_strict(self) -> bool:
        """Whether a pod is replaced only once it is gone."""
        policy = self.podset.spec.pod_replacement_policy
        return policy is PodReplacementPolicy.TERMINATION_COMPLETE


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the pods that concern a set.

    Attributes:
        pods: Pods of the set, in whatever state.
        released: Pods that it controls and whose labels the selector does not match any more.
        orphans: Pods without a controller that it may adopt.
        history: Revisions of the set.
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
        active: Pods that count.
        terminating: Pods that are being deleted.
        available: Names of the pods that have been ready for long enough.
        available_after: Seconds until the next ready pod becomes available; None for none.
        rollout: How far an update is.
        missing: Pods to create, now or after a back-off; negative when there are too many.
        vacancies: How they must be filled.
        slots: Who holds which slot.
        window: Number of slots that the set needs: those below are its own by right.
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
        """Number of pods beyond what should exist at this moment."""
        return max(0, len(self.active) - self.rollout.target)


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes of a reconcile in batches, and the time of the next reconcile.

    Attributes:
        batches: Steps; a batch begins when the previous one it is done, and only if nothing failed.
        replaced: Ended pods that get a replacement.
        requeue_after: Seconds until time alone gives something to do; None for never.
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
    """Work out what the spec asks for.

    Args:
        podset: The set.
        owner: Controller reference for the pods.
        image: Image of the pods of a set without a template.
        blueprint: The template to use in place of spec.template; None for spec.template.

    Raises:
        TerminalError: The spec contradicts itself.
    """
    blueprint = blueprint or build_blueprint(podset, default_image=image)
    if not matches_selector(blueprint.selector, blueprint.labels):
        # Pods would be created, released for not matching, and created again without end.
        message = (
            f"PodSet {podset.key}: spec.selector does not match the labels of spec.template; "
            "add the labels to spec.template.metadata.labels"
        )
        raise TerminalError(Reason.INVALID_SPEC, message, field="spec.template.metadata.labels")
    if len(render_selector(blueprint.selector)) > SELECTOR_LIMIT:
        # The API server would refuse each status, and nothing would ever be reported.
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
    exact = len(facts.active) == wanted == len(facts.available)
    if exact and not facts.rollout.outdated:
        return update
    hashes = [pod.template_hash for pod in facts.active]
    return observed.history.find_former(desired.podset, hashes) or update


def plan_podset(desired: Desired, observed: Observed, now: datetime) -> Plan:
    """Plan the next writes for a set; none when it is as it should be.

    Applied, a plan may make a further one possible: plan again until no step is left.
    """
    facts = assess(desired, observed, now)
    if desired.podset.spec.paused:
        # Nothing is changed, but the status still says when a pod has been ready for long enough.
        return Plan(requeue_after=facts.available_after)
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
        requeue_after=_next_look(facts, now),
    )


def find_objection(desired: Desired, blueprint: Blueprint, pod: Manifest) -> str:
    """Say what admission made of a new pod that the set cannot live with; empty for nothing.

    A pod that the selector does not match would be released and replaced, and one without the hash
    of its template would always count as outdated: either would be replaced endlessly.
    """
    labels = pod["metadata"].get("labels") or {}
    selects = desired.podset.spec.selector is not None
    if selects and not matches_selector(blueprint.selector, labels):
        broken = "so that spec.selector does not match them"
    elif desired.budget.replaces and labels.get(TEMPLATE_HASH_LABEL) != blueprint.template_hash:
        broken = f"among them {TEMPLATE_HASH_LABEL}, by which an update knows its pods"
    else:
        return ""
    return (
        f"admission changed its labels, {broken}; it must keep the labels of spec.template and of"
        " the operator"
    )


def _plan_creates(desired: Desired, facts: Assessment, obsolete: list[PodView]) -> list[Step]:
    """Fill vacancies: of a pod that ended in its own slot if that is freed, others in free ones."""
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
        # Without attempts left nothing is looked up: a set that is in sync asks for no slot.
        free = facts.slots.free(besides=freed, limit=limit)
        wanted.extend(zip(islice(free, len(attempts)), attempts, strict=False))
    blueprints = _choose_blueprints(desired, facts)
    return [
        _build_create(desired, next(blueprints), slot, attempt) for slot, attempt in sorted(wanted)
    ]


def _choose_blueprints(desired: Desired, facts: Assessment) -> Iterator[Blueprint]:
    """Yield the template of each pod to create: first what a partition lacks of its older one."""
    if desired.former is not None:
        kept = min(desired.budget.partition, desired.podset.spec.replicas)
        yield from repeat(desired.former, max(0, kept - len(facts.rollout.outdated)))
    yield from repeat(desired.blueprint)


def _build_create(desired: Desired, blueprint: Blueprint, slot: int, attempt: int) -> Create:
    pod = build_pod(desired.podset, blueprint, slot, desired.owner, attempt=attempt)
    return Create(POD, pod, objection=partial(find_objection, desired, blueprint))


def _choose_victims(desired: Desired, facts: Assessment, now: datetime) -> list[PodView]:
    """Choose the pods to delete: the surplus, else those that an update replaces next."""
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
    # The version guards the owner references that the patch replaces as a whole.
    version = pod["metadata"].get("resourceVersion") or ""
    return Patch(POD, key_of(pod), uid_of(pod), operations, resource_version=version)


def _build_delete(desired: Desired, pod: PodView) -> Delete:
    return Delete(POD, Key(desired.podset.metadata.namespace, pod.name), pod.uid)


def _history_limit(desired: Desired) -> int:
    """Return how many ended pods are kept: none if each would block a slot permanently."""
    return 0 if desired.is_strict else desired.podset.spec.failed_pods_history_limit


def find_available(
    pods: Sequence[PodView], min_ready_seconds: int, now: datetime
) -> tuple[frozenset[str], float | None]:
    """Return the names of available pods, and the seconds until the next ready pod is one."""
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


def _next_look(facts: Assessment, now: datetime) -> float | None:
    """Return the seconds until a back-off ends or a pod becomes available."""
    waits = [facts.available_after] if facts.available_after is not None else []
    waits += [failure.retry_at - now.timestamp() for failure in facts.vacancies.waiting[:1]]
    return min(waits, default=None)
