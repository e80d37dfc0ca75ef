"""I/O for the revisions of a PodSet: reads them, records new templates, deletes old revisions.

The decisions are pure and live in `operators.podset.revisions`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from libs.common.crd import PodTemplate, kind_of
from libs.common.errors import ApiError, BadRequest, CreateError, Forbidden, Invalid, TerminalError
from libs.common.kinds import CONTROLLER_REVISION, POD, Key, Manifest, is_deleting, key_of
from libs.common.ownership import controller_of
from libs.common.plan import Create, Outcome, StepFailure
from libs.common.reading import holds_at, text_at
from libs.common.runtime import SERVER_WARNING, Cache, Context, IndexFunction
from operators.podset.api.v1 import ConditionType, PodSet, Reason
from operators.podset.meaning import POD_TEMPLATE, means_same, normalize
from operators.podset.naming import SET_LABEL, parse_revision_name
from operators.podset.reconcile import Desired, Observed, assess, build_desired, find_current
from operators.podset.resources import Blueprint, build_blueprint
from operators.podset.revisions import (
    History,
    Revision,
    build_alias_patch,
    build_history,
    plan_revisions,
    read_blueprint,
)
from operators.podset.view import parse_pod

_ORPHANS: Final = "orphaned revisions"


async def read_desired(ctx: Context, image: str) -> Desired:
    """Read the spec, and the revision if the spec names one.

    If that revision does not exist, or if the set is paused, new pods get the template that the
    pods of the set have.

    Raises:
        TerminalError: The spec is invalid, or names a revision that is not a revision of the
            PodSet, and the template of its pods is not known either.
    """
    podset = PodSet.parse(ctx.primary)
    name = podset.spec.template_revision
    blueprint = _build_own(ctx, podset, image)
    problem = ""
    if name is not None:
        found = await _read_named(ctx, podset, name, image)
        problem = "" if found is not None else _explain_missing(ctx, podset, name)
        blueprint = found or blueprint
    if not problem and not podset.spec.paused:
        return build_desired(podset, ctx.owner_reference(), image=image, blueprint=blueprint)
    held = await _read_held(ctx, podset, blueprint, image)
    if problem:
        if held is None:
            raise TerminalError(Reason.INVALID_SPEC, problem, field="spec.templateRevision")
        blueprint = held
    desired = build_desired(podset, ctx.owner_reference(), image=image, blueprint=blueprint)
    return _hold(desired, held, problem)


def _hold(desired: Desired, held: Blueprint | None, problem: str = "") -> Desired:
    """Keep the template that pods have, also for new pods; None if it is not known."""
    budget = replace(desired.budget, paused=True)
    can_create = held is not None
    return replace(desired, budget=budget, former=held, can_create=can_create, problem=problem)


def _explain_missing(ctx: Context, podset: PodSet, name: str) -> str:
    message = (
        f"PodSet {podset.key}: spec.templateRevision: ControllerRevision {name} is not a revision "
        "of this set; remove the field to use spec.template"
    )
    if not observe_history(ctx).revisions:
        return message
    selector = f"{SET_LABEL}={podset.metadata.name}"
    return (
        f"{message}, or name one of the revisions that `kubectl get controllerrevisions "
        f"--selector {selector}` lists"
    )


async def _read_named(ctx: Context, podset: PodSet, name: str, image: str) -> Blueprint | None:
    """Return the template of a revision, even if the revision was deleted.

    Its name contains the hash of its template, so spec.template or another revision can have the
    same template: after a restore, the same revision has another name.
    """
    found = await _read_revision(ctx, podset, name, image)
    if found is not None:
        return found
    template_hash = parse_revision_name(podset.metadata.name, name)
    return await _read_template(ctx, podset, template_hash, image)


async def _read_held(
    ctx: Context, podset: PodSet, wanted: Blueprint, image: str
) -> Blueprint | None:
    """Return the newest template that pods of a set have, or had before it was scaled to 0."""
    pods = [parse_pod(pod, podset.metadata.name) for pod in ctx.children(POD)]
    hashes = {pod.template_hash for pod in pods if pod.is_active}
    if wanted.template_hash in hashes:
        return wanted
    history = observe_history(ctx)
    used = [each for each in history.revisions if each.template_hash in hashes]
    newest = used[-1] if used else history.find_former(podset, ())
    candidates = {newest.template_hash} if newest is not None else hashes
    for template_hash in sorted(candidates):
        found = await _read_template(ctx, podset, template_hash, image)
        if found is not None:
            return found
    return None


def _build_own(ctx: Context, podset: PodSet, image: str) -> Blueprint:
    """Build spec.template, with the hash of the revision that is known to mean the same."""
    return observe_history(ctx).recognize(build_blueprint(podset, default_image=image))


async def _read_template(
    ctx: Context, podset: PodSet, template_hash: str, image: str
) -> Blueprint | None:
    """Return the template with a hash: spec.template, or the template of a revision."""
    own = _build_own(ctx, podset, image)
    if own.template_hash == template_hash:
        return own
    revision = observe_history(ctx).find(template_hash)
    if revision is None:
        return None
    return await _read_revision(ctx, podset, revision.name, image)


async def read_former(ctx: Context, desired: Desired, observed: Observed, image: str) -> Desired:
    """Read the template of the pods that a partition protects."""
    if not desired.budget.partition or desired.is_held:
        return desired
    current = find_current(desired, observed, assess(desired, observed, ctx.now()))
    if current is None or current.template_hash == desired.blueprint.template_hash:
        return desired
    former = await _read_revision(ctx, desired.podset, current.name, image)
    return replace(desired, former=former)


async def keep_history(
    ctx: Context, desired: Desired, observed: Observed, image: str
) -> tuple[Outcome, Desired, Observed]:
    """Record the template before pods are created from it, and delete revisions beyond the limit.

    The order matters: a pod whose template is not recorded could not be rolled back to, and a
    partition could not recreate it. If it cannot be recorded, pods keep the template that they
    have, and those that end are still replaced. A first failure only waits for the retry: pods
    that were created from the old template meanwhile would be replaced at once.
    """
    outcome, used = Outcome(), frozenset[str]()
    if observed.history.orphans:
        outcome, observed = await _write_history(ctx, desired, observed, used)
    if outcome.ok:
        current = find_current(desired, observed, assess(desired, observed, ctx.now()))
        used = frozenset(pod.template_hash for pod in observed.pods)
        if current is not None:
            used |= {current.template_hash}
        outcome, desired = await _recognize(ctx, desired, observed.history, used)
    if outcome.ok:
        outcome, observed = await _write_history(ctx, desired, observed, used)
    failed = any(not isinstance(failure.error, CreateError) for failure in outcome.failures)
    if failed and holds_at(ctx.primary, ConditionType.REPLICA_FAILURE):
        held = await _read_held(ctx, desired.podset, desired.blueprint, image)
        desired = _hold(desired, held)
    return outcome, desired, observed


async def _write_history(
    ctx: Context, desired: Desired, observed: Observed, used: frozenset[str]
) -> tuple[Outcome, Observed]:
    steps = plan_revisions(desired.podset, desired.blueprint, desired.owner, observed.history, used)
    if not steps:
        return Outcome(), observed
    outcome = await ctx.execute(steps)
    return outcome, replace(observed, history=observe_history(ctx))


async def _recognize(
    ctx: Context, desired: Desired, history: History, used: Container[str]
) -> tuple[Outcome, Desired]:
    """Give a new template the hash of a revision in use that means the same.

    A server that cannot tell now, for example because a webhook does not answer, is a failure: for
    a new template all pods would be replaced.
    """
    blueprint = history.recognize(desired.blueprint)
    if history.find(blueprint.template_hash) is None:
        in_use = [each for each in reversed(history.revisions) if each.template_hash in used]
        try:
            same = await _find_same(ctx, desired.podset, blueprint.template, in_use)
        except ApiError as err:
            step = Create(POD_TEMPLATE, {"metadata": ctx.key._asdict()})
            return Outcome(failures=(StepFailure(step, err),)), desired
        if same is not None:
            alias = build_alias_patch(ctx.key.namespace, same, blueprint.template_hash)
            await ctx.execute([alias])
            blueprint = blueprint.with_hash(same.template_hash)
    return Outcome(), replace(desired, blueprint=blueprint)


async def _find_same(
    ctx: Context, podset: PodSet, template: PodTemplate | None, revisions: Iterable[Revision]
) -> Revision | None:
    """Return the revision whose template the API server reads like another one, or None."""
    place, warnings = ctx.key.namespace, list[str]()
    wanted: Manifest | None = None
    if template is None:
        return None
    for revision in revisions:
        held = await _read_revision(ctx, podset, revision.name, "")
        if held is None or held.template is None:
            continue
        try:
            wanted = wanted or await normalize(ctx.client, place, template, warnings.append)
            normal = await normalize(ctx.client, place, held.template)
        except (BadRequest, Forbidden, Invalid) as err:
            # A refusal must not prevent an update: the template is a new one then.
            ctx.log.debug("Cannot compare templates", revision=revision.name, error=str(err))
            return None
        if means_same(wanted, normal):
            for text in warnings:
                # No pod is created from this template, so nothing else reports unknown fields.
                note = f"The API server warns about spec.template: {text}"
                ctx.event("Warning", SERVER_WARNING, note)
            return revision
    return None


def observe_history(ctx: Context) -> History:
    """Read the revisions of a PodSet from the cache, and orphaned ones of an earlier PodSet."""
    found = ctx.indexed(CONTROLLER_REVISION, _ORPHANS, str(ctx.key))
    orphans = [each for each in found if not is_deleting(each)]
    return build_history(ctx.children(CONTROLLER_REVISION), orphans)


async def _read_revision(ctx: Context, podset: PodSet, name: str, image: str) -> Blueprint | None:
    # A live read: the cache drops the templates, which are large and rarely needed.
    held = await ctx.live_get(CONTROLLER_REVISION, Key(ctx.key.namespace, name))
    return None if held is None else read_blueprint(podset, held, default_image=image)


def index_orphans(revision: Manifest) -> Iterable[str]:
    """Index revisions without a controller by the PodSet that may adopt them."""
    return [] if controller_of(revision) else [str(_set_of(revision))]


def map_revision(revision: Manifest, cache: Cache) -> list[Key]:
    """Map an orphaned revision to the PodSet that may adopt it."""
    key = _set_of(revision)
    return [key] if not controller_of(revision) and cache.store(_PODSET).get(key) else []


def _set_of(revision: Manifest) -> Key:
    return Key(key_of(revision).namespace, text_at(revision, "metadata", "labels", SET_LABEL))


_PODSET: Final = kind_of(PodSet)
REVISION_INDEXES: Final[Mapping[str, IndexFunction]] = {_ORPHANS: index_orphans}
"""Indexes of the revisions in the cache."""
