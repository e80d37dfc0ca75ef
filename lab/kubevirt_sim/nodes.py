"""Scheduler and kubelets that the simulator plays: what is watched, and their writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from lab.kubevirt_sim.behavior import SCHEDULER, SIMULATED_NODE, Guest, is_silent
from lab.kubevirt_sim.edge import SimulatorContext, TurnResult, patch_status, take_turns
from lab.kubevirt_sim.kubelet import ADDRESSES, plan_placement, plan_pod
from lab.kubevirt_sim.launcher import HOSTNAME, is_finished
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from lab.kubevirt_sim.volumes import find_places
from libs.common.errors import Conflict, NotFound
from libs.common.kinds import (
    LEASE,
    NODE,
    POD,
    PV,
    PVC,
    Key,
    Manifest,
    build_object,
    is_deleting,
    key_of,
    uid_of,
    version_of,
)
from libs.common.ownership import controller_of
from libs.common.plan import Delete, Step
from libs.common.reading import maps_at, text_at, text_map_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE

HEARTBEAT_SECONDS: Final = 10.0
"""Seconds between two renewals of the Lease of a node, as of a kubelet."""
BY_NODE: Final = "place"
"""Index of pods by node."""
BY_SCHEDULER: Final = "scheduler"
"""Index of pods by scheduler."""
_LEASES: Final = "kube-node-lease"


def build_node(number: int) -> Manifest:
    """Build a node that the simulator plays.

    It lacks the label of an operating system, so that the daemons of a cluster leave it alone, and
    has a taint for everybody else. The range of its addresses is no `podCIDR`: a controller manager
    does not start while a node has one that is outside of the range of the cluster.
    """
    name = f"sim-node-{number}"
    return build_object(
        NODE,
        name,
        metadata={
            "labels": {SIMULATED_NODE: "true", HOSTNAME: name, "kubevirt.io/schedulable": "true"},
            "annotations": {ADDRESSES: f"10.{200 + number // 256}.{number % 256}.0/24"},
        },
        spec={
            "taints": [{"key": SIMULATED_NODE, "value": "true", "effect": "NoSchedule"}],
        },
    )


def map_node_to_pods(_: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the pods without a node, which may find room now."""
    for key in cache.store(POD):
        pod = cache.store(POD).get(key)
        place = text_at(pod or {}, "spec", "nodeName")
        if pod is not None and is_ours(pod) and not place:
            yield key


def map_pod_to_node(pod: Manifest, _: Cache) -> Iterable[Key]:
    """Name the node of a pod."""
    return [Key("", name) for name in index_node(pod)]


