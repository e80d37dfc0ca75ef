"""The operator clustersecrets: what it watches, and how it reconciles a ClusterSecret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from libs.common.conditions import Condition, build_status
from libs.common.kinds import NAMESPACE, SECRET, Key, Manifest, build_object, is_deleting, key_of
from libs.common.labels import MANAGED_BY
from libs.common.plan import Apply, Delete, Step, StepFailure
from libs.common.reading import text_map_at
from libs.common.runtime import Cache, Context, Controller, Operator, Result
from libs.common.settings import CommonSettings
from libs.examples.clustersecrets.api import (
    CLUSTER_SECRET,
    ClusterSecret,
    ClusterSecretSpec,
    ConditionType,
    Reason,
)

ID: Final = "clustersecrets"
POLL_SECONDS: Final = 60.0
"""Seconds between two reads of the Secret of `spec.valueFrom`."""


class SourceNotFoundError(Exception):
    """The Secret of `spec.valueFrom`, or one of its keys, does not exist."""


def select_namespaces(spec: ClusterSecretSpec, namespaces: Iterable[Manifest]) -> list[str]:
    """Return the names of the namespaces that get the Secret."""

    def matches(patterns: Sequence[str], name: str) -> bool:
        return any(re.match(pattern, name) for pattern in patterns)

    # Nothing can be created in a namespace that is being deleted.
    names = [key_of(each).name for each in namespaces if not is_deleting(each)]
    wanted = [name for name in names if matches(spec.match_namespaces, name)]
    return [name for name in wanted if not matches(spec.avoid_namespaces, name)]


def build_secret(
    parent: ClusterSecret, namespace: str, data: Mapping[str, str], owner: Manifest
) -> Manifest:
    """Build the Secret of a namespace. Its owner reference has it deleted with its owner."""
    metadata = {
        "labels": {**parent.spec.labels, MANAGED_BY: ID},
        "annotations": parent.spec.annotations,
        "ownerReferences": [owner],
    }
    name, type_ = parent.metadata.name, parent.spec.type
    return build_object(SECRET, name, namespace, metadata=metadata, type=type_, data=dict(data))


def plan(wanted: Sequence[Manifest], children: Iterable[Manifest]) -> list[Step]:
    """Plan the writes: apply each wanted Secret, delete the others. Pure, so easy to test."""
    keys = {key_of(secret) for secret in wanted}
    applies: list[Step] = [Apply(SECRET, secret) for secret in wanted]
    return [*applies, *(Delete.of(SECRET, each) for each in children if key_of(each) not in keys)]


def evaluate_ready(wanted: int, failures: Sequence[StepFailure]) -> Condition:
    """Evaluate the condition Ready after the writes."""
    if not failures:
        message = f"{wanted} namespaces have the Secret"
        return Condition.true(ConditionType.READY, Reason.SYNCED, message)
    first = failures[0]
    message = f"{len(failures)} writes failed: {first.step}: {first.message}"
    return Condition.false(ConditionType.READY, Reason.FAILED, message)


async def read_data(ctx: Context, spec: ClusterSecretSpec) -> Mapping[str, str]:
    """Return the entries of the Secrets.

    The Secret of `spec.valueFrom` is read from the API server: a watch would keep all Secrets of
    the cluster in memory.

    Raises:
        SourceNotFoundError: The Secret, or one of its keys, does not exist.
    """
    if spec.value_from is None:
        return spec.data or {}
    source = Key(spec.value_from.namespace, spec.value_from.name)
    secret = await ctx.live_get(SECRET, source)
    if secret is None:
        raise SourceNotFoundError(f"Secret {source} does not exist; create it")
    data = text_map_at(secret, "data")
    keys = spec.value_from.keys or list(data)
    if missing := [key for key in keys if key not in data]:
        raise SourceNotFoundError(f"Secret {source} has no key {missing[0]}; add it")
    return {key: data[key] for key in keys}


async def take_all(ctx: Context, steps: Sequence[Step]) -> list[StepFailure]:
    """Take every step, and return the failures: one namespace must not stop the others."""
    failures: list[StepFailure] = []
    while steps:
        outcome = await ctx.execute(steps)
        failures += outcome.failures
        steps = outcome.skipped
    return failures


async def reconcile(ctx: Context) -> Result | None:
    """Bring the cluster in line with one ClusterSecret."""
    parent = ClusterSecret.parse(ctx.primary)
    failures: list[StepFailure] = []
    try:
        data = await read_data(ctx, parent.spec)
    except SourceNotFoundError as err:
        ready = Condition.false(ConditionType.READY, Reason.SOURCE_NOT_FOUND, str(err))
    else:
        owner, namespaces = ctx.owner_reference(), ctx.list(NAMESPACE)
        selected = select_namespaces(parent.spec, namespaces)
        wanted = [build_secret(parent, name, data, owner) for name in selected]
        failures = await take_all(ctx, plan(wanted, ctx.children(SECRET)))
        ready = evaluate_ready(len(wanted), failures)
    await ctx.apply_status(build_status(ctx.primary, [ready], ctx.now()))
    return Result(
        requeue_after=POLL_SECONDS if parent.spec.value_from else None,
        error=failures[0].error if failures else None,
    )


def map_namespace(_: Manifest, cache: Cache) -> Iterable[Key]:
    """Enqueue every ClusterSecret when a namespace changes."""
    return cache.store(CLUSTER_SECRET).keys()


def build_controller(_: CommonSettings) -> Controller:
    """Declare the controller of ClusterSecret; the permissions are derived from it."""
    controller = Controller(ID, primary=CLUSTER_SECRET, reconcile=reconcile)
    # The cache needs no Secrets of others: the writer asks the API server who has a name.
    ours, writes = f"{MANAGED_BY}={ID}", ("create", "patch", "delete")
    controller.owns(SECRET, label_selector=ours, writes=writes)
    return controller.watches(NAMESPACE, map_namespace)


OPERATOR: Final = Operator(ID, (build_controller,))
"""The operator. In a standalone project, `python -m slipway_operators.run controller` runs it."""
