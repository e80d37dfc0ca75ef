"""Workloads of the clusters operator: a cluster that grows, has a node rebuilt, shrinks and goes.

The other operators and the API of the cluster are fakes that act immediately: a node joins as soon
as its machine runs, and its pods leave when they are evicted.
`operators/clusters/apiserver_test.py` has the API of a real cluster.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from lab.sweep.external_system import ExternalSystem
from lab.sweep.fake_cluster import READY, FakeCluster, changes_cluster, pool_of
from lab.sweep.faults import is_foreign
from lab.sweep.modes import Mode
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.triggers import Trigger
from lab.sweep.virtualization import show_status
from lab.sweep.workload import (
    Phase,
    Shown,
    State,
    User,
    Workload,
    build_open_crd,
    change,
    is_empty,
    is_observed,
)
from libs.common.crd import build_crd
from libs.common.kinds import (
    CONFIG_MAP,
    ENDPOINT_SLICE,
    SECRET,
    SERVICE,
    Manifest,
    is_deleting,
    key_of,
)
from libs.common.reading import holds_at, text_at
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.api.reasons import ConditionType
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.controller import OPERATOR
from operators.clusters.naming import (
    ADDON_LABEL,
    authorities_name,
    endpoint_name,
    join_name,
    kubeconfig_name,
    user_data_name,
)

_NAME: Final = "edge"
_VERSION: Final = "v1.34.2"
_NEXT: Final = "v1.35.1"
_PLANES: Final = 3
_ADDON: Final = "cni"
_REBUILD: Final = re.compile(r"-rebuild-[0-9a-f]{8}")
"""What the names of Operations end with: a hash that covers the UID of the node."""
_LOST: Final = (authorities_name(_NAME), f"{_NAME}-{CONTROL_PLANE}-0")
"""What is not made again: a cluster without it has lost its data."""
_NAMED_ALIKE: Final = (SERVICE, ENDPOINT_SLICE, IP_CLAIM)


def check_nodes(history: Sequence[Version]) -> list[str]:
    """Check that no pool ever has more machines than were ever asked of it."""
    asked: Counter[str] = Counter()
    live: dict[str, str] = {}
    found = []
    for version in history:
        if version.kind == KUBERNETES_CLUSTER:
            asked[CONTROL_PLANE] = version.manifest["spec"]["controlPlane"]["count"]
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


def check_members(history: Sequence[Version]) -> list[str]:
    """Check that two nodes of a control plane of three are never without a machine."""
    live: set[str] = set()
    found, whole = [], False
    for version in history:
        if version.kind != INSTANCE or is_foreign(version) or version.phase == "delete":
            continue
        if pool_of(version.manifest) != CONTROL_PLANE:
            continue
        live = live - {version.name} if version.action == "DELETED" else live | {version.name}
        whole = whole or len(live) == 3
        if whole and len(live) < 2:
            found.append(f"{3 - len(live)} nodes of the control plane are gone")
    return found


def _expect_machine(machine: Manifest, record: NamespaceRecord) -> Manifest:
    name = key_of(machine).name
    last = 1 + sum(name.encode()) % 250
    rebuilds = sorted(
        (each["metadata"]["creationTimestamp"], key_of(each).name)
        for each in record.list(OPERATION)
        if text_at(each, "spec", "targetRef", "name") == name
        and text_at(each, "status", "phase") == "Succeeded"
    )
    disk = rebuilds[-1][1] if rebuilds else f"{name}-root"
    return {
        "vmiUID": f"run-of-{name}",
        "privateIP": f"10.0.0.{last}",
        "rootDisk": {"name": disk},
        "conditions": [
            {
                **READY,
                "observedGeneration": machine["metadata"]["generation"],
                # One that has run for long and whose node has not joined would be broken.
                "lastTransitionTime": machine["metadata"]["creationTimestamp"],
            }
        ],
    }


def _expect_claim(claim: Manifest, record: NamespaceRecord) -> Manifest:
    led = (record.get(ENDPOINT_SLICE, key_of(claim).name) or {}).get("endpoints")
    bound = {**READY, "type": "Bound", "status": "True" if led else "False"}
    return {"address": "203.0.113.7", "conditions": [READY, bound]}


def _build_spec(count: int, planes: int = 1) -> Manifest:
    return {
        "version": _VERSION,
        "image": _build_image(_VERSION),
        "networkRef": {"name": "lan"},
        "controlPlane": {"count": planes, "size": "medium", "endpoint": {"poolName": "public"}},
        "pools": _pools(count),
    }


def _build_image(version: str) -> Manifest:
    return {"registry": f"docker://registry.example.com/kubernetes-node:{version}"}


def _pools(count: int) -> list[Manifest]:
    return [{"name": "web", "count": count, "size": "large"}]


async def _create(user: User) -> None:
    network = {"cidrs": ["10.0.0.0/16"], "binding": "Passt"}
    await user.create(NETWORK, "lan", network)
    await user.create(KUBERNETES_CLUSTER, _NAME, _build_spec(1))


async def _create_three(user: User) -> None:
    network = {"cidrs": ["10.0.0.0/16"], "backend": "Multus", "poolRef": {"name": "private"}}
    network["providerNetworkRef"] = {"name": "office"}
    await user.create(NETWORK, "lan", network)
    await _write_addon(user, "one")
    spec = _build_spec(1, _PLANES)
    spec["addons"] = [{"name": "network", "configMapRef": {"name": _ADDON}}]
    await user.create(KUBERNETES_CLUSTER, _NAME, spec)


async def _write_addon(user: User, value: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cni", "namespace": "kube-system"},
        "data": {"value": value},
    }
    labels = {ADDON_LABEL: "true"}
    fields = {"metadata": {"name": _ADDON, "labels": labels}, "data": {"cni": json.dumps(content)}}
    await user.add(CONFIG_MAP, fields)


async def _change_addon(user: User) -> None:
    await user.delete(CONFIG_MAP, _ADDON)
    await _write_addon(user, "two")


async def _upgrade(user: User) -> None:
    spec = {"version": _NEXT, "image": _build_image(_NEXT)}
    await user.patch(KUBERNETES_CLUSTER, _NAME, {"spec": spec})


async def _lose(user: User) -> None:
    """Lose a machine of the control plane, with its disk."""
    await user.delete(INSTANCE, f"{_NAME}-{CONTROL_PLANE}-1")


_grow = change(KUBERNETES_CLUSTER, _NAME, pools=_pools(2))
_shrink = change(KUBERNETES_CLUSTER, _NAME, pools=_pools(1))


async def _recycle(user: User) -> None:
    recycle = [{"node": f"{_NAME}-web-1", "token": "one"}]
    await user.patch(KUBERNETES_CLUSTER, _NAME, {"spec": {"recycle": recycle}})


async def _damage(user: User) -> None:
    """Change what the operator keeps, and lose what it can make again."""
    spoiled = {"metadata": {"labels": {"app.kubernetes.io/instance": "spoiled"}}}
    for kind in _NAMED_ALIKE:
        await user.patch(kind, endpoint_name(_NAME), spoiled)
    for firewall in await user.list(FIREWALL):
        await user.patch(FIREWALL, key_of(firewall).name, spoiled)
    await user.delete(SECRET, join_name(_NAME))


async def _delete(user: User) -> None:
    await user.delete(KUBERNETES_CLUSTER, _NAME)
    await user.delete(NETWORK, "lan")


async def _delete_three(user: User) -> None:
    await _delete(user)
    await user.delete(CONFIG_MAP, _ADDON)


def has_nodes(count: int, *, planes: int = 1, rebuilt: bool = False) -> Any:
    """Return a condition: the cluster is ready, with so many nodes.

    Args:
        count: Number of nodes of the pool.
        planes: Number of nodes of the control plane.
        rebuilt: Whether a node was rebuilt.
    """

    def check(record: NamespaceRecord) -> bool:
        workers = [each for each in record.list(INSTANCE) if pool_of(each) != CONTROL_PLANE]
        cluster = record.get(KUBERNETES_CLUSTER, _NAME)
        at_work = holds_at(cluster or {}, ConditionType.REMEDIATING)
        begun = bool(record.list(OPERATION))
        ready = is_observed(cluster) and not at_work and _is_whole(record)
        complete = len(workers) == count and len(record.list(INSTANCE)) == count + planes
        return ready and complete and begun is rebuilt

    return check


def serves(count: int, *, planes: int = 1, version: str = _VERSION) -> Any:
    """Return a condition: so many nodes of a version take pods, and no others are there.

    Args:
        count: Number of nodes of the pool.
        planes: Number of nodes of the control plane; each is a member of etcd.
        version: Version of all of them and of kube-proxy.
    """

    def check(shown: Shown) -> bool:
        nodes = [node for title, node in shown.items() if title.startswith("api node ")]
        cordoned = any(node.get("unschedulable") for node in nodes)
        versions = {node["version"] for node in nodes}
        cluster = shown["api cluster"]
        same = versions == {version} and cluster["kube-proxy"].endswith(version)
        return (
            not cordoned
            and len(nodes) == count + planes
            and same
            and len(cluster["members"]) == planes
        )

    return check


def applies(value: str) -> Any:
    """Return a condition: the content of the addon that was written last is in the cluster."""

    def check(shown: Shown) -> bool:
        return bool(shown["api cluster"]["addon"] == value)

    return check


def _is_whole(record: NamespaceRecord) -> bool:
    """Return whether nothing is missing that a fault may have taken away."""
    nodes = [key_of(each).name for each in record.list(INSTANCE)]
    secrets = [join_name(_NAME), kubeconfig_name(_NAME), *map(user_data_name, nodes)]
    kept = [record.get(SECRET, name) for name in secrets]
    kept += [record.get(kind, endpoint_name(_NAME)) for kind in _NAMED_ALIKE]
    return None not in kept and len(record.list(FIREWALL)) == 2


def _is_repaired(record: NamespaceRecord) -> bool:
    kept = [record.get(kind, endpoint_name(_NAME)) for kind in _NAMED_ALIKE]
    kept += record.list(FIREWALL)
    labels = [
        text_at(each or {}, "metadata", "labels", "app.kubernetes.io/instance") for each in kept
    ]
    return set(labels) == {_NAME} and _is_whole(record)


def _is_exempt(mode: Mode, moment: Trigger) -> bool:
    return mode is Mode.GONE and moment.name in _LOST


def _fold(state: State) -> State:
    """Leave out keys and certificates, which are others each time."""
    for value in state.values():
        if value.get("kind") == SECRET.kind:
            value["data"] = sorted(value.get("data") or {})
    return state


_CRDS: Final = (
    build_crd(KubernetesCluster),
    *map(build_open_crd, (INSTANCE, OPERATION, IP_CLAIM, FIREWALL, NETWORK)),
)
_CHILDREN: Final = (INSTANCE, OPERATION, IP_CLAIM, FIREWALL, SERVICE, ENDPOINT_SLICE, SECRET)
_COMPONENTS: Final = (
    show_status(INSTANCE, _expect_machine),
    show_status(OPERATION, lambda _, __: {"phase": "Succeeded"}),
    show_status(IP_CLAIM, _expect_claim),
    show_status(FIREWALL, lambda _, __: {"conditions": [READY]}),
)
_API: Final = ExternalSystem(
    "api",
    FakeCluster,
    # The played API shares the machine with all other trials: a slow answer is no fault.
    lambda url: (f"--api-url={url}", "--api-poll-seconds=1", "--api-timeout-seconds=60"),
    is_write=changes_cluster,
)

WORKLOADS: Final = (
    Workload(
        id="cluster",
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=_CRDS,
        primary=KUBERNETES_CLUSTER,
        children=_CHILDREN,
        phases=(
            Phase("create", _create, has_nodes(1), outside=serves(1)),
            Phase("grow", _grow, has_nodes(2), outside=serves(2)),
            Phase("recycle", _recycle, has_nodes(2, rebuilt=True), outside=serves(2)),
            Phase("spoil", _damage, _is_repaired),
            Phase("shrink", _shrink, has_nodes(1, rebuilt=True), outside=serves(1)),
            Phase("probe", _grow, has_nodes(2, rebuilt=True), quiet=True, outside=serves(2)),
            Phase("delete", _delete, is_empty),
        ),
        invariants=(check_nodes, check_order, check_authorities, check_rebuilds),
        components=_COMPONENTS,
        outside=(_API,),
        spares=_is_exempt,
        rewrite=lambda text: _REBUILD.sub("-rebuild-hash", text),
        fold=_fold,
    ),
    Workload(
        id="upgrade",
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=_CRDS,
        primary=KUBERNETES_CLUSTER,
        children=_CHILDREN,
        phases=(
            Phase("create", _create_three, has_nodes(1, planes=3), outside=serves(1, planes=3)),
            Phase("addon", _change_addon, has_nodes(1, planes=3), outside=applies("two")),
            Phase(
                "upgrade",
                _upgrade,
                has_nodes(1, planes=3, rebuilt=True),
                outside=serves(1, planes=3, version=_NEXT),
            ),
            Phase(
                "lose",
                _lose,
                has_nodes(1, planes=3, rebuilt=True),
                outside=serves(1, planes=3, version=_NEXT),
            ),
            Phase("delete", _delete_three, is_empty),
        ),
        invariants=(check_nodes, check_order, check_authorities, check_rebuilds, check_members),
        components=_COMPONENTS,
        outside=(_API,),
        spares=_is_exempt,
        rewrite=lambda text: _REBUILD.sub("-rebuild-hash", text),
        fold=_fold,
    ),
)
