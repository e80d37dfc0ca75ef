"""Mutants: changes of our own code that bring back the kind of bugs that others published.

A sweep that lets one of them live would let that bug through.
"""

from __future__ import annotations

from typing import Final

from tools.sweep.modes import Mode
from tools.sweep.mutants import operator_mutants as operators
from tools.sweep.mutants import runtime_mutants as runtime
from tools.sweep.mutants.mutant import Mutant

_GITHUB: Final = "https://github.com"
_FOUND_HERE: Final = "found here by the conformance suite"
_REVIEWED: Final = "found here by a review"
_INVENTED: Final = "none: invented here"

_ALL: Final = (
    Mutant(
        "generate-names",
        "podset",
        "strict",
        (),
        f"{_GITHUB}/crossplane/crossplane/issues/3037",
        "lets the server choose names",
        runtime.generate_names,
    ),
    Mutant(
        "random-names",
        "podset",
        "strict",
        (),
        f"{_GITHUB}/kubevirt/kubevirt/issues/837",
        "names pods at random",
        runtime.randomize_names,
    ),
    Mutant(
        "count-then-create",
        "podset",
        "rolling",
        (Mode.DELAY,),
        f"{_GITHUB}/ray-project/kuberay/issues/715",
        "counts pods in a cache without its own writes",
        runtime.count_stale_cache,
    ),
    Mutant(
        "no-look-up",
        "podset",
        "rolling",
        (Mode.A1,),
        f"{_GITHUB}/crossplane/crossplane-runtime/issues/279",
        "retries a lost create under a new name, without reading first",
        runtime.forget_lost_responses,
    ),
    Mutant(
        "delete-by-name",
        "podset",
        "strict",
        (),
        f"{_GITHUB}/rabbitmq/cluster-operator/issues/648",
        "deletes any object with the name",
        runtime.delete_by_name,
    ),
    Mutant(
        "overwrite-foreign",
        "podset",
        "strict",
        (Mode.E409,),
        f"{_GITHUB}/golang/vulndb/issues/4105",
        "deletes a foreign object with the same name",
        runtime.overwrite_foreign,
    ),
    Mutant(
        "equal-status",
        "podset",
        "strict",
        (),
        f"{_GITHUB}/operator-framework/operator-lifecycle-manager/issues/1816",
        "writes the status in each reconcile",
        runtime.write_equal_status,
    ),
    Mutant(
        "renewed-times",
        "podset",
        "strict",
        (),
        f"{_GITHUB}/Hostzero-GmbH/keycloak-operator/issues/121",
        "sets lastTransitionTime in each reconcile",
        runtime.renew_condition_times,
    ),
    Mutant(
        "drop-failed-keys",
        "podset",
        "strict",
        (Mode.E500,),
        f"{_GITHUB}/Orange-OpenSource/casskop/issues/370",
        "forgets an object whose reconcile failed",
        runtime.drop_failed_keys,
    ),
    Mutant(
        "retry-at-once",
        "podset",
        "strict",
        (Mode.OUTAGE,),
        f"{_GITHUB}/kubernetes/kubernetes/issues/27634",
        "retries without any delay",
        runtime.retry_at_once,
    ),
    Mutant(
        "skip-relisting",
        "podset",
        "strict",
        (Mode.GONE,),
        f"{_GITHUB}/instaclustr/cassandra-operator/issues/398",
        "misses deletions during a gap of the watch",
        runtime.skip_relisting,
    ),
    Mutant(
        "skip-sweeps",
        "podset",
        "strict",
        (Mode.DROP,),
        f"{_GITHUB}/etcd-io/etcd/issues/17529",
        "assumes that a watch misses nothing",
        runtime.skip_sweeps,
    ),
    Mutant(
        "unguarded-patches",
        "volumes",
        "delete",
        (),
        f"{_GITHUB}/pravega/zookeeper-operator/issues/314",
        "patches finalizers without checking the UID",
        runtime.guard_nothing,
    ),
    Mutant(
        "bury-on-conflict",
        "podset",
        "strict",
        (Mode.E409,),
        _FOUND_HERE,
        "treats a conflict of a deletion as success",
        runtime.tombstone_on_conflict,
    ),
    Mutant(
        "unbounded-surge",
        "podset",
        "rolling",
        (),
        f"{_GITHUB}/elastic/cloud-on-k8s/issues/5274",
        "creates all new pods before deleting an old one",
        operators.surge_without_bound,
    ),
    Mutant(
        "take-over-claims",
        "volumes",
        "delete",
        (Mode.E409,),
        f"{_GITHUB}/golang/vulndb/issues/4105",
        "treats any object with the name as its own",
        operators.take_over_claims,
    ),
    Mutant(
        "finalizer-first",
        "volumes",
        "retain",
        (),
        f"{_GITHUB}/Orange-OpenSource/casskop/issues/370",
        "removes its finalizer before the clean-up",
        operators.release_first,
    ),
    Mutant(
        "delete-kept-claims",
        "volumes",
        "retain",
        (),
        f"{_GITHUB}/redpanda-data/redpanda-operator/pull/1866",
        "deletes claims that must be kept",
        operators.delete_kept_claims,
    ),
    Mutant(
        "remembered-requests",
        "volumes",
        "delete",
        (Mode.E500,),
        f"{_GITHUB}/rabbitmq/cluster-operator/issues/782",
        "compares with the requested instead of the actual state",
        operators.remember_requests,
    ),
    Mutant(
        "lost-wake-ups",
        "podset",
        "strict",
        (Mode.DELAY,),
        _REVIEWED,
        "forgets a change that arrives during a reconcile",
        runtime.drop_changes_at_work,
    ),
    Mutant(
        "keep-unlisted",
        "podset",
        "strict",
        (Mode.GONE,),
        _REVIEWED,
        "keeps objects that were on no page of a listing",
        runtime.keep_unlisted,
    ),
    Mutant(
        "failing-mapper",
        "volumes",
        "delete",
        (),
        _REVIEWED,
        "loses a change whose mapper failed",
        operators.lose_failed_mappings,
    ),
    Mutant(
        "broken-projection",
        "ipam",
        "claim",
        (),
        _REVIEWED,
        "continues with a projection that failed on a change",
        operators.keep_broken_projection,
    ),
    Mutant(
        "trust-applied",
        "network",
        "firewall",
        (),
        _INVENTED,
        "takes an object that exists for one that is up to date",
        runtime.trust_applied,
    ),
)

MUTANTS: Final = {mutant.id: mutant for mutant in _ALL}
"""All mutants by name."""
