"""Controller of Firewall: observes, compiles, plans, executes and reports the status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from libs.common.conditions import conditions_of
from libs.common.kinds import NETWORK_POLICY, Key
from libs.common.plan import Outcome, Step
from libs.common.runtime import Context, Controller, Result
from libs.contracts.compute import INSTANCE, InstanceView
from libs.contracts.multus import MULTI_NETWORK_POLICY
from libs.contracts.network import NetworkView
from operators.network.api.v1alpha1 import FIREWALL, NETWORK, Firewall
from operators.network.api.v1alpha1.firewall import FirewallReason
from operators.network.api.v1alpha1.network import Backend
from operators.network.execution import execute_steps, explain_refusal
from operators.network.firewall.addresses import AddressSet
from operators.network.firewall.compiler import CompiledFirewall, compile_firewall
from operators.network.firewall.peers import PeerCandidates
from operators.network.firewall.reconcile import (
    Observed,
    build_status,
    list_users,
    plan_firewall,
    plan_release,
)
from operators.network.metrics import COMPILE_SECONDS
from operators.network.naming import FINALIZER, FIREWALL_CONTROLLER
from operators.network.observe import (
    BY_FIREWALL,
    POLICY_INDEXES,
    POLICY_KINDS,
    confirm_closed_elsewhere,
    find_networks,
    list_closed_elsewhere,
    list_live,
    list_movers,
    list_objects,
    list_open_elsewhere,
    list_owned,
    list_served,
    list_unlabelled,
    map_closing_policy,
    map_instance_to_firewalls,
    map_network_to_firewalls,
    map_pod_to_firewalls,
    map_policy_to_firewalls,
    map_to_firewall,
    watch_machines,
)
from operators.network.permissions import ATTACHED_POLICIES, POLICIES, WRITES
from operators.network.settings import Enforcement, Settings


def build_controller(settings: Settings) -> Controller:
    """Build the controller of Firewall."""
    reconciler = Reconciler(settings)
    controller = (
        Controller(
            FIREWALL_CONTROLLER,
            primary=FIREWALL,
            reconcile=reconciler.reconcile,
            finalize=reconciler.finalize,
            finalizer=FINALIZER,
            blocks_deletion=False,
        )
        .owns(NETWORK_POLICY, indexes=POLICY_INDEXES, writes=WRITES, why=POLICIES)
        .owns(
            MULTI_NETWORK_POLICY,
            optional=True,
            indexes=POLICY_INDEXES,
            writes=WRITES,
            why=ATTACHED_POLICIES,
        )
        .watches(NETWORK_POLICY, map_policy_to_firewalls)
        .watches(NETWORK_POLICY, map_closing_policy)
        .watches(MULTI_NETWORK_POLICY, map_policy_to_firewalls, optional=True)
        .watches(NETWORK, map_network_to_firewalls)
    )
    return watch_machines(controller, map_instance_to_firewalls, map_pod_to_firewalls)


class Reconciler:
    """The reconciler of Firewalls and their policies."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings."""
        self._settings = settings
        self._protected = AddressSet.of(settings.protected_blocks)
        # Held while a firewall releases instances to another firewall. Without the lock, two
        # firewalls could release the same instance at the same time, each because the other one
        # still selects it, and no policy would select the instance any more.
        self._handover = asyncio.Lock()

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile a Firewall, which may be in use while it is being deleted."""
        firewall = Firewall.parse(ctx.primary)
        compiled = await self._compile(ctx, firewall)
        outcome = await self._change_policies(ctx, firewall, compiled)
        refusal = explain_refusal(
            outcome, taken=FirewallReason.NAME_TAKEN, refused=FirewallReason.WRITE_REFUSED
        )
        observed = self._observe(ctx, firewall)
        status = build_status(
            firewall, compiled, observed, refusal, current=conditions_of(ctx.primary), now=ctx.now()
        )
        await ctx.apply_status(status)
        return Result.from_outcome(outcome, requeue_after=self._poll_interval(observed))

    async def finalize(self, ctx: Context) -> Result | None:
        """Keep a Firewall that is being deleted in force while any instance names it."""
        firewall = Firewall.parse(ctx.primary)
        if list_users(self._observe(ctx, firewall)):
            return await self.reconcile(ctx)
        live = await list_live(ctx, INSTANCE)
        if any(ctx.key in map_to_firewall(each, None) for each in live):
            return Result(requeue_after=1)
        async with self._handover:
            observed = await self._confirm(ctx, self._observe(ctx, firewall))
            if list_users(observed):
                return Result(requeue_after=1)
            outcome = await ctx.execute(*plan_release(firewall, observed))
        return None if outcome.ok else Result.from_outcome(outcome)

    async def _change_policies(
        self, ctx: Context, firewall: Firewall, compiled: CompiledFirewall
    ) -> Outcome:
        """Bring the policies in line; release instances only if another firewall selects them."""
        observed = self._observe(ctx, firewall)
        if not observed.closed_elsewhere:
            return await self._execute_steps(ctx, plan_firewall(firewall, compiled, observed))
        async with self._handover:
            observed = await self._confirm(ctx, self._observe(ctx, firewall))
            return await self._execute_steps(ctx, plan_firewall(firewall, compiled, observed))

    async def _confirm(self, ctx: Context, observed: Observed) -> Observed:
        """Read from the API server which movers another firewall isolates.

        An instance that is selected by no policy accepts all traffic, so an outdated cache must not
        decide about its release.
        """
        movers = [each for each in observed.movers if each.uid in observed.closed_elsewhere]
        return replace(observed, closed_elsewhere=await confirm_closed_elsewhere(ctx, movers))

    async def _execute_steps(self, ctx: Context, batches: Sequence[Sequence[Step]]) -> Outcome:
        return await execute_steps(
            ctx, batches, reason=FirewallReason.APPLIED, repaired=FirewallReason.REPAIRED
        )

    def _poll_interval(self, observed: Observed) -> float | None:
        """Return the seconds until the next reconcile if the Firewall waits for a missing kind.

        Installing the kind causes no event, so the reconciler polls.
        """
        network = observed.network
        attached = network is not None and network.backend == Backend.MULTUS
        waits = attached and MULTI_NETWORK_POLICY not in observed.served
        return self._settings.multus_poll_seconds if waits else None

    async def _compile(self, ctx: Context, firewall: Firewall) -> CompiledFirewall:
        started = time.perf_counter()
        # A large number of rules can take seconds; in a thread, it does not block the event loop.
        compiled = await asyncio.to_thread(
            compile_firewall, firewall.spec, protected=self._protected
        )
        ctx.metrics.histogram(COMPILE_SECONDS).observe(time.perf_counter() - started)
        return compiled

    def _observe(self, ctx: Context, firewall: Firewall) -> Observed:
        network = ctx.get(NETWORK, Key(ctx.key.namespace, firewall.spec.network_ref.name))
        members = tuple(map(InstanceView.parse, ctx.indexed(INSTANCE, BY_FIREWALL, str(ctx.key))))
        movers = list_movers(ctx)
        return Observed(
            network=None if network is None else NetworkView.parse(network),
            members=members,
            objects=list_objects(ctx, POLICY_KINDS),
            owned=list_owned(ctx, POLICY_KINDS),
            served=list_served(ctx),
            open_elsewhere=list_open_elsewhere(ctx, members),
            movers=movers,
            closed_elsewhere=list_closed_elsewhere(ctx, movers),
            others=find_networks(ctx, {member.network for member in members}),
            around=_find_peer_candidates(ctx, firewall),
            enforces_attached=self._settings.multi_network_policy is Enforcement.ENFORCED,
            families=self._settings.families,
            dns=self._settings.dns,
        )


def _find_peer_candidates(ctx: Context, firewall: Firewall) -> PeerCandidates:
    if not any(rule.peers for rule in firewall.spec.rules):
        return PeerCandidates()
    instances = tuple(map(InstanceView.parse, ctx.list(INSTANCE)))
    return PeerCandidates(instances, list_unlabelled(ctx))
