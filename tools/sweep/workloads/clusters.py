"""Workloads of the clusters operator: a cluster that grows, has a node rebuilt, shrinks and goes.

The operators beside and the API of the cluster are played, each at once: a node joins as soon as
its machine runs, and its pods leave when they are evicted. `operators/clusters/apiserver_test.py`
has the API of a real cluster.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from libs.common.contracts.compute import INSTANCE, OPERATION
from libs.common.contracts.ip_claims import IP_CLAIM
from libs.common.contracts.network import FIREWALL
from libs.common.contracts.reading import holds_at, text_at
from libs.common.crd import build_crd
from libs.common.kinds import (
    ENDPOINT_SLICE,
    SECRET,
    SERVICE,
    Manifest,
    is_deleting,
    key_of,
)
from operators.clusters.api.reasons import ConditionType
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.controller import OPERATOR
from operators.clusters.naming import (
    authorities_name,
    endpoint_name,
    join_name,
    kubeconfig_name,
    user_data_name,
)
from operators.clusters.rbac import RULES
from tools.sweep.faults import is_foreign
from tools.sweep.modes import Mode
from tools.sweep.outside import Outside
from tools.sweep.played_cluster import READY, PlayedCluster, pool_of
from tools.sweep.recorder import Book, Version
from tools.sweep.triggers import Trigger
from tools.sweep.virtualization import show_status
from tools.sweep.workload import (
    Phase,
    Shown,
    State,
    User,
    Workload,
    build_open_crd,
    is_empty,
    is_observed,
)

_NAME: Final = "edge"
_REBUILD: Final = re.compile(r"-rebuild-[0-9a-f]{8}")
"""What the names of Operations end with: a hash that covers the UID of the node."""
_LOST: Final = (authorities_name(_NAME), f"{_NAME}-{CONTROL_PLANE}-0")
"""What is not made again: a cluster without it has lost its data."""
_NAMED_ALIKE: Final = (SERVICE, ENDPOINT_SLICE, IP_CLAIM)


def check_nodes(history: Sequence[Version]) -> list[str]:
    """Check that no pool ever has more machines than were ever asked of it."""
    asked: Counter[str] = Counter({CONTROL_PLANE: 1})
    live: dict[str, str] = {}
    found = []
    for version in history:
        if version.kind == KUBERNETES_CLUSTER:
            for pool in version.manifest["spec"]["pools"]:
                asked[pool["name"]] = max(asked[pool["name"]], pool["count"])
        elif version.kind == INSTANCE and not is_foreign(version):
            live[version.name] = pool_of(version.manifest)
            if version.action == "DELETED":
                del live[version.name]
            counts = Counter(live.values())
            found += [f"pool {pool} has {counts[pool]} machines" for pool in counts - asked]
    return found


def check_order(history: Sequence[Version]) -> list[str]:
    """Check that the control plane outlives the pools, and that its address outlives both."""
    live: dict[str, str] = {}
    found = []
    for version in history:
        going = is_deleting(version.manifest) or version.action == "DELETED"
        pools = set(live.values())
        if version.kind == INSTANCE and not is_foreign(version):
            pool = pool_of(version.manifest)
            if (
                version.phase == "delete"
                and going
                and pool == CONTROL_PLANE
                and pools - {CONTROL_PLANE}
            ):
                found.append(f"{version.title} goes before the nodes of the pools")
            live[version.name] = pool
            if version.action == "DELETED":
                del live[version.name]
        elif version.kind == IP_CLAIM and version.phase == "delete" and going and pools:
            found.append(f"{version.title} goes before the nodes")
    return found


def check_authorities(history: Sequence[Version]) -> list[str]:
    """Check that a cluster has the same authorities for as long as it has any machine."""
    held = ""
    found = []
    for version in history:
        if version.kind != SECRET or version.name != authorities_name(_NAME):
            continue
        data = json.dumps(version.manifest.get("data"), sort_keys=True)
        if is_foreign(version) or version.action == "DELETED":
            continue
        if held and data != held:
            found.append(f"{version.title} has other authorities than before")
        held = data
    return found


def check_rebuilds(history: Sequence[Version]) -> list[str]:
    """Check that nodes are rebuilt one at a time."""
    open_: set[str] = set()
    found = []
    for version in history:
        if version.kind != OPERATION or is_foreign(version):
            continue
        ended = text_at(version.manifest, "status", "phase") == "Succeeded"
        open_ -= {version.name}
        if not ended and version.action != "DELETED":
            open_ |= {version.name}
        if len(open_) > 1:
            found.append(f"{len(open_)} nodes are rebuilt at a time")
    return found


def _expect_machine(machine: Manifest, _: Book) -> Manifest:
    name = key_of(machine).name
    last = 1 + sum(name.encode()) % 250
    return {
        "vmiUID": f"run-of-{name}",
        "privateIP": f"10.0.0.{last}",
        "rootDisk": {"name": f"{name}-root"},
        "conditions": [
            {
                **READY,
                "observedGeneration": machine["metadata"]["generation"],
                # One that has run for long and whose node has not joined would be broken.
                "lastTransitionTime": machine["metadata"]["creationTimestamp"],
            }
        ],
    }


def _expect_claim(claim: Manifest, book: Book) -> Manifest:
    led = (book.get(ENDPOINT_SLICE, key_of(claim).name) or {}).get("endpoints")
    bound = {**READY, "type": "Bound", "status": "True" if led else "False"}
    return {"address": "203.0.113.7", "conditions": [READY, bound]}


def _build_spec(user: User, count: int) -> Manifest:
    return {
        "version": "v1.34.2",
        "image": {"registry": "docker://registry.example.com/kubernetes-node:v1.34.2"},
        "networkRef": {"name": "lan"},
        "controlPlane": {"size": "medium", "endpoint": {"poolName": "public"}},
        "pools": _pools(count),
    }


def _pools(count: int) -> list[Manifest]:
    return [{"name": "web", "count": count, "size": "large"}]


async def _create(user: User) -> None:
    await user.create(KUBERNETES_CLUSTER, _NAME, _build_spec(user, 1))


async def _scale(user: User, count: int) -> None:
    await user.patch(KUBERNETES_CLUSTER, _NAME, {"spec": {"pools": _pools(count)}})


async def _grow(user: User) -> None:
    await _scale(user, 2)


async def _shrink(user: User) -> None:
    await _scale(user, 1)


async def _recycle(user: User) -> None:
    recycle = [{"node": f"{_NAME}-web-1", "token": "one"}]
    await user.patch(KUBERNETES_CLUSTER, _NAME, {"spec": {"recycle": recycle}})


async def _spoil(user: User) -> None:
    """Change what the operator keeps, and lose what it can make again."""
    spoiled = {"metadata": {"labels": {"app.kubernetes.io/instance": "spoiled"}}}
    for kind in _NAMED_ALIKE:
        await user.patch(kind, endpoint_name(_NAME), spoiled)
    await user.delete(SECRET, join_name(_NAME))


async def _delete(user: User) -> None:
    await user.delete(KUBERNETES_CLUSTER, _NAME)


def has_nodes(count: int, *, rebuilt: bool = False) -> Any:
    """Return a condition: the cluster is ready, with so many nodes in its pool.

    Args:
        count: Number of nodes.
        rebuilt: Whether a node was rebuilt.
    """

    def check(book: Book) -> bool:
        workers = [each for each in book.list(INSTANCE) if pool_of(each) != CONTROL_PLANE]
        cluster = book.get(KUBERNETES_CLUSTER, _NAME)
        at_work = holds_at(cluster or {}, ConditionType.REMEDIATING)
        begun = bool(book.list(OPERATION))
        ready = is_observed(cluster) and not at_work and _is_whole(book)
        return ready and len(workers) == count and begun is rebuilt

    return check


def serves(count: int) -> Any:
    """Return a condition: so many nodes of the pool take pods, and no others are there."""

    def check(shown: Shown) -> bool:
        cordoned = any(node.get("unschedulable") for node in shown.values())
        return not cordoned and len(shown) == count + 1

    return check


def _is_whole(book: Book) -> bool:
    """Tell whether nothing is missing that a fault may have taken away."""
    nodes = [key_of(each).name for each in book.list(INSTANCE)]
    secrets = [join_name(_NAME), kubeconfig_name(_NAME), *map(user_data_name, nodes)]
    kept = [book.get(SECRET, name) for name in secrets]
    kept += [book.get(kind, endpoint_name(_NAME)) for kind in _NAMED_ALIKE]
    return None not in kept and len(book.list(FIREWALL)) == 2


def _is_mended(book: Book) -> bool:
    kept = [book.get(kind, endpoint_name(_NAME)) for kind in _NAMED_ALIKE]
    labels = [
        text_at(each or {}, "metadata", "labels", "app.kubernetes.io/instance") for each in kept
    ]
    return set(labels) == {_NAME} and _is_whole(book)


def _spares(mode: Mode, moment: Trigger) -> bool:
    return mode is Mode.GONE and moment.name in _LOST


def _fold(state: State) -> State:
    """Leave out keys and certificates, which are others each time."""
    for value in state.values():
        if value.get("kind") == SECRET.kind:
            value["data"] = sorted(value.get("data") or {})
    return state


WORKLOADS: Final = (
    Workload(
        id="cluster",
        operator=OPERATOR,
        rules=RULES,
        crds=(
            build_crd(KubernetesCluster),
            *map(build_open_crd, (INSTANCE, OPERATION, IP_CLAIM, FIREWALL)),
        ),
        primary=KUBERNETES_CLUSTER,
        children=(INSTANCE, OPERATION, IP_CLAIM, FIREWALL, SERVICE, ENDPOINT_SLICE, SECRET),
        phases=(
            Phase("create", _create, has_nodes(1), outside=serves(1)),
            Phase("grow", _grow, has_nodes(2), outside=serves(2)),
            Phase("recycle", _recycle, has_nodes(2, rebuilt=True), outside=serves(2)),
            Phase("spoil", _spoil, _is_mended),
            Phase("shrink", _shrink, has_nodes(1, rebuilt=True), outside=serves(1)),
            Phase("probe", _grow, has_nodes(2, rebuilt=True), quiet=True, outside=serves(2)),
            Phase("delete", _delete, is_empty),
        ),
        invariants=(check_nodes, check_order, check_authorities, check_rebuilds),
        tenders=(
            show_status(INSTANCE, _expect_machine),
            show_status(OPERATION, lambda _, __: {"phase": "Succeeded"}),
            show_status(IP_CLAIM, _expect_claim),
            show_status(FIREWALL, lambda _, __: {"conditions": [READY]}),
        ),
        outside=(
            Outside("api", PlayedCluster, lambda url: (f"--api-url={url}", "--api-poll-seconds=1")),
        ),
        spares=_spares,
        rewrite=lambda text: _REBUILD.sub("-rebuild-hash", text),
        fold=_fold,
    ),
)
