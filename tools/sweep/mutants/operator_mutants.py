"""Mutants of the operators themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.podset import reconcile as podset
from operators.volumes import controller
from operators.volumes import reconcile as volumes
from operators.volumes.api.v1alpha1 import ReclaimPolicy
from operators.volumes.observed import ClaimOwnership
from tools.sweep.mutants.mutant import swap


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
