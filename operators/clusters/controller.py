"""Controller of KubernetesCluster: observes, plans, executes and reports the status."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from libs.common.actions import NEXT_SECONDS, Action
from libs.common.conditions import conditions_of
from libs.common.errors import ForeignObject
from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, SECRET, SERVICE, Key
from libs.common.labels import MANAGED_BY
from libs.common.plan import Outcome, Step
from libs.common.runtime import Context, Controller, Operator, Result
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.addons import AddonStep
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import (
    CONTROL_PLANE,
    KUBERNETES_CLUSTER,
    KubernetesCluster,
)
from operators.clusters.causes import REPLACEABLE
from operators.clusters.certificates import (
    ADMIN_GROUP,
    JOIN_GROUP,
    Authorities,
    Pair,
    make_authorities,
    sign_client,
)
from operators.clusters.etcd import RemoveMember
from operators.clusters.load_balancing import find_admission
from operators.clusters.metrics import ACTIONS, ADDONS, LOOK_SECONDS, METRICS, NODE_STEPS
from operators.clusters.naming import (
    ADDON_LABEL,
    FINALIZER,
    OPERATOR_ID,
    endpoint_host,
    endpoint_name,
    kubeconfig_name,
)
from operators.clusters.nodes import ClusterStep, NodeStepKind, look_again
from operators.clusters.observe import (
    map_addon,
    map_network,
    map_operation,
    observe,
    plan_adoption,
)
from operators.clusters.observed import Observed, Workload, read_pair
from operators.clusters.reconcile import plan_cluster
from operators.clusters.settings import Settings
from operators.clusters.status import Refusal, build_final_status, build_status
from operators.clusters.teardown import plan_teardown
from operators.clusters.upgrade import SetProxyVersion, SetVersion
from operators.clusters.workload import Access, KubernetesWorkloads, Workloads
from operators.clusters.workload_cache import WorkloadCache

_WRITES: Final = ("create", "patch", "delete")
_KUBECONFIG_LIFETIME: Final = timedelta(days=365)
_JOIN_LIFETIME: Final = timedelta(hours=24)
_MOST_REFUSALS: Final = 3
"""Maximum number of failed steps in one reconcile. Each runs into a time-out if the cluster does
not respond."""
_NOTES: Final[Mapping[str, tuple[Reason, str]]] = {
    NodeStepKind.CORDON: (Reason.DRAINING, "Draining node {}"),
    NodeStepKind.UNCORDON: (Reason.UNCORDONED, "Node {} is schedulable again"),
    NodeStepKind.REMOVE: (Reason.DELETING_NODE, "Removed Node {}, which has no machine"),
    RemoveMember.kind: (Reason.MEMBER_REMOVED, "Removed the member of etcd of node {}"),
    SetVersion.kind: (Reason.VERSION_SET, "Set the version with which kubeadm joins nodes"),
    SetProxyVersion.kind: (Reason.VERSION_SET, "Set the version of kube-proxy"),
}

type Connect = Callable[[Settings], Workloads]
"""Creates the clients of the APIs of clusters."""


class CertificateIssuer:
    """Creates keys and certificates."""

    def __init__(self, now: datetime) -> None:
        """Store the time."""
        self._now = now

    def authorities(self, cluster: str) -> Authorities:
        """Create the authorities of a new cluster."""
        return make_authorities(cluster, self._now)

    def administrator(self, authorities: Authorities) -> Pair:
        """Create the credentials of an administrator, valid for a year."""
        user, lifetime = "kubernetes-admin", _KUBECONFIG_LIFETIME
        return sign_client(authorities, user, ADMIN_GROUP, self._now, lifetime)

    def member(self, authorities: Authorities) -> Pair:
        """Create the credentials with which nodes join, valid for a day."""
        user, lifetime = "system:bootstrap:slipway", _JOIN_LIFETIME
        return sign_client(authorities, user, JOIN_GROUP, self._now, lifetime)


def build_controller(settings: Settings, connect: Connect | None = None) -> Controller:
    """Build the controller of KubernetesCluster."""
    reach = connect or (lambda held: KubernetesWorkloads(held.api_timeout_seconds))
    reconciler = Reconciler(settings, reach(settings))
    controller = Controller(
        OPERATOR_ID,
        primary=KUBERNETES_CLUSTER,
        reconcile=reconciler.reconcile,
        finalize=reconciler.finalize,
        finalizer=FINALIZER,
        stalls_after=1800,  # As long as an Instance may take.
        close=reconciler.close,
    )
    for kind, why in (
        (INSTANCE, "create and delete the machines of nodes"),
        (IP_CLAIM, "claim the address of the API server"),
        (FIREWALL, "protect nodes"),
    ):
        controller.owns(kind, optional=True, writes=_WRITES, why=why)
    controller.owns(OPERATION, optional=True, writes=("create", "delete"), why="rebuild nodes")
    for kind, why in (
        (SERVICE, "route traffic to the API server, including from within this cluster"),
        (ENDPOINT_SLICE, "list the nodes that serve the API"),
        (SECRET, "store certificate authorities, kubeconfigs and the user data of nodes"),
    ):
        # Other objects of these kinds are not read: a name conflict shows at the create.
        controller.owns(kind, label_selector=f"{MANAGED_BY}={OPERATOR_ID}", writes=_WRITES, why=why)
    controller.watches(
        CONFIG_MAP,
        map_addon,
        label_selector=f"{ADDON_LABEL}=true",
        why="read the manifests of addons",
    )
    controller.watches(OPERATION, map_operation, optional=True)
    return controller.watches(
        NETWORK, map_network, optional=True, why="check that guests have addresses of their own"
    )


class Reconciler:
    """Reconciles clusters."""

    def __init__(self, settings: Settings, workloads: Workloads) -> None:
        """Store the settings and the connections."""
        self._settings = settings
        self._workloads = workloads
        pause = min(settings.api_timeout_seconds, settings.api_poll_seconds)
        self._workload_cache = WorkloadCache(pause)

    async def close(self) -> None:
        """Cancel the queries of clusters."""
        await self._workload_cache.close()

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile a cluster that is not being deleted."""
        cluster = KubernetesCluster.parse(ctx.primary)
        if adoption := plan_adoption(ctx, cluster):
            return await self._adopt(ctx, adoption)
        before = observe(ctx, Workload())
        access = self._find_access(cluster, before)
        workload = await self._look(ctx, access, before)
        observed = observe(ctx, workload)
        plan = plan_cluster(cluster, observed, CertificateIssuer(ctx.now()), ctx.now())
        outcome = await ctx.execute(*plan.batches)
        _report_actions(ctx, plan.actions, outcome)
        exposed = await ctx.execute([action.step for action in plan.services])
        _report_actions(ctx, plan.services, exposed)
        refused, problems = False, {}
        if outcome.ok and access is not None:
            refused = await self._take(ctx, access, plan.node_steps)
            problems = await self._apply_addons(ctx, access, plan.addon_steps)
        problem = (_explain(exposed) or ("", ""))[1]
        observed = replace(observe(ctx, workload), addon_problems=problems, service_problem=problem)
        status = build_status(
            cluster,
            observed,
            _explain(outcome),
            current=conditions_of(ctx.primary),
            now=ctx.now(),
        )
        await ctx.apply_status(status)
        poll = self._settings.api_poll_seconds if workload.asked else None
        applied = plan.addon_steps and not problems
        seconds = min(plan.seconds or NEXT_SECONDS, NEXT_SECONDS) if applied else plan.seconds
        again = look_again(seconds, poll=poll, refused=refused)
        return Result.from_outcome(outcome, requeue_after=again)

    async def _adopt(self, ctx: Context, adoption: Sequence[Step]) -> Result:
        # If this cluster no longer exists, the garbage collector would delete what it adopts.
        if await ctx.is_current():
            outcome = await ctx.execute(adoption)
            note = f"Adopted {len(outcome.done)} objects of an earlier cluster with this name"
            ctx.event("Normal", Reason.ADOPTED, note)
            return Result.from_outcome(outcome, requeue_after=NEXT_SECONDS)
        return Result(requeue_after=1.0)

    async def finalize(self, ctx: Context) -> Result | None:
        """Reconcile a cluster that is being deleted; None removes the finalizer."""
        cluster = KubernetesCluster.parse(ctx.primary)
        self._workload_cache.forget(ctx.uid)
        self._workloads.forget(endpoint_host(cluster.key))
        if ctx.is_orphaning:
            return None
        ending = plan_teardown(observe(ctx, Workload()))
        if ending.done:
            return None
        outcome = await ctx.execute([action.step for action in ending.actions])
        _report_actions(ctx, ending.actions, outcome)
        observed = observe(ctx, Workload())
        rest = plan_teardown(observed)
        if outcome.ok and rest.done:
            return None
        status = build_final_status(
            cluster,
            observed,
            rest,
            _explain(outcome),
            current=conditions_of(ctx.primary),
            now=ctx.now(),
        )
        await ctx.apply_status(status)
        # The objects of one group may be deleted immediately, so continue with the next group
        # without waiting for an event.
        again = NEXT_SECONDS if rest.actions else None
        return Result.from_outcome(outcome, requeue_after=again)

    def _find_access(self, cluster: KubernetesCluster, observed: Observed) -> Access | None:
        """Return how to reach the API of the cluster; None before it exists."""
        config = observed.data_of(SECRET, kubeconfig_name(cluster.metadata.name))
        user = read_pair(config)
        planes = [each for each in observed.members(CONTROL_PLANE) if each.ready]
        if not user.key or not planes or not observed.address:
            return None
        url = self._settings.api_url.format(
            service=endpoint_name(cluster.metadata.name),
            namespace=cluster.key.namespace,
            address=f"[{observed.address}]" if ":" in observed.address else observed.address,
            port=cluster.spec.control_plane.endpoint.port,
        )
        # The only node of a control plane is never replaced.
        is_asked = cluster.spec.control_plane.count >= REPLACEABLE
        authorities = observed.authorities if is_asked else None
        host, ca = endpoint_host(cluster.key), config.get("ca.crt", "")
        return Access(url, host, ca, user, authorities, find_admission(cluster, observed))

    async def _look(self, ctx: Context, access: Access | None, observed: Observed) -> Workload:
        if access is None:
            # If no machine runs, nothing is known about an existing cluster: it cannot be queried.
            begun = any(each.vmi_uid for each in observed.members(CONTROL_PLANE))
            return Workload(asked=begun, message="no node of the control plane is ready")
        return await self._workload_cache.look(
            ctx.uid,
            lambda: self._ask(ctx, access),
            wake=lambda: ctx.wake(KUBERNETES_CLUSTER, [ctx.key]),
            namespace=ctx.key.namespace,
        )

    async def _ask(self, ctx: Context, access: Access) -> Workload:
        started = time.perf_counter()
        workload = await self._workloads.look(access)
        result = "ok" if workload.reachable else "error"
        spent = time.perf_counter() - started
        ctx.metrics.histogram(LOOK_SECONDS).labels(result).observe(spent)
        return workload

    async def _apply_addons(
        self, ctx: Context, access: Access, steps: Sequence[AddonStep]
    ) -> dict[str, str]:
        """Apply addons; return the errors by addon."""
        problems = {}
        for step in steps:
            problem = await self._workloads.apply(access, step)
            result = "error" if problem else "ok"
            ctx.metrics.counter(ADDONS).labels(result).inc()
            if problem:
                problems[step.name] = problem
                ctx.log.warning("Failed to apply an addon", addon=step.name, error=problem)
            else:
                self._workload_cache.expire(ctx.uid)
                ctx.event("Normal", Reason.APPLIED, f"Applied addon {step.name}")
        return problems

    async def _take(self, ctx: Context, access: Access, steps: Sequence[ClusterStep]) -> bool:
        """Execute steps in the managed cluster; return whether one of them was refused."""
        refused = 0
        for step in steps:
            if refused == _MOST_REFUSALS:
                break
            if _needs_no_machine(step) and await _has_machine(ctx, step.node):
                continue
            problem = await self._workloads.take(access, step, ctx.now())
            result = "error" if problem else "ok"
            ctx.metrics.counter(NODE_STEPS).labels(str(step.kind), result).inc()
            if problem:
                # Keep the last result: the query that is running will show that the cluster does
                # not respond.
                refused += 1
                ctx.log.warning("Failed to change a Node", step=str(step), error=problem)
                continue
            self._workload_cache.expire(ctx.uid)
            if step.kind in _NOTES:
                reason, note = _NOTES[step.kind]
                ctx.log.info("Changed a Node", step=str(step))
                ctx.event("Normal", reason, note.format(step.node))
        return refused > 0


