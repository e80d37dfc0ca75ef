"""I/O for the revisions of a PodSet: reads them, records new templates, deletes old revisions.

The decisions are pure and live in `operators.podset.revisions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from libs.common.crd import kind_of
from libs.common.errors import TerminalError
from libs.common.kinds import CONTROLLER_REVISION, Key, Manifest, is_deleting, key_of
from libs.common.ownership import controller_of
from libs.common.plan import Outcome
from libs.common.reading import text_at
from libs.common.runtime import Cache, Context, IndexFunction
from operators.podset.api.v1 import PodSet, Reason
from operators.podset.naming import SET_LABEL
from operators.podset.reconcile import Desired, Observed, assess, build_desired, find_current
from operators.podset.resources import Blueprint
from operators.podset.revisions import History, build_history, plan_revisions, read_blueprint

_ORPHANS: Final = "orphaned revisions"


async def read_desired(context: Context, image: str) -> Desired:
    """Read the spec, and the revision if the spec names one.

    Raises:
        TerminalError: The spec is invalid, or names a revision that is not a revision of the
            PodSet.
    """
    podset = PodSet.parse(context.primary)
    name, blueprint = podset.spec.template_revision, None
    if name is not None:
        blueprint = await _read_revision(context, podset, name, image)
        if blueprint is None:
            message = (
                f"PodSet {podset.key}: spec.templateRevision: ControllerRevision {name} is not a "
                "revision of this set; list its revisions with `kubectl get controllerrevisions "
                f"--selector {SET_LABEL}={podset.metadata.name}`"
            )
            raise TerminalError(Reason.INVALID_SPEC, message, field="spec.templateRevision")
    return build_desired(podset, context.owner_reference(), image=image, blueprint=blueprint)


async def read_former(
    context: Context, desired: Desired, observed: Observed, image: str
) -> Desired:
    """Read the template of the pods that a partition protects."""
    if not desired.budget.partition:
        return desired
    current = find_current(desired, observed, assess(desired, observed, context.now()))
    if current is None or current.template_hash == desired.blueprint.template_hash:
        return desired
    former = await _read_revision(context, desired.podset, current.name, image)
    return replace(desired, former=former)


async def keep_history(
    context: Context, desired: Desired, observed: Observed
) -> tuple[Outcome, Observed]:
    """Record the template before pods are created from it, and delete revisions beyond the limit.

    The order matters: a pod whose template is not recorded could not be rolled back to, and a
    partition could not recreate it.
    """
    current = find_current(desired, observed, assess(desired, observed, context.now()))
    used = {pod.template_hash for pod in observed.pods}
    if current is not None:
        used.add(current.template_hash)
    steps = plan_revisions(desired.podset, desired.blueprint, desired.owner, observed.history, used)
    if not steps:
        return Outcome(), observed
    outcome = await context.execute(steps)
    return outcome, replace(observed, history=observe_history(context))


def observe_history(context: Context) -> History:
    """Read the revisions of a PodSet from the cache, and orphaned ones of an earlier PodSet."""
    found = context.indexed(CONTROLLER_REVISION, _ORPHANS, str(context.key))
    orphans = [each for each in found if not is_deleting(each)]
    return build_history(context.children(CONTROLLER_REVISION), orphans)


async def _read_revision(
    context: Context, podset: PodSet, name: str, image: str
) -> Blueprint | None:
    # A live read: the cache drops the templates, which are large and rarely needed.
    held = await context.live_get(CONTROLLER_REVISION, Key(context.key.namespace, name))
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
