"""Controller of PrometheusJmxExporter: watches, indexes, and the reconcile of one exporter.

A reconcile observes the cache, plans, executes the plan, and reports the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from libs.common.conditions import conditions_of, parse_time
from libs.common.errors import BadRequest, Forbidden, Invalid
from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, POD, SERVICE, Key
from libs.common.labels import MANAGED_BY
from libs.common.plan import Outcome
from libs.common.rbac import grant
from libs.common.runtime import Context, Controller, Operator, Result
from operators.jmxexporter import gauges
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, Mode, PrometheusJmxExporter
from operators.jmxexporter.discovery import POD_MONITOR, SERVICE_MONITOR, plan_discovery
from operators.jmxexporter.guards import Guards
from operators.jmxexporter.metrics import INJECTORS, JVMS_LOST, METRICS
from operators.jmxexporter.naming import FINALIZER, OPERATOR_ID
from operators.jmxexporter.observe import (
    BY_EXPORTER,
    index_pod_by_exporter,
    map_config_map,
    map_exporter,
    map_pod,
    observe,
    observe_traces,
)
from operators.jmxexporter.pods import shrink_pod
from operators.jmxexporter.reasons import ConditionType, Reason
from operators.jmxexporter.reconcile import (
    Limits,
    Observed,
    Plan,
    PodAction,
    Refused,
    list_addresses,
    may_still_inject,
    plan_exporter,
    plan_release,
    plan_stops,
)
from operators.jmxexporter.resources import Image
from operators.jmxexporter.settings import Settings
from operators.jmxexporter.signing import KeyHolder, SigningKey
from operators.jmxexporter.status import build_status
from operators.jmxexporter.webhook import build_webhooks

_OURS: Final = f"{MANAGED_BY}={OPERATOR_ID}"
_WRITES: Final = ("create", "patch", "delete")
_REFUSALS: Final = (BadRequest, Forbidden, Invalid)
"""Errors that the API server repeats for the same pod, for example for a static pod."""
_LONGEST_PAUSE: Final = 3600
"""Seconds between two attempts for a pod that the API server refuses."""
_AT_ONCE: Final = 0.01
_POLL_SECONDS: Final = 5.0
"""Seconds between two reconciles of an exporter that is being deleted."""
_PODS_NAMED: Final = 5
_THEIR_END: Final = "they end with their pods"


def build_controller(settings: Settings) -> Controller:
    """Build the controller of PrometheusJmxExporter."""
    reconciler = Reconciler(settings)
    controller = (
        Controller(
            OPERATOR_ID,
            primary=PROMETHEUS_JMX_EXPORTER,
            reconcile=reconciler.reconcile,
            finalize=reconciler.finalize,
            finalizer=FINALIZER,
            close=reconciler.close,
        )
        .watches(PROMETHEUS_JMX_EXPORTER, map_exporter)
        .watches(
            POD,
            map_pod,
            transform=shrink_pod,
            source="reflector",
            indexes={BY_EXPORTER: index_pod_by_exporter},
            writes=("patch",),
            why="find the pods with JVMs, read the reports of injectors, annotate for Prometheus",
        )
        .watches(
            CONFIG_MAP,
            map_config_map,
            source="reflector",
            why="read configurations of the exporter",
        )
    )
    for kind, optional, field in (
        (SERVICE, False, "service"),
        (ENDPOINT_SLICE, False, "service"),
        (SERVICE_MONITOR, True, "service.monitor"),
        (POD_MONITOR, True, "podMonitor"),
    ):
        controller.owns(
            kind,
            source="reflector",
            label_selector=_OURS,
            optional=optional,
            writes=_WRITES,
            why=f"manage the {kind.kind} of spec.{field}",
        )
    return controller


class Reconciler:
    """The reconciler of exporters and their pods."""

    def __init__(self, settings: Settings) -> None:
        """Store the settings; everything else can be read again after a restart."""
        self._guards = Guards()
        self._refused: dict[str, dict[Key, Refused]] = {}
        secret = Key(settings.pod_namespace or "default", settings.signing_secret)
        self._keys = KeyHolder(secret if secret.name else None)
        image = Image(settings.injector_image, settings.injector_pull_policy)
        self._limits = Limits(image, timedelta(seconds=settings.start_timeout_seconds))
        self._stop_timeout = timedelta(seconds=settings.stop_timeout_seconds)

    async def reconcile(self, ctx: Context) -> Result | None:
        """Reconcile an exporter that is not being deleted."""
        exporter = PrometheusJmxExporter.parse(ctx.primary)
        key = await self._keys.get(ctx.client)
        limits = replace(self._limits, image=replace(self._limits.image, public_key=_text_of(key)))
        observed = self._observe(ctx, exporter, key)
        plan = plan_exporter(exporter, observed, ctx.now(), limits)
        answered = await self._guards.make(
            ctx.uid, plan.calls, key, ctx.now, _waker(ctx), namespace=ctx.key.namespace
        )
        if answered:
            observed = self._observe(ctx, exporter, key)
            plan = plan_exporter(exporter, observed, ctx.now(), limits)
        outcome = await ctx.execute(plan.steps)
        _report_actions(ctx, plan.actions, outcome)
        refused = self._note_refusals(ctx, exporter, plan, outcome)
        published = await _publish(ctx, exporter, observed, plan)
        observed = self._observe(ctx, exporter, key)
        # Plan again from the new state, only for the status: this plan is not executed.
        after = plan_exporter(exporter, observed, ctx.now(), limits)
        self._guards.keep(ctx.uid, after.guards)
        status = build_status(
            exporter,
            observed,
            after,
            [*plan.refusals(outcome), *(failure.message for failure in published.failures)],
            current=conditions_of(ctx.primary),
            now=ctx.now(),
        )
        if ctx.warn_on_new_condition(status, ConditionType.DEGRADED):
            ctx.metrics.counter(JVMS_LOST).inc()
        gauges.show(ctx.metrics, ctx.key, status)
        await ctx.apply_status(status)
        if refused and published.ok:
            return Result(_AT_ONCE)  # Other pods take the place of the refused ones.
        worse = published if outcome.ok else outcome
        # Guards responded, and the plan calls further ones: reconcile again immediately.
        due = _AT_ONCE if answered and after.calls else _seconds_until(after.next_look, ctx)
        return Result.from_outcome(worse, requeue_after=due)

    def _observe(
        self, ctx: Context, exporter: PrometheusJmxExporter, key: SigningKey | None
    ) -> Observed:
        states = self._guards.states(ctx.uid)
        return replace(
            observe(ctx, exporter),
            states=states,
            signs=key is not None,
            refused=self._refused.get(ctx.uid, {}),
        )

    def _note_refusals(
        self, ctx: Context, exporter: PrometheusJmxExporter, plan: Plan, outcome: Outcome
    ) -> bool:
        """Remember the pods for which the API server refused an injector, and for how long.

        Returns:
            Whether steps failed, and all of them for this reason.
        """
        held = self._refused.pop(ctx.uid, {})
        tried = {action.step.key for action in plan.actions if action.job is not None}
        kept = {
            target.pod.key: held[target.pod.key]
            for target in plan.targets
            if target.pod.key in held and target.pod.key not in tried
        }
        for failure in outcome.failures:
            key = failure.step.key
            if key in tried and isinstance(failure.error, _REFUSALS):
                count = held[key].count + 1 if key in held else 1
                seconds = min(exporter.spec.backoff_seconds * 2 ** (count - 1), _LONGEST_PAUSE)
                kept[key] = Refused(failure.message, count, ctx.now() + timedelta(seconds=seconds))
        if kept:
            self._refused[ctx.uid] = kept
        return bool(outcome.failures) and all(
            failure.step.key in kept for failure in outcome.failures
        )

    async def close(self) -> None:
        """Cancel all calls that are in progress."""
        await self._guards.close()

    async def finalize(self, ctx: Context) -> Result | None:
        """Reconcile an exporter that is being deleted; None removes the finalizer."""
        exporter = PrometheusJmxExporter.parse(ctx.primary)
        plan = plan_stops(exporter, observe_traces(ctx), ctx.now(), self._limits)
        outcome = await ctx.execute(plan.steps)
        _report_actions(ctx, plan.actions, outcome)
        rest = plan_stops(exporter, observe_traces(ctx), ctx.now(), self._limits)
        deadline = parse_time(ctx.primary["metadata"]["deletionTimestamp"]) + self._stop_timeout
        self._guards.forget(ctx.uid)
        self._refused.pop(ctx.uid, None)
        if outcome.ok and not rest.stopping and not rest.actions:
            if rest.unstopped:
                pods = ", ".join(rest.unstopped[:_PODS_NAMED])
                note = f"Could not stop endpoints in pods: {pods}; {_THEIR_END}"
                ctx.event("Warning", Reason.STOPPING, note, action="Finalize")
            gauges.forget(ctx.metrics, ctx.key)
            return None
        late = any(may_still_inject(pod, ctx.uid, ctx.now()) for pod in observe_traces(ctx))
        if ctx.now() > deadline and not late:
            # The timeout applies even if the API server rejects injectors, for example because of a
            # newer admission policy: the deletion must not hang forever.
            return await self._give_up(ctx, exporter)
        return Result.from_outcome(outcome, requeue_after=_POLL_SECONDS)

    async def _give_up(self, ctx: Context, exporter: PrometheusJmxExporter) -> Result | None:
        """Release pods whose endpoints did not stop before the timeout."""
        release = plan_release(exporter, observe_traces(ctx))
        outcome = await ctx.execute(release.steps)
        _report_actions(ctx, release.actions, outcome)
        if not outcome.ok:
            return Result.from_outcome(outcome, requeue_after=_POLL_SECONDS)
        note = f"Gave up waiting for endpoints to stop; {_THEIR_END}"
        ctx.event("Warning", Reason.STOPPING, note, action="Finalize")
        gauges.forget(ctx.metrics, ctx.key)
        return None


async def _publish(
    ctx: Context, exporter: PrometheusJmxExporter, observed: Observed, plan: Plan
) -> Outcome:
    """Bring the Service, EndpointSlices and monitors in line with the endpoints that serve."""
    if exporter.spec.mode is not Mode.ACTIVE:
        return Outcome()
    steps = plan_discovery(
        exporter,
        list_addresses(plan.targets),
        observed.published,
        ctx.owner_reference(),
        monitored=observed.monitored,
    )
    outcome = await ctx.execute(steps)
    if outcome.changed:
        ctx.event("Normal", Reason.PUBLISHED, f"Changed {outcome.changed} objects of spec.service")
    return outcome


def _waker(ctx: Context) -> Callable[[], None]:
    return lambda: ctx.wake(PROMETHEUS_JMX_EXPORTER, [ctx.key])


def _text_of(key: SigningKey | None) -> str:
    return key.public_text if key is not None else ""


def _seconds_until(moment: datetime | None, ctx: Context) -> float | None:
    return None if moment is None else max(0.1, (moment - ctx.now()).total_seconds())


def _report_actions(ctx: Context, actions: Iterable[PodAction], outcome: Outcome) -> None:
    for action in ctx.report(actions, outcome):
        if action.job is not None:
            ctx.metrics.counter(INJECTORS).labels(action.job).inc()


OPERATOR: Final = Operator(
    OPERATOR_ID,
    (build_controller,),
    settings=Settings,
    permissions=(
        grant(
            POD, "patch", subresource="ephemeralcontainers", why="add injectors to pods with JVMs"
        ),
    ),
    metrics=METRICS,
    runnables=(build_webhooks,),
    summary="Serves the metrics of running JVMs for Prometheus, without a restart.",
)
"""The operator, as the process and the tests run it."""