def _needs_no_machine(step: ClusterStep) -> bool:
    if isinstance(step, RemoveMember):
        return not step.has_machine
    return step.kind == NodeStepKind.REMOVE


async def _has_machine(ctx: Context, node: str) -> bool:
    """Return whether a node has a machine, according to the API server.

    The previous leader may have just created the machine, so the cache may not contain it yet. The
    check must be exact: a kubelet whose Node was removed does not register again, and a removed
    member of etcd cannot rejoin with its data.
    """
    return await ctx.live_get(INSTANCE, Key(ctx.key.namespace, node)) is not None


def _explain(outcome: Outcome) -> Refusal | None:
    """Return why a step failed, or None."""
    for failure in outcome.failures:
        taken = isinstance(failure.error, ForeignObject)
        return Reason.NAME_TAKEN if taken else Reason.WRITE_REFUSED, failure.message
    return None


def _report_actions(ctx: Context, actions: Iterable[Action], outcome: Outcome) -> None:
    if outcome.changed:
        for action in ctx.report(actions, outcome):
            ctx.metrics.counter(ACTIONS).labels(str(action.reason)).inc()


OPERATOR: Final = Operator(
    OPERATOR_ID,
    (build_controller,),
    settings=Settings,
    metrics=METRICS,
    summary="Builds Kubernetes clusters from Instances.",
)
"""The operator, for the process and the tests."""
