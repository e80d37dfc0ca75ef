"""Controller of PulsarConsumer: observes, scales, plans, executes and reports the status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from libs.common.errors import TerminalError
from libs.common.kinds import DEPLOYMENT, POD, SECRET, is_deleting, uid_of
from libs.common.ownership import is_controlled_by
from libs.common.plan import Delete, Outcome
from libs.common.rbac import grant
from libs.common.runtime import Context, Controller, Operator, Result
from libs.common.runtime.guard import is_terminating
from operators.pulsarconsumer.api.consuming import DeletionPolicy
from operators.pulsarconsumer.api.reasons import ConditionType, Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.ask import (
    build_fingerprint,
    build_status_query,
    delete_subscriptions,
    evaluate,
    open_admin,
)
from operators.pulsarconsumer.broker.broker_cache import BrokerCache, CachedState
from operators.pulsarconsumer.broker.connections import Connections
from operators.pulsarconsumer.broker.errors import AdminBusy
from operators.pulsarconsumer.broker.poll import read_broker
from operators.pulsarconsumer.broker.pulsar_admin import PulsarAdmin
from operators.pulsarconsumer.clashes import describe_clash, parse_others
from operators.pulsarconsumer.gauges import Gauges
from operators.pulsarconsumer.keda import KedaWatch
from operators.pulsarconsumer.metrics import METRICS
from operators.pulsarconsumer.naming import FINALIZER, OPERATOR_ID
from operators.pulsarconsumer.native_scaling import NativeScaling
from operators.pulsarconsumer.observed import DeploymentView, Observed
from operators.pulsarconsumer.reconcile import (
    OPTIONAL_KINDS,
    SIDE_KINDS,
    Plan,
    admin_address,
    needs_broker_state,
    plan_consumer,
)
from operators.pulsarconsumer.report import NOT_QUERIED, BrokerProblem, Report, SubscriptionRef
from operators.pulsarconsumer.seeker import Seeker
from operators.pulsarconsumer.settings import Settings
from operators.pulsarconsumer.status import build_final_status, build_status
from operators.pulsarconsumer.subscriptions import (
    find_abandoned,
    find_deletable,
    list_subscriptions,
)

_REQUESTS_OF_A_LOOK: Final = 4
"""Maximum number of successive requests of one query of the broker."""
_EFFECT_RETRY: Final = 10.0
"""Seconds until a failed change at the broker is retried."""
_CLEANING: Final = 256
"""Number of reconciles between two searches for deleted objects."""
_WARNED: Final = (
    ConditionType.SUBSCRIPTIONS_ABANDONED,
    ConditionType.TOPICS_SHARED,
    ConditionType.CONSUMPTION_BLOCKED,
)
_NOTHING_KNOWN: Final = CachedState(NOT_QUERIED, 0, 0.0)


def needs_finalizer(manifest: Mapping[str, Any]) -> bool:
    """Return whether the subscription must be deleted together with a PulsarConsumer."""
    subscription = (manifest.get("spec") or {}).get("subscription") or {}
    return bool(subscription.get("deletionPolicy") == DeletionPolicy.DELETE)


def build_controller(settings: Settings) -> Controller:
    """Build the controller of PulsarConsumer."""
    reconciler = Reconciler(settings)
    controller = Controller(
        OPERATOR_ID,
        primary=PULSAR_CONSUMER,
        reconcile=reconciler.reconcile,
        finalize=reconciler.finalize,
        finalizer=FINALIZER,
        needs_finalizer=needs_finalizer,
        close=reconciler.close,
    )
    for kind in (DEPLOYMENT, *SIDE_KINDS):
        controller.owns(
            kind,
            source="reflector",
            optional=kind in OPTIONAL_KINDS,
            writes=("create", "patch", "delete"),
            why=f"manage the {kind.kind} of a PulsarConsumer",
        )
    return controller


class Reconciler:
    """The reconciler of PulsarConsumers."""

    def __init__(self, settings: Settings) -> None:
        """Start with an empty cache."""
        self._settings = settings
        self._gauges = Gauges()
        self._broker_cache = BrokerCache(
            evaluate,
            patience=settings.broker_patience_seconds,
            timeout=settings.broker_timeout_seconds * _REQUESTS_OF_A_LOOK,
            limit=settings.max_broker_looks,
            on_result=self._gauges.reported,
        )
        self._connections = Connections(allow_loopback=settings.allow_loopback_brokers)
        self._native = NativeScaling()
        self._seeker = Seeker(self._broker_cache, self._open)
        self._keda = KedaWatch()
        self._passes = 0

    async def close(self) -> None:
        """Cancel all queries of brokers."""
        await self._broker_cache.close()
        await self._connections.close()

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile a PulsarConsumer that is not being deleted."""
        consumer = PulsarConsumer.parse(ctx.primary)
        self._gauges.use(ctx)
        self._forget_gone(ctx)
        look = await self._look(ctx, consumer)
        observed = self._observe(ctx, look)
        decision = self._native.decide(ctx, consumer, observed, look.serial)
        observed = replace(observed, decision=decision)
        plan = plan_consumer(
            consumer,
            observed,
            image=self._settings.consumer_image,
            owner=ctx.owner_reference(),
            user_ids=not self._settings.platform_assigns_user_ids,
        )
        before = observed.deployment
        outcome = await ctx.execute(*plan.batches)
        observed = self._observe(ctx, look)
        unanswered = self._keda.measure(ctx.key, consumer, observed, ctx.now().timestamp())
        observed = replace(observed, decision=decision, unanswered=unanswered)
        self._publish_status(ctx, consumer, plan, outcome, before=before, look=look)
        seek = await self._seeker.advance(
            ctx, consumer, observed.deployment, stopping=plan.stopping
        )
        await self._delete_abandoned(ctx, consumer, observed, look)
        clash = self._describe_clash(ctx, consumer)
        status = build_status(
            consumer, observed, plan, outcome, seek=seek, now=ctx.now(), clash=clash
        )
        for kind in _WARNED:
            ctx.warn_on_new_condition(status, kind)
        await ctx.apply_status(status)
        self._gauges.show(ctx.key, look.broker_state, plan.replicas, ctx.now())
        waits = [seconds for seconds in (look.again, seek.again) if seconds > 0]
        return Result.from_outcome(outcome, requeue_after=min(waits, default=None))

    async def finalize(self, ctx: Context) -> Result | None:
        """Reconcile a PulsarConsumer that is being deleted; None removes the finalizer."""
        consumer = PulsarConsumer.parse(ctx.primary)
        if consumer.spec.subscription.deletion_policy is not DeletionPolicy.DELETE:
            return None
        if ctx.is_orphaning:
            # The consumers stay, and they need the subscription.
            self._forget_finalized(ctx)
            return None
        deployment = await ctx.live_get(DEPLOYMENT, ctx.key)
        if deployment is not None and is_controlled_by(deployment, ctx.primary):
            # Running consumers would recreate the subscription, so delete the Deployment first. A
            # Deployment that is being deleted needs no second request.
            ending = is_deleting(deployment)
            step = Delete(DEPLOYMENT, ctx.key, deployment["metadata"]["uid"], None, "Foreground")
            outcome = Outcome() if ending else await ctx.execute([step])
            message = "the consumers are stopping; then the subscription is deleted"
            return await self._wait(ctx, consumer, Reason.ENDING_CONSUMERS, message, outcome)

        async def act() -> None:
            async with await self._open(ctx, consumer) as admin:
                left = {*list_subscriptions(consumer), *find_abandoned(consumer)}
                await delete_subscriptions(admin, sorted(left))

        effect = await self._broker_cache.act(ctx.key, f"delete {ctx.uid}", act, lambda: _wake(ctx))
        if effect.done:
            note = f"Deleted subscription {consumer.spec.subscription_name} at the broker"
            ctx.event("Normal", Reason.SUBSCRIPTION_DELETED, note, action="Finalize")
            self._forget_finalized(ctx)
            return None
        message = "the broker is being queried"
        if effect.problem is not None:
            if await self._lost_login(ctx, effect.problem):
                # Waiting would block the namespace, in which nobody can create the Secret again.
                ctx.log.warning(
                    "Subscription not deleted: its namespace is being deleted, and the Secret with"
                    " the credentials is gone",
                    subscription=consumer.spec.subscription_name,
                    topics=consumer.topics,
                )
                self._forget_finalized(ctx)
                return None
            way_out = "to leave the subscription set spec.subscription.deletionPolicy to Retain"
            message = f"{effect.problem.message}; {way_out}"
        return await self._wait(ctx, consumer, Reason.DELETING_SUBSCRIPTION, message, Outcome())

    def _forget_finalized(self, ctx: Context) -> None:
        """Drop the state of an object whose finalizer is removed."""
        self._broker_cache.forget(ctx.key)
        self._seeker.forget(ctx.key)

    async def _lost_login(self, ctx: Context, problem: BrokerProblem) -> bool:
        """Return whether the Secret was deleted together with the namespace."""
        if problem.ours or problem.reason is not Reason.SECRET_MISSING:
            return False
        return await is_terminating(ctx.client, ctx.key.namespace)

    def _forget_gone(self, ctx: Context) -> None:
        """Drop the state of deleted objects from time to time; they are not reconciled any more."""
        self._passes += 1
        if self._passes % _CLEANING:
            return
        for key in {*self._broker_cache.keys(), *self._native.keys(), *self._keda.keys()}:
            if ctx.get(PULSAR_CONSUMER, key) is None:
                self._broker_cache.forget(key)
                self._native.forget(key)
                self._keda.forget(key)
                self._seeker.forget(key)
                self._gauges.drop(key)

    async def _wait(
        self,
        ctx: Context,
        consumer: PulsarConsumer,
        reason: Reason,
        message: str,
        outcome: Outcome,
    ) -> Result:
        await ctx.apply_status(build_final_status(consumer, reason, message, now=ctx.now()))
        after = 0.01 if outcome.changed else _EFFECT_RETRY
        return Result.from_outcome(outcome, requeue_after=after)

    async def _look(self, ctx: Context, consumer: PulsarConsumer) -> CachedState:
        """Return the known state of the broker; never wait long for a slow broker."""
        scaling = consumer.spec.autoscaling
        period = float(scaling.poll_seconds) if scaling else self._settings.poll_seconds
        if needs_broker_state(consumer) and not period:
            period = type(self._settings)().poll_seconds
        if not consumer.topics or not period or not consumer.can_call_admin:
            return _NOTHING_KNOWN
        address, status_query = admin_address(consumer), build_status_query(consumer)
        abandoned = find_abandoned(consumer)

        async def ask() -> Report:
            previous = self._broker_cache.last_report(ctx.key)
            async with await self._open(ctx, consumer) as admin:
                now = ctx.now().timestamp()
                return await read_broker(
                    admin,
                    status_query,
                    previous,
                    now,
                    abandoned,
                    tolerates_busy=self._broker_cache.is_failing(ctx.key),
                )

        return await self._broker_cache.look(
            ctx.key,
            build_fingerprint(consumer, address, status_query),
            address,
            ask,
            period=period,
            wake=lambda: _wake(ctx),
        )

    async def _open(self, ctx: Context, consumer: PulsarConsumer) -> PulsarAdmin:
        """Build the client of the admin API with the current credentials."""

        def log_error(err: AdminBusy) -> None:
            if not self._broker_cache.is_failing(ctx.key):
                ctx.log.warning(
                    "Broker returned a temporary error", error=str(err), explanation=err.explanation
                )

        address = admin_address(consumer)
        return await open_admin(
            consumer, ctx.client, self._settings, self._connections, address, log_error
        )

    def _observe(self, ctx: Context, look: CachedState) -> Observed:
        deployments = ctx.children(DEPLOYMENT)
        children = {
            kind: held
            for kind in SIDE_KINDS
            for held in ctx.children(kind)
            if held["metadata"]["name"] == ctx.key.name
        }
        return Observed(
            deployment=DeploymentView.parse(deployments[0]) if deployments else None,
            children=children,
            served=frozenset(kind for kind in OPTIONAL_KINDS if ctx.is_served(kind)),
            broker_state=look.broker_state,
        )

    def _describe_clash(self, ctx: Context, consumer: PulsarConsumer) -> str:
        if consumer.spec.retry is None and consumer.spec.dead_letter is None:
            return ""
        try:
            return describe_clash(consumer, parse_others(ctx.list(PULSAR_CONSUMER), ctx.uid))
        except TerminalError:
            return ""  # Another PulsarConsumer has an invalid spec, and runs with an earlier one.

    async def _delete_abandoned(
        self, ctx: Context, consumer: PulsarConsumer, observed: Observed, look: CachedState
    ) -> None:
        """Delete subscriptions of earlier specs, with deletion policy Delete."""
        if consumer.spec.subscription.deletion_policy is not DeletionPolicy.DELETE:
            return
        held = ctx.list(PULSAR_CONSUMER)
        try:
            others = [PulsarConsumer.parse(each) for each in held if uid_of(each) != ctx.uid]
        except TerminalError:
            # Another PulsarConsumer has an invalid spec, so the subscriptions that it uses are
            # unknown.
            return
        for subscription in find_deletable(consumer, observed, others):

            async def act(subscription: SubscriptionRef = subscription) -> None:
                async with await self._open(ctx, consumer) as admin:
                    await delete_subscriptions(admin, [subscription])

            # The name contains the number of the poll, because a subscription can be abandoned
            # again later.
            name = f"abandon {subscription.name} {subscription.topic} {look.serial}"
            known = self._broker_cache.is_done(ctx.key, name)
            effect = await self._broker_cache.act(ctx.key, name, act, lambda: _wake(ctx))
            if effect.done and not known:
                note = f"Deleted abandoned subscription {subscription.name} on {subscription.topic}"
                ctx.event("Normal", Reason.SUBSCRIPTION_DELETED, note)

    def _publish_status(
        self,
        ctx: Context,
        consumer: PulsarConsumer,
        plan: Plan,
        outcome: Outcome,
        *,
        before: DeploymentView | None,
        look: CachedState,
    ) -> None:
        """Record Events for the changes."""
        # A Deployment that waits for the subscription is not changed.
        changes = (
            before is not None and before.wanted != plan.replicas and not (plan.held or plan.fault)
        )
        scaled = changes and outcome.ok
        if before is None and outcome.changed:
            ctx.event(
                "Normal", Reason.DEPLOYED, f"Created the Deployment, replicas: {plan.replicas}"
            )
        elif before is not None and scaled:
            decision = self._native.last_decision(ctx.key)
            why = f" for {decision.cause}" if decision is not None else ""
            note = f"Scaled from {before.wanted} to {plan.replicas} consumers{why}"
            ctx.event("Normal", Reason.SCALED, note)
            ctx.log.info("Scaling consumers", before=before.wanted, now=plan.replicas)
        report = look.broker_state.fresh
        if report is not None and report.created and self._gauges.is_new(ctx.key, look.serial):
            note = f"Created subscription {consumer.spec.subscription_name} at the broker"
            ctx.event("Normal", Reason.CREATED, note)


def _wake(ctx: Context) -> None:
    ctx.wake(PULSAR_CONSUMER, [ctx.key])


OPERATOR: Final = Operator(
    OPERATOR_ID,
    (build_controller,),
    settings=Settings,
    # Only `get`, without list and watch: the operator reads only Secrets that a spec names, and
    # caches none.
    permissions=(
        grant(SECRET, "get", why="read the credentials for brokers"),
        grant(POD, "list", why="wait until no consumer runs before a seek"),
    ),
    metrics=METRICS,
    summary="Runs and scales consumers of a Pulsar topic for each PulsarConsumer.",
)
"""The operator, which the process and the tests run."""
