"""The status of a PrometheusJmxExporter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import Manifest
from operators.jmxexporter.api.v1alpha1 import (
    SHOWN,
    AgentKind,
    EndpointState,
    Failure,
    MetricsEndpoint,
    Mode,
    PrometheusJmxExporter,
    PrometheusJmxExporterStatus,
)
from operators.jmxexporter.discovery import find_unserved
from operators.jmxexporter.endpoints import Endpoint
from operators.jmxexporter.injector.messages import State
from operators.jmxexporter.naming import RESUME
from operators.jmxexporter.phases import Phase, Target
from operators.jmxexporter.reasons import ConditionType, Reason
from operators.jmxexporter.reconcile import Observed, Plan

_NAMED = 3
"""Most pods that a message names."""


def build_status(
    exporter: PrometheusJmxExporter,
    observed: Observed,
    plan: Plan,
    refusals: Sequence[str],
    *,
    current: Iterable[Mapping[str, Any]],
    now: datetime,
) -> Manifest:
    """Build the status.

    Args:
        exporter: The exporter.
        observed: Observed objects.
        plan: The plan, with the state of the containers.
        refusals: Errors of failed steps.
        current: Conditions in the current status.
        now: Transition time of conditions whose status changes.
    """
    endpoints = sorted(_list_endpoints(exporter, plan.targets), key=lambda e: (e.pod, e.port))
    failures = sorted(_list_failures(observed, plan), key=lambda f: (f.pod, f.container or ""))
    instrumented = {endpoint.pod for endpoint in endpoints}
    pending = {_name(t) for t in plan.targets if t.phase in (Phase.DUE, Phase.WAITING)}
    failed = {_name(t) for t in _list_failed(plan.targets)}
    status = PrometheusJmxExporterStatus(
        observed_generation=exporter.metadata.generation,
        config_hash=observed.config.hash,
        matched_pods=len(observed.pods),
        instrumented_pods=len(instrumented),
        pending_pods=len(pending) + observed.coming,
        failed_pods=len(failed),
        metrics_endpoints=endpoints[:SHOWN],
        failures=failures[:SHOWN],
    ).to_manifest()
    config = _evaluate_config(exporter, observed, plan)
    degraded = _evaluate_breaker(plan, observed.resume_at, current, now)
    conditions = [
        _evaluate_ready(exporter, observed, plan, refusals, (config, degraded)),
        config,
        _evaluate_conflict(observed),
        degraded,
    ]
    generation = exporter.metadata.generation
    status["conditions"] = build_conditions(current, conditions, generation=generation, now=now)
    return status


def _name(target: Target) -> str:
    return target.pod.key.name


def _list_failed(targets: Iterable[Target]) -> list[Target]:
    """List failed containers, without those that have no JVM if another one of the pod has one."""
    served = {_name(target) for target in targets if target.phase is not Phase.NO_JVM}
    return [
        target
        for target in targets
        if target.phase is Phase.FAILED
        or (target.phase is Phase.NO_JVM and _name(target) not in served)
    ]


def _list_endpoints(
    exporter: PrometheusJmxExporter, targets: Iterable[Target]
) -> Iterable[MetricsEndpoint]:
    for target in targets:
        for endpoint in target.endpoints:
            yield _build_endpoint(exporter, target, endpoint, serving=True)
        for jvm in target.reports:
            if jvm.state is State.WOULD_INJECT and jvm.port:
                endpoint = Endpoint(jvm, exporter.spec.path, target.verified)
                yield _build_endpoint(exporter, target, endpoint, serving=False)


def _build_endpoint(
    exporter: PrometheusJmxExporter, target: Target, endpoint: Endpoint, *, serving: bool
) -> MetricsEndpoint:
    scheme = "https" if exporter.spec.tls is not None else "http"
    jvm, ip = endpoint.jvm, target.pod.ip
    host = f"[{ip}]" if ":" in ip else ip
    return MetricsEndpoint(
        pod=_name(target),
        port=jvm.port,
        container=target.container.name,
        container_id=target.container.container_id,
        pid=jvm.pid,
        main_class=jvm.main,
        url=f"{scheme}://{host}:{jvm.port}{endpoint.path}" if serving and host else "",
        agent_version=jvm.version,
        config_hash=jvm.config_hash,
        state=_state_of(target, serving=serving),
        last_verified_time=endpoint.verified,
    )


def _state_of(target: Target, *, serving: bool) -> EndpointState:
    if target.phase is Phase.UNVERIFIED:
        return EndpointState.NOT_VERIFIED
    if target.started:
        return EndpointState.STARTED_WITH
    return EndpointState.SERVING if serving else EndpointState.WOULD_INJECT


def _list_failures(observed: Observed, plan: Plan) -> Iterable[Failure]:
    given_up = {id(target) for target in _list_failed(plan.targets)}
    for target in plan.targets:
        late = target.reason is Reason.RESTART_REQUIRED
        waits = target.phase in (Phase.WAITING, Phase.UNVERIFIED)
        if id(target) in given_up or waits or late:
            yield Failure(
                pod=_name(target),
                container=target.container.name,
                reason=target.reason,
                message=target.message[:1024],
                attempts=target.attempts,
            )
    for name, holder in observed.contested.items():
        message = f"PrometheusJmxExporter {holder} is older and manages the pod"
        yield Failure(pod=name, reason=Reason.OLDER_EXPORTER, message=message)
    for name in plan.foreign:
        message = (
            "annotations prometheus.io/... were set by another owner; Prometheus may not find the"
            " endpoint"
        )
        yield Failure(pod=name, reason=Reason.FOREIGN_ANNOTATIONS, message=message)


def _evaluate_ready(
    exporter: PrometheusJmxExporter,
    observed: Observed,
    plan: Plan,
    refusals: Sequence[str],
    guards: Sequence[Condition],
) -> Condition:
    config, degraded = guards
    ready, targets = ConditionType.READY, plan.targets
    if degraded.status == "True":
        return Condition.false(ready, degraded.reason, degraded.message)
    if config.status == "False":
        return Condition.false(ready, config.reason, config.message)
    if refusals:
        return Condition.false(ready, Reason.REFUSED, refusals[0])
    if unserved := find_unserved(exporter, observed.monitored):
        field, kind = unserved
        message = f"{field}: the cluster has no {kind.kind}s; remove the field"
        return Condition.false(ready, Reason.MONITOR_UNAVAILABLE, message)
    if exporter.spec.mode is Mode.PAUSED:
        # True, because the spec asks for no changes: tools that wait for Ready continue.
        return Condition.true(ready, Reason.PAUSED, "spec.mode is Paused: nothing is changed")
    if failed := _list_failed(targets):
        return Condition.false(ready, Reason.TARGETS_FAILED, _describe(failed))
    waiting = [target for target in targets if target.phase in (Phase.DUE, Phase.WAITING)]
    unready = len({_name(t) for t in waiting if t.pod.ready_since is None}) + observed.coming
    working = [target for target in waiting if target.pod.ready_since is not None]
    serving = {_name(target) for target in targets if target.endpoints}
    # A pod that is not ready is not a failure of the exporter as long as other pods serve.
    if working or plan.stopping or (unready and not serving):
        count = len({_name(target) for target in working}) + unready
        return Condition.false(ready, Reason.INJECTING, f"pods without metrics yet: {count}")
    if unverified := [t for t in targets if t.phase is Phase.UNVERIFIED]:
        return Condition.unknown(ready, Reason.NOT_VERIFIED, _describe(unverified))
    if exporter.spec.mode is Mode.DRY_RUN:
        message = "spec.mode is DryRun: status lists what would be done"
        return Condition.true(ready, Reason.DRY_RUN, message)
    if not observed.pods:
        message = "spec.labelSelector selects no running pod, or only pods of other exporters"
        return Condition.true(ready, Reason.NO_PODS, message)
    count = len(observed.pods) + observed.coming
    rest = f"; {unready} not ready" if unready else ""
    if noted := [target for target in targets if target.phase is Phase.DONE and target.message]:
        rest += f"; {_describe(noted)}"
    message = f"{count - unready} of {count} pods serve metrics{rest}"
    return Condition.true(ready, Reason.ALL_SERVING, message)


def _describe(targets: Sequence[Target]) -> str:
    shown = "; ".join(
        f"{_name(t)}/{t.container.name}: {t.reason}: {t.message}" for t in targets[:_NAMED]
    )
    rest = len(targets) - _NAMED
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _evaluate_config(exporter: PrometheusJmxExporter, observed: Observed, plan: Plan) -> Condition:
    config = observed.config
    if config.reason is not None:
        return Condition.false(ConditionType.CONFIG_VALID, config.reason, config.message)
    if plan.rejected:
        message = f"the exporter refused it: {plan.rejected}"
        return Condition.false(ConditionType.CONFIG_VALID, Reason.CONFIG_INVALID, message)
    warnings = [config.warning] if config.warning else []
    if exporter.spec.agent is AgentKind.UPSTREAM:
        warnings.append("spec.agent Upstream has no effect; remove the field")
    return Condition.true(ConditionType.CONFIG_VALID, Reason.CONFIG_ACCEPTED, "; ".join(warnings))


def _evaluate_conflict(observed: Observed) -> Condition:
    if not observed.contested:
        return Condition.false(ConditionType.CONFLICTING, Reason.NO_CONFLICT)
    names = sorted(observed.contested)
    shown = ", ".join(f"{name} ({observed.contested[name]})" for name in names[:_NAMED])
    message = f"older exporters have {len(names)} of the pods: {shown}"
    return Condition.true(ConditionType.CONFLICTING, Reason.OLDER_EXPORTER, message)


def _evaluate_breaker(
    plan: Plan, resume_at: datetime | None, current: Iterable[Mapping[str, Any]], now: datetime
) -> Condition:
    ahead = ""
    if resume_at is not None and resume_at > now:
        ahead = f"; {RESUME} is ahead of the clock of the operator and takes effect at {resume_at}"
    if plan.lost:
        message = (
            f"JVMs ended during an injection ({plan.lost}); no further JVM is injected. After"
            f" finding the cause, change the spec, or set the annotation {RESUME} of the exporter"
            f" to the current time (RFC 3339){ahead}"
        )
        return Condition.true(ConditionType.DEGRADED, Reason.JVM_TERMINATED, message)
    if plan.broken:
        held = next(each for each in current if each.get("type") == ConditionType.DEGRADED)
        return Condition.true(
            ConditionType.DEGRADED, Reason.JVM_TERMINATED, held.get("message", "")
        )
    return Condition.false(ConditionType.DEGRADED, Reason.HEALTHY)
