"""Controller of Network: observes, plans, executes and reports the status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from libs.common.conditions import conditions_of
from libs.common.crd import ParseError
from libs.common.errors import ApiError
from libs.common.kinds import (
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    Key,
    Kind,
    Manifest,
    is_deleting,
    key_of,
)
from libs.common.plan import Step
from libs.common.reading import map_at, text_at, text_map_at
from libs.common.runtime import Context, Controller, Result
from libs.contracts.compute import INSTANCE, InstanceView
from libs.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1 import (
    FIREWALL,
    NETWORK,
    PROVIDER_NETWORK,
    Network,
    ProviderNetwork,
)
from operators.network.api.v1alpha1.network import Backend, NetworkReason
from operators.network.execution import execute_steps, explain_refusal
from operators.network.firewall.addresses import AddressSet
from operators.network.naming import FINALIZER, NETWORK_CONTROLLER
from operators.network.network.provider import find_objection
from operators.network.network.reconcile import (
    Observed,
    build_status,
    list_users,
    plan_empty_attachment,
    plan_network,
    plan_release,
    plan_vlan,
)
from operators.network.network.vlans import (
    find_first,
    find_owner,
    hash_namespace,
    plan_abandoned,
    plan_vlan_release,
    read_vlan,
)
from operators.network.observe import (
    BY_NETWORK,
    BY_PROVIDER,
    FIREWALL_INDEXES,
    NETWORK_INDEXES,
    POLICY_INDEXES,
    list_live,
    list_objects,
    list_owned,
    list_served,
    list_unlabelled,
    map_deny_policy,
    map_instance_to_networks,
    map_namespace_to_networks,
    map_pod_to_networks,
    map_provider_to_networks,
    map_to_network,
    shrink_namespace,
    watch_machines,
)
from operators.network.permissions import ATTACHED_POLICIES, POLICIES, WRITES
from operators.network.settings import Settings

_KINDS: Final = (NETWORK_POLICY, MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION)


def build_controller(settings: Settings) -> Controller:
    """Build the controller of Network."""
    reconciler = Reconciler(settings)
    controller = (
        Controller(
            NETWORK_CONTROLLER,
            primary=NETWORK,
            reconcile=reconciler.reconcile,
            finalize=reconciler.finalize,
            finalizer=FINALIZER,
            blocks_deletion=False,
        )
        .reads(NETWORK, indexes=NETWORK_INDEXES)
        .owns(NETWORK_POLICY, indexes=POLICY_INDEXES, writes=WRITES, why=POLICIES)
        .owns(
            MULTI_NETWORK_POLICY,
            optional=True,
            indexes=POLICY_INDEXES,
            writes=WRITES,
            why=ATTACHED_POLICIES,
        )
        .owns(
            NETWORK_ATTACHMENT_DEFINITION,
            optional=True,
            writes=("create", "patch"),
            why="attach machines through Multus",
        )
        .watches(NETWORK_POLICY, map_deny_policy)
        .watches(MULTI_NETWORK_POLICY, map_deny_policy, optional=True)
        .watches(FIREWALL, map_to_network, indexes=FIREWALL_INDEXES)
        .watches(
            PROVIDER_NETWORK,
            map_provider_to_networks,
            writes=("patch",),
            why="read which bridges and VLANs a network may use, and record who has a VLAN",
        )
        .watches(
            NAMESPACE,
            map_namespace_to_networks,
            transform=shrink_namespace,
            why="match namespaces with the selectors of a ProviderNetwork",
        )
    )
    return watch_machines(controller, map_instance_to_networks, map_pod_to_networks)


class Reconciler:
    """The reconciler of Networks and their children."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings; the reconciler has no other state."""
        self._settings = settings
        self._protected = AddressSet.of(settings.protected_blocks)

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile a Network, which may be in use while it is being deleted."""
        network = Network.parse(ctx.primary)
        await ctx.execute(await _plan_abandoned(ctx, network, self._observe(ctx, network)))
        if steps := plan_vlan(network, self._observe(ctx, network)):
            taken = await ctx.execute(steps)
            if not taken.ok:
                return Result.from_outcome(taken)
        outcome = await execute_steps(
            ctx,
            plan_network(network, self._observe(ctx, network)),
            reason=NetworkReason.APPLIED,
            repaired=NetworkReason.REPAIRED,
        )
        refusal = explain_refusal(
            outcome, taken=NetworkReason.NAME_TAKEN, refused=NetworkReason.WRITE_REFUSED
        )
        observed = self._observe(ctx, network)
        released = await _plan_vlan_release(ctx, network, observed, stays=True)
        if outcome.ok and released:
            outcome = await ctx.execute(released)
        status = build_status(
            network, observed, refusal, current=conditions_of(ctx.primary), now=ctx.now()
        )
        await ctx.apply_status(status)
        return Result.from_outcome(outcome, requeue_after=self._poll_interval(network, observed))

    async def finalize(self, ctx: Context) -> Result | None:
        """Keep reconciling a Network that is being deleted while anything names it."""
        network = Network.parse(ctx.primary)
        if list_users(network, self._observe(ctx, network)):
            return await self.reconcile(ctx)
        instances = tuple(map(InstanceView.parse, await list_live(ctx, INSTANCE)))
        firewalls = [
            each["metadata"]["name"]
            for each in await list_live(ctx, FIREWALL)
            if ctx.key in map_to_network(each, None)
        ]
        if list_users(network, Observed(instances, tuple(firewalls))):
            return Result(requeue_after=1)
        # The policies that isolate are deleted last, after no instance needs them any more.
        observed = self._observe(ctx, network)
        outcome = await ctx.execute(plan_empty_attachment(network, observed))
        if network.spec.vlan is not None and (pods := await _list_running(ctx)):
            namespace = ctx.get(NAMESPACE, Key("", ctx.key.namespace)) or {}
            if is_deleting(namespace) or all(map(is_deleting, pods)):
                return Result(requeue_after=1)
        if outcome.ok:
            vlans = await _plan_vlan_release(ctx, network, observed)
            outcome = await ctx.execute(*plan_release(network, observed), vlans)
        return None if outcome.ok else Result.from_outcome(outcome)

    def _poll_interval(self, network: Network, observed: Observed) -> float | None:
        """Return the seconds until the next reconcile if the Network waits without an event.

        It waits for a kind that is not installed, or for the pods of the namespace with its VLAN.
        """
        needed = {MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION}
        waits = network.spec.backend is Backend.MULTUS and not needed <= observed.served
        waits |= find_owner(network, observed.bridge) not in (
            "",
            hash_namespace(network.key.namespace),
        )
        return self._settings.multus_poll_seconds if waits else None

    def _observe(self, ctx: Context, network: Network) -> Observed:
        namespace = ctx.get(NAMESPACE, Key("", ctx.key.namespace)) or {}
        firewalls = ctx.indexed(FIREWALL, BY_NETWORK, str(ctx.key))
        bridge = _list_bridge(ctx, network)
        return Observed(
            instances=tuple(map(InstanceView.parse, ctx.list(INSTANCE))),
            firewalls=tuple(sorted(key_of(each).name for each in firewalls)),
            objects=list_objects(ctx, _KINDS),
            owned=list_owned(ctx, _KINDS),
            served=list_served(ctx),
            unlabelled=list_unlabelled(ctx),
            provider=_find_provider(ctx, network),
            bridge=bridge,
            first=None if find_owner(network, bridge) else _find_first(ctx, network, bridge),
            namespace_labels=text_map_at(namespace, "metadata", "labels"),
            protected=self._protected,
            families=self._settings.families,
            dns=self._settings.dns,
        )


def _list_bridge(ctx: Context, network: Network) -> tuple[Manifest, ...]:
    """Return all ProviderNetworks with the bridge of a network."""
    reference = network.spec.provider_network_ref
    held = None if reference is None else ctx.get(PROVIDER_NETWORK, Key("", reference.name))
    if held is None:
        return ()
    bridge = text_at(held, "spec", "bridge")
    return tuple(
        each for each in ctx.list(PROVIDER_NETWORK) if text_at(each, "spec", "bridge") == bridge
    )


def _find_first(ctx: Context, network: Network, bridge: Iterable[Manifest]) -> Key | None:
    """Return the oldest Network that may use the VLAN and bridge of a network."""
    candidates = []
    for provider in bridge:
        for each in ctx.indexed(NETWORK, BY_PROVIDER, key_of(provider).name):
            namespace = ctx.get(NAMESPACE, Key("", key_of(each).namespace)) or {}
            with suppress(ParseError):
                labels = text_map_at(namespace, "metadata", "labels")
                if map_at(each, "spec").get("vlan") == network.spec.vlan and not find_objection(
                    Network.parse(each), ProviderNetwork.parse(provider), labels
                ):
                    candidates.append(each)
    return find_first(candidates)


async def _plan_vlan_release(
    ctx: Context, network: Network, observed: Observed, *, stays: bool = False
) -> list[Step]:
    """Plan the release of the VLANs that no Network of the namespace uses any more.

    While pods may be attached, they are only marked. `stays` says whether the Network stays, with
    another VLAN than before.
    """
    provider = observed.provider
    if provider is None:
        return []
    held = next(each for each in observed.bridge if key_of(each) == provider.key)

    def plan(objects: Mapping[Kind, Iterable[Manifest]], *, marks: bool = False) -> list[Step]:
        networks = [each for each in objects[NETWORK] if stays or key_of(each) != network.key]
        users = {InstanceView.parse(each).network for each in objects[INSTANCE]}
        attachments = objects[NETWORK_ATTACHMENT_DEFINITION]
        namespace = network.key.namespace
        return plan_vlan_release(held, namespace, networks, attachments, users, marks=marks)

    kinds = (NETWORK, INSTANCE, NETWORK_ATTACHMENT_DEFINITION)
    if stays and not plan({kind: ctx.list(kind) for kind in kinds}):
        return []
    live = {kind: await list_live(ctx, kind) for kind in kinds}
    return plan(live, marks=bool(await _list_running(ctx)))


async def _plan_abandoned(ctx: Context, network: Network, observed: Observed) -> list[Step]:
    """Plan to release the VLAN of a network if the namespace that has it no longer uses it.

    It was marked when its last Network with the VLAN was deleted, because it had pods.
    """
    owner = find_owner(network, observed.bridge)
    found = [key_of(each).name for each in ctx.list(NAMESPACE)]
    names = [each for each in found if hash_namespace(each) == owner != ""]
    vlan = network.spec.vlan
    steps = [] if vlan is None else plan_abandoned(observed.bridge, vlan, owner)
    if not steps or not names:
        return []
    networks = [
        each
        for provider in observed.bridge
        for each in ctx.indexed(NETWORK, BY_PROVIDER, key_of(provider).name)
        if key_of(each).namespace == names[0]
    ]
    try:
        networks = networks or await list_live(ctx, NETWORK, names[0])
        attachments = await list_live(ctx, NETWORK_ATTACHMENT_DEFINITION, names[0])
        used = {str(map_at(each, "spec").get("vlan")) for each in networks}
        used |= set(map(read_vlan, attachments))
        if str(vlan) in used or await _list_running(ctx, names[0]):
            return []
    except ApiError:
        return []  # For example because the operator no longer watches that namespace.
    return steps


async def _list_running(ctx: Context, namespace: str = "") -> list[Manifest]:
    """List the pods of a namespace that may be attached to one of its networks.

    That is each of them: a tenant can change the annotations and labels of a running pod.
    """
    ended = ("Succeeded", "Failed")
    pods = await list_live(ctx, POD, namespace)
    return [each for each in pods if text_at(each, "status", "phase") not in ended]


def _find_provider(ctx: Context, network: Network) -> ProviderNetwork | None:
    reference = network.spec.provider_network_ref
    held = None if reference is None else ctx.get(PROVIDER_NETWORK, Key("", reference.name))
    try:
        return None if held is None else ProviderNetwork.parse(held)
    except ParseError:
        return None