def map_instance_to_nodes(vmi: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the nodes of the pods of an instance."""
    for pod in cache.store(POD).owned_by(uid_of(vmi)):
        yield from map_pod_to_node(pod, cache)


def index_scheduler(pod: Manifest) -> Iterable[str]:
    """Index a pod by its scheduler."""
    return [text_at(pod, "spec", "schedulerName")]


def index_node(pod: Manifest) -> Iterable[str]:
    """Index a pod by its node."""
    name = text_at(pod, "spec", "nodeName")
    return [name] if name else []


def is_ours(pod: Manifest) -> bool:
    """Return whether the simulator plays scheduler and kubelet for a pod."""
    return text_at(pod, "spec", "schedulerName") == SCHEDULER


def build_scheduler(simulator: SimulatorContext) -> Controller:
    """Build the scheduler of the pods of the simulator."""

    async def reconcile(ctx: Context) -> Result | None:
        pod = ctx.primary
        placed = text_at(pod, "spec", "nodeName") or uid_of(pod) in simulator.placements
        if not is_ours(pod) or placed or is_finished(pod):
            return None
        return await _schedule(ctx, simulator)

    return (
        Controller("sim-scheduler", primary=POD, reconcile=reconcile, source="reflector")
        .reads(POD, indexes={BY_SCHEDULER: index_scheduler, BY_NODE: index_node})
        .watches(NODE, map_node_to_pods)
        .watches(PVC, map_node_to_pods)
        .reads(PV, source="reflector")
    )


def _list_places(ctx: Context, pod: Manifest) -> list[list[str]]:
    """Return the nodes that can use each volume of a pod that not all nodes can use."""
    names = [
        text_at(volume, "persistentVolumeClaim", "claimName")
        for volume in maps_at(pod, "spec", "volumes")
    ]
    claims = [ctx.get(PVC, Key(key_of(pod).namespace, name)) for name in names if name]
    volumes = [ctx.get(PV, Key("", text_at(each or {}, "spec", "volumeName"))) for each in claims]
    return [places for volume in volumes if (places := find_places(volume or {}))]


async def _schedule(ctx: Context, simulator: SimulatorContext) -> Result | None:
    async def turn(pod: Manifest) -> TurnResult:
        plan = plan_placement(
            pod,
            ctx.list(NODE),
            [_place(each, simulator) for each in ctx.indexed(POD, BY_SCHEDULER, SCHEDULER)],
            _list_places(ctx, pod),
            Guest.parse(pod, simulator.timing),
            simulator.timing,
            simulator.watch(uid_of(pod)),
            ctx.now(),
        )
        if plan.status is not None:
            return TurnResult([patch_status(POD, pod, plan.status)])
        if plan.bind:
            await _bind(ctx, pod, plan.bind, simulator)
        return TurnResult(wait=plan.wait)

    result, _ = await take_turns(ctx, POD, turn)
    return result


def build_kubelet(simulator: SimulatorContext) -> Controller:
    """Build the kubelets of the played nodes: they run pods and tell that they are alive."""

    async def reconcile(ctx: Context) -> Result | None:
        node = ctx.primary
        if SIMULATED_NODE not in text_map_at(node, "metadata", "labels") or is_deleting(node):
            return None
        waits: list[float] = []

        async def turn(held: Manifest) -> TurnResult:
            waits.clear()
            steps = _keep_node(ctx, held, simulator)
            pods = [each for each in ctx.indexed(POD, BY_NODE, ctx.key.name) if is_ours(each)]
            for number, pod in enumerate(pods):
                status, taken = _run_pod(ctx, held, pod, pods, simulator, waits)
                steps += taken
                if status is not None:
                    # The next pod must see the address of this one before the cache does.
                    pods[number] = {**pod, "status": status}
            return TurnResult(steps)

        result, _ = await take_turns(ctx, NODE, turn)
        if result.error is not None:
            return result
        if simulator.heartbeats and not is_silent(node):
            await _renew(ctx)
            waits.append(HEARTBEAT_SECONDS)
        return Result(requeue_after=min(waits)) if waits else None

    return (
        Controller("sim-kubelet", primary=NODE, reconcile=reconcile, source="reflector")
        .watches(POD, map_pod_to_node)
        .watches(VIRTUAL_MACHINE_INSTANCE, map_instance_to_nodes)
    )


def _keep_node(ctx: Context, node: Manifest, simulator: SimulatorContext) -> list[Step]:
    silent = is_silent(node)
    if silent and simulator.heartbeats:
        # The node lifecycle controller of the cluster should find out by itself.
        return []
    status = build_node_status(node, ctx.now(), silent=silent)
    return [] if status == node.get("status") else [patch_status(NODE, node, status)]


def _run_pod(
    ctx: Context,
    node: Manifest,
    pod: Manifest,
    pods: Sequence[Manifest],
    simulator: SimulatorContext,
    waits: list[float],
) -> tuple[Manifest | None, list[Step]]:
    vmi = _instance_of(ctx, pod)
    seen = (version_of(pod), version_of(node), version_of(vmi) if vmi is not None else 0)
    if simulator.rested.get(uid_of(pod)) == seen:
        # Each pod of a node is looked at whenever one of them changes.
        return None, []
    plan = plan_pod(
        pod,
        node,
        pods,
        Guest.parse(vmi or pod, simulator.timing),
        simulator.timing,
        simulator.watch(uid_of(pod)),
        ctx.now(),
    )
    if plan.finish:
        simulator.watches.forget(uid_of(pod))
        simulator.placements.pop(uid_of(pod), None)
        simulator.rested.pop(uid_of(pod), None)
        return None, [Delete.of(POD, pod, grace_seconds=0)]
    if plan.wait:
        waits.append(plan.wait)
    elif plan.status is None:
        simulator.rested[uid_of(pod)] = seen
    if plan.status is None:
        return None, []
    return plan.status, [patch_status(POD, pod, plan.status)]


def _instance_of(ctx: Context, pod: Manifest) -> Manifest | None:
    owner: Manifest = controller_of(pod) or {}
    vmi = ctx.get(VIRTUAL_MACHINE_INSTANCE, Key(key_of(pod).namespace, text_at(owner, "name")))
    return vmi if vmi is not None and uid_of(vmi) == owner.get("uid") else None


def _place(pod: Manifest, simulator: SimulatorContext) -> Manifest:
    node = simulator.placements.get(uid_of(pod))
    return pod if node is None else {**pod, "spec": {**pod["spec"], "nodeName": node}}


async def _bind(ctx: Context, pod: Manifest, node: str, simulator: SimulatorContext) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": ctx.key.name, "namespace": ctx.key.namespace, "uid": uid_of(pod)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    try:
        await ctx.client.raw("POST", POD.path(*ctx.key, "binding"), body)
        # The next choice must see this one before the event does.
        simulator.placements[uid_of(pod)] = node
    except (Conflict, NotFound):
        # Bound or gone already; the event is on its way.
        return


def build_node_status(node: Manifest, now: datetime, *, silent: bool) -> Manifest:
    """Build the status of a node that works, or that has not been heard of."""
    status = node.get("status") or {}
    ready = (
        build_condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting status.")
        if silent
        else build_condition("Ready", True, "KubeletReady", "played by kubevirt_sim")
    )
    held = status.get("conditions") or []
    others = [item for item in held if item.get("type") != "Ready"]
    merged = merge_conditions(held, [ready], now)
    for item in merged:
        item.pop("lastProbeTime", None)
        item["lastHeartbeatTime"] = item["lastTransitionTime"]
    octets = text_at(node, "metadata", "annotations", ADDRESSES).split(".")
    resources = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    return {
        **status,
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": ".".join([*octets[:3], "1"])},
            {"type": "Hostname", "address": key_of(node).name},
        ],
        "conditions": [*others, *merged],
    }


async def _renew(ctx: Context) -> None:
    moment = ctx.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease: Manifest = build_object(
        LEASE,
        ctx.key.name,
        _LEASES,
        spec={
            "holderIdentity": ctx.key.name,
            "leaseDurationSeconds": 40,
            "renewTime": moment,
        },
    )
    await ctx.client.apply(LEASE, lease, field_manager="sim-nodes")
