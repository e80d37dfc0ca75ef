"""The condition UpToDate and the versions in the status. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from libs.common.conditions import Condition
from operators.clusters.api.reasons import ConditionType, Reason
from operators.clusters.api.v1alpha1 import NODES_SHOWN, KubernetesCluster, NodeVersion
from operators.clusters.causes import (
    Cause,
    describe_work,
    find_away,
    find_causes,
    find_failed_upgrade,
    find_finished,
    find_joining,
    is_drained_by_us,
    is_outdated,
    is_over_budget,
    list_open,
    list_staying,
)
from operators.clusters.health import evaluate_all, list_broken
from operators.clusters.observed import Observed, drain_seconds, is_initialized, names_of
from operators.clusters.replacement import explain_blocked
from operators.clusters.upgrade import count_versions, is_behind, is_config_behind
from operators.clusters.versions import is_older

_TYPE: Final = ConditionType.UP_TO_DATE
_VERSIONS_SHOWN: Final = 8


def list_versions(observed: Observed) -> list[NodeVersion]:
    """Return the nodes grouped by version, oldest version first."""
    found = count_versions(observed)
    return [
        NodeVersion(version=version, count=len(names), nodes=names[:NODES_SHOWN])
        for version, names in list(found.items())[:_VERSIONS_SHOWN]
    ]


def evaluate_version(cluster: KubernetesCluster, observed: Observed, now: datetime) -> Condition:
    """Build the condition UpToDate: whether every node has the version in the spec."""
    target = cluster.spec.version
    if not is_initialized(cluster, observed):
        message = "no node has joined yet"
        return Condition.unknown(_TYPE, Reason.WAITING_FOR_CONTROL_PLANE, message)
    if not observed.workload.reachable:
        message = "the API of the cluster does not respond, so versions cannot be read"
        return Condition.unknown(_TYPE, Reason.UNREACHABLE, message)
    versions = count_versions(observed)
    if not versions:
        message = "no node reports a version of Kubernetes"
        return Condition.unknown(_TYPE, Reason.VERSION_UNKNOWN, message)
    old = [
        name for version, names in versions.items() if is_older(version, target) for name in names
    ]
    if old or is_config_behind(cluster, observed):
        reason, words = _explain(cluster, observed, now)
        total = sum(map(len, versions.values()))
        progress = f"{total - len(old)} of {total} nodes have {target}"
        return Condition.false(_TYPE, reason, f"{progress}: {words}")
    if is_older(observed.workload.proxy_version, target):
        message = f"every node has {target}; DaemonSet kube-system/kube-proxy is changed next"
        return Condition.false(_TYPE, Reason.UPGRADING, message)
    return Condition.true(_TYPE, Reason.AVAILABLE, f"every node has {target}")


def _explain(cluster: KubernetesCluster, observed: Observed, now: datetime) -> tuple[Reason, str]:
    """Return reason and message of an upgrade: its current step, or what it waits for."""
    if is_config_behind(cluster, observed):
        return Reason.UPGRADING, "ConfigMap kube-system/kubeadm-config gets the version first"
    node_health = evaluate_all(cluster, observed, now)
    causes = find_causes(cluster, observed, node_health)
    for operation in observed.operations.values():
        if not operation.finished:
            return Reason.UPGRADING, describe_work(operation)
    away = find_away(cluster, observed, node_health)
    if away is not None:
        why = node_health[away.key.name].message or "it still reports its old version"
        return Reason.UPGRADING, f"waiting until {away.key.name} is back: {why}"
    failed = find_failed_upgrade(observed, causes)
    if failed is not None:
        return Reason.UPGRADE_FAILED, _explain_failure(cluster, observed, failed)
    upgrades = [each for each in causes if each.reason is Reason.UPGRADING]
    if not upgrades:
        return Reason.UPGRADE_WAITING, "the nodes with an old version are being removed or created"
    first = upgrades[0]
    if problem := _explain_wait(cluster, observed, first, now):
        return Reason.UPGRADE_WAITING, f"{first.node} waits: {problem}"
    if is_drained_by_us(observed, first.instance):
        limit = drain_seconds(cluster, first.instance)
        return Reason.UPGRADING, f"{first.node} is being drained, for {limit} s at most"
    return Reason.UPGRADING, f"{first.node} is next"


def _explain_failure(cluster: KubernetesCluster, observed: Observed, cause: Cause) -> str:
    operation = find_finished(observed, cause)
    target = cluster.spec.version
    if operation is not None and operation.succeeded and not is_outdated(observed, cause):
        return (
            f"{cause.node} was rebuilt and has {observed.version_of(cause.node)}; set an image "
            f"that has {target} in spec.image or in the image of its pool"
        )
    message = operation.message if operation is not None else ""
    return (
        f"{cause.node} could not be rebuilt: {message}; fix the image in the spec, or delete "
        f"Operation {cause.operation} to try again"
    )


def _explain_wait(
    cluster: KubernetesCluster, observed: Observed, cause: Cause, now: datetime
) -> str:
    if cause.is_plane:
        return explain_blocked(cluster, observed, cause)
    if is_behind(cluster, observed):
        return "the control plane is upgraded first"
    node_health = evaluate_all(cluster, observed, now)
    broken = list_broken(list_staying(cluster, observed), node_health)
    if is_over_budget(cluster, broken):
        limit = cluster.spec.health.max_unhealthy
        return (
            f"{len(broken)} nodes are broken and spec.health.maxUnhealthy is {limit}; repair "
            f"{names_of(broken)}"
        )
    joining = find_joining(cluster, observed, node_health)
    if joining is not None:
        return f"{joining.key.name} is not ready yet: {node_health[joining.key.name].message}"
    if cause not in list_open(cluster, observed, node_health):
        return "another node is rebuilt first"
    return ""
