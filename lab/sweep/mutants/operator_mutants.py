"""Mutants of the operators themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.sweep.mutants.mutant import swap
from libs.common.runtime.informer import Informer
from operators.ipam.ledger_projection import LedgerProjection
from operators.podset import reconcile as podset
from operators.volumes import controller
from operators.volumes import reconcile as volumes
from operators.volumes.api.v1alpha1 import ReclaimPolicy
from operators.volumes.observed import ClaimOwnership


def surge_without_bound() -> None:
    """Create all pods of the new template before any old one goes."""

    def parse_budget(spec: Any) -> Any:
        return replace(before(spec), surge=spec.replicas)

    before = swap(podset, "parse_budget", parse_budget)


def take_over_claims() -> None:
    """Treat whatever has the name of the claim as ours."""

    def find_ownership(volume: Any, observed: Any) -> ClaimOwnership:
        found: ClaimOwnership = before(volume, observed)
        return found if found is ClaimOwnership.ABSENT else ClaimOwnership.OURS

    before = swap(volumes, "find_ownership", find_ownership)
    swap(volumes, "is_ours", lambda volume, claim: True)


def release_first() -> None:
    """Take the finalizer off before the clean-up."""

    async def finalize(self: Any, ctx: Any) -> None:
        return None

    swap(controller.Reconciler, "finalize", finalize)


def delete_kept_claims() -> None:
    """Delete a claim with its DemoVolume whatever the policy says."""

    def plan_finalize(volume: Any, observed: Any) -> Any:
        spec = volume.spec.model_copy(update={"reclaim_policy": ReclaimPolicy.DELETE})
        return before(volume.model_copy(update={"spec": spec}), observed)

    before = swap(controller, "plan_finalize", plan_finalize)


def remember_requests() -> None:
    """Ask for a size once and remember that in memory, whatever came of it."""
    asked: set[Any] = set()

    def plan_request(size: Any, claim: Any, rule: Any) -> Any:
        wanted = before(size, claim, rule)
        if wanted is None or (claim.uid, wanted) in asked:
            return None
        asked.add((claim.uid, wanted))
        return wanted

    before = swap(volumes, "plan_request", plan_request)


def lose_failed_mappings() -> None:
    """Fail to map the first change of each claim, and reconcile nothing in its place."""
    failed: set[str] = set()

    def map_claim(claim: Any, cache: Any) -> Any:
        version = claim["metadata"]["resourceVersion"]
        if claim["metadata"]["name"] not in failed or version in failed:
            failed.update((claim["metadata"]["name"], version))
            raise KeyError("target")
        return before(claim, cache)

    def add_handler(self: Informer, handler: Any, repair: Any = None) -> None:
        add(self, handler)

    before = swap(controller, "map_claim", map_claim)
    add = swap(Informer, "add_handler", add_handler)
    # The log must not be what finds it.
    swap(Informer, "_note_handler_error", lambda self, change, err: None)


def keep_broken_projection() -> None:
    """Fail on the first change of each kind, and go on with a projection that lacks it."""
    failed: set[Any] = set()

    def changed(self: LedgerProjection, change: Any) -> None:
        if change.kind not in failed:
            failed.add(change.kind)
            raise KeyError("prefix")
        before(self, change)

    def add_handler(self: Informer, handler: Any, repair: Any = None) -> None:
        add(self, handler)

    before = swap(LedgerProjection, "changed", changed)
    add = swap(Informer, "add_handler", add_handler)
    # The log must not be what finds it.
    swap(Informer, "_note_handler_error", lambda self, change, err: None)
