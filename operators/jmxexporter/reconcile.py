"""Plan of one reconcile of a PrometheusJmxExporter. Pure: no input or output, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from libs.common.actions import Action
from libs.common.kinds import Kind, Manifest
from libs.common.plan import Outcome, Patch, Step
from operators.jmxexporter.annotations import hides_endpoint, plan_annotations
from operators.jmxexporter.api.v1alpha1 import Mode, PrometheusJmxExporter
from operators.jmxexporter.config import Config
from operators.jmxexporter.discovery import MONITORS, Address
from operators.jmxexporter.guard_calls import GuardCall, GuardKey, GuardState
from operators.jmxexporter.injector.messages import Action as Job
from operators.jmxexporter.injector.messages import Request
from operators.jmxexporter.phases import OF_RULES, Phase, Target
from operators.jmxexporter.pods import Container, InjectorRun, Pod
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.requests import build_request, build_stop
from operators.jmxexporter.resources import Image, build_injection
from operators.jmxexporter.targets import TargetEvaluator, counts, evaluate_started


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal of an injector by the API server.

    Attributes:
        count: How often it refused an injector for the pod in a row.
    """

    message: str
    count: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """The inputs of the plan.

    Attributes:
        pods: Running pods that the exporter selects and manages.
        contested: Names of selected pods that an older exporter manages, with its name.
        coming: Number of selected pods that do not run yet.
        strays: Other pods that had injectors of this exporter or carry its annotations.
        broken: Whether the status says that the circuit breaker is open for this generation.
        monitored: Kinds of monitors that the cluster has.
        published: Objects by which Prometheus finds the endpoints, each with its kind.
        signs: Whether the operator has a key; guards accept only signed configurations.
        resumed: Time before which JVMs that ended do not count, once it has come.
        resume_at: The same, even if it is in the future.
        refused: Pods for which the API server refused an injector, by UID.
        exporters: UIDs of all exporters of the namespace.
    """

    config: Config
    pods: Sequence[Pod] = ()
    contested: Mapping[str, str] = field(default_factory=dict)
    coming: int = 0
    strays: Sequence[Pod] = ()
    broken: bool = False
    monitored: Collection[Kind] = MONITORS
    published: Sequence[tuple[Kind, Manifest]] = ()
    states: Mapping[GuardKey, GuardState] = field(default_factory=dict)
    signs: bool = False
    resumed: datetime | None = None
    resume_at: datetime | None = None
    refused: Mapping[str, Refused] = field(default_factory=dict)
    exporters: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that a plan needs.

    Attributes:
        start_timeout: How long an injector may take to start.
    """

    image: Image
    start_timeout: timedelta = timedelta(seconds=300)


@dataclass(frozen=True, slots=True)
class PodAction(Action):
    """One change of a pod.

    Attributes:
        job: Action of the injector; None for annotations.
    """

    step: Patch
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions, and the state of all containers.

    Attributes:
        actions: What to do.
        calls: Guards to ask or to send the configuration to.
        targets: State of the containers of the exporter's pods.
        lost: Which JVMs ended during an injection; empty if they are too few.
        broken: Whether the circuit breaker is open.
        rejected: Why JVMs reject the configuration; empty if they do not.
        next_look: When to reconcile again even if nothing changes; None for never.
        foreign: Names of pods whose annotations for Prometheus have another owner.
        stopping: Whether endpoints are still to be ended.
        unstopped: Pods with endpoints that could not be ended, each with the reason.
    """

    actions: Sequence[PodAction] = ()
    targets: Sequence[Target] = ()
    calls: Sequence[GuardCall] = ()
    lost: str = ""
    broken: bool = False
    rejected: str = ""
    next_look: datetime | None = None
    foreign: Sequence[str] = ()
    stopping: bool = False
    unstopped: Sequence[str] = ()

    @property
    def guards(self) -> list[GuardKey]:
        """The endpoints of the exporter."""
        return [
            GuardKey(target.container.container_id, each.jvm.pid, each.jvm.start)
            for target in self.targets
            for each in target.endpoints
        ]

    @property
    def steps(self) -> list[Step]:
        """The steps, which do not depend on each other."""
        return [action.step for action in self.actions]

    def refusals(self, outcome: Outcome) -> list[str]:
        """Return the errors of the API server for failed steps, each with the name of its pod."""
        return [f"pod {failure.step.key.name}: {failure.error}" for failure in outcome.failures]


def plan_exporter(
    exporter: PrometheusJmxExporter, observed: Observed, now: datetime, limits: Limits
) -> Plan:
    """Plan the actions that bring the selected pods in line with the spec."""
    lost = find_lost(exporter, [*observed.pods, *observed.strays], observed.resumed)
    broken = bool(lost) or (observed.broken and not is_refuted(exporter, observed))
    config = observed.config
    states = observed.states if observed.signs else None
    evaluate = TargetEvaluator(exporter, now, config, states, observed.resumed)
    targets = [
        evaluate_started(exporter, pod, container, config.hash, observed.states, now)
        or evaluate.evaluate(pod, container, build_request(exporter, config, pod, container))
        for pod in observed.pods
        for container in pick_containers(exporter, pod)
    ]
    rejected = find_rejection(targets, observed.pods, config)
    paused = exporter.spec.mode is Mode.PAUSED
    stops = plan_stops(exporter, observed.strays, now, limits)
    actions: list[PodAction] = []
    if not paused:
        actions += _annotate(exporter, observed.pods, targets)
        actions += stops.actions
    # Queries of guards change nothing, so spec.maxConcurrent does not limit them.
    calls = [call for target in targets if target.phase is not Phase.DUE for call in target.calls]
    blocked = paused or broken or rejected or config.reason
    if not blocked:
        targets, injections, sent = _inject(exporter, observed, targets, now, limits)
        actions += injections
        calls += sent
    looks = [target.until for target in targets if target.until is not None and not blocked]
    if broken and observed.resume_at is not None and observed.resume_at > now:
        looks.append(observed.resume_at)
    return Plan(
        actions,
        targets,
        () if paused else calls,
        lost,
        broken,
        rejected,
        min(looks, default=stops.next_look),
        [pod.key.name for pod in observed.pods if hides_endpoint(exporter, pod)],
        stops.stopping,
    )


def plan_stops(
    exporter: PrometheusJmxExporter, pods: Iterable[Pod], now: datetime, limits: Limits
) -> Plan:
    """Plan the actions that stop endpoints in pods that the exporter no longer manages."""
    actions: list[PodAction] = []
    looks: list[datetime] = []
    unstopped: list[str] = []
    stopping = False
    evaluate = TargetEvaluator(exporter, now)
    for pod in pods:
        targets = [
            evaluate.evaluate(pod, container, build_stop(exporter, pod, container))
            for container in pod.containers
            if _has_endpoint(exporter, pod, container)
        ]
        for target in targets:
            # Unlike an injection, a stop does not wait until the pod is ready.
            due = target.phase is Phase.DUE or target.reason is Reason.POD_NOT_READY
            if due and not pod.is_busy(now):
                actions.append(
                    _build_action(
                        exporter,
                        replace(target, phase=Phase.DUE),
                        build_stop(exporter, pod, target.container),
                        limits,
                        now,
                    )
                )
                break
        waiting = [target for target in targets if target.phase in (Phase.DUE, Phase.WAITING)]
        looks += [target.until for target in waiting if target.until is not None]
        if waiting:
            stopping = True
            continue
        unstopped += [f"{pod.key.name} ({each.reason})" for each in targets if each.endpoints]
        if pod.belongs_to(exporter.metadata.uid):
            actions += _unannotate(exporter, pod)
    return Plan(actions, next_look=min(looks, default=None), stopping=stopping, unstopped=unstopped)


def plan_release(exporter: PrometheusJmxExporter, pods: Iterable[Pod]) -> Plan:
    """Plan the release of pods whose endpoints did not stop before the timeout.

    The annotations for Prometheus must be removed: no other exporter replaces them, because it did
    not set them (see `is_foreign`).
    """
    mine = [pod for pod in pods if pod.belongs_to(exporter.metadata.uid)]
    return Plan([action for pod in mine for action in _unannotate(exporter, pod)])


def pick_containers(exporter: PrometheusJmxExporter, pod: Pod) -> list[Container]:
    """Return the running containers of a pod that the spec does not exclude."""
    wanted = exporter.spec.containers
    return [
        container
        for container in pod.containers
        if container.container_id
        and (not wanted.include or container.name in wanted.include)
        and container.name not in wanted.exclude
    ]


_MOST_LATE: Final = timedelta(hours=1)
_MOST_FORMER: Final = 5
_WITNESSES: Final = 2
"""Pods that must agree before they affect other pods."""


def find_lost(
    exporter: PrometheusJmxExporter, pods: Sequence[Pod], resumed: datetime | None
) -> str:
    """Name the JVMs that ended during an injection for this generation of the spec.

    They count if two pods have them, or the only pod: a container may end for reasons of its own at
    that moment, and a pod can forge its reports. Until then such a pod gets no further injector,
    and injectors run one at a time (see `_inject`).
    """
    losses = [
        (pod, run)
        for pod in pods
        for run in pod.runs_of(exporter.metadata.uid)
        if counts(run, exporter, resumed)
        and run.request.action is not Job.CHECK
        and (pod.has_lost(run) or run.has_lost_jvm())
    ]
    if not losses or len({pod.key for pod, _ in losses}) < min(_WITNESSES, len(pods)):
        return ""
    shown = [f"pod {pod.key.name}, container {run.container}" for pod, run in losses]
    return "; ".join(shown[:3])


def is_refuted(exporter: PrometheusJmxExporter, observed: Observed) -> bool:
    """Return whether all containers that ended during an injection ended again without one."""
    ends = [
        pod.outlived(run)
        for pod in (*observed.pods, *observed.strays)
        for run in pod.runs_of(exporter.metadata.uid)
        if counts(run, exporter, observed.resumed)
    ]
    known = [each for each in ends if each is not None]
    return bool(known) and all(each > 0 for each in known)


def find_rejection(targets: Iterable[Target], pods: Sequence[Pod], config: Config) -> str:
    """Return why JVMs refuse the configuration, once enough of them have refused it.

    A JVM that serves another configuration has refused this one whatever its reason is. Only
    containers that still run count: a restarted container may accept the configuration.
    """
    refusals = {
        target.pod.key: f"{target.pod.key.name}: {target.reason}: {target.message}"
        for target in targets
        if target.phase is Phase.FAILED and _refuses(target, config)
    }
    enough = len(refusals) >= min(_WITNESSES, len(pods))
    return min(refusals.values()) if refusals and enough else ""


def _refuses(target: Target, config: Config) -> bool:
    serves_other = any(each.jvm.config_hash != config.hash for each in target.endpoints)
    return target.reason is Reason.CONFIG_INVALID or (serves_other and target.reason in OF_RULES)


def _inject(
    exporter: PrometheusJmxExporter,
    observed: Observed,
    targets: Sequence[Target],
    now: datetime,
    limits: Limits,
) -> tuple[list[Target], list[PodAction], list[GuardCall]]:
    """Choose the containers to change now, with an injector or with calls to their guards.

    One injector at a time runs in a pod, and at most spec.maxConcurrent pods are changed at a time,
    or one while a pod reports harm. Injectors that cannot start or run in `strays` do not count.
    """
    uid = exporter.metadata.uid
    busy = {pod.key for pod in observed.pods if pod.is_busy(now)}
    at_work = {
        pod.key
        for pod in observed.pods
        if any(run.is_pending(now) and not _is_stuck(run) for run in pod.runs_of(uid))
    }
    limit = exporter.spec.max_concurrent if not _is_suspect(targets, observed.config) else 1
    actions: list[PodAction] = []
    calls: list[GuardCall] = []
    evaluated: list[Target] = []
    for target in targets:
        if target.phase is not Phase.DUE:
            evaluated.append(target)
        elif refused := _find_refusal(target, observed, now):
            evaluated.append(refused)
        elif target.pod.key in busy:
            message = "waiting for another container of the pod"
            evaluated.append(_wait(target, Reason.POD_BUSY, message))
        elif len(at_work) >= limit:
            message = f"injectors run in {len(at_work)} other pods, the limit of spec.maxConcurrent"
            evaluated.append(_wait(target, Reason.WAITING, message))
        elif target.calls:
            calls += target.calls
            at_work.add(target.pod.key)
            message = "the configuration is being sent to the JVM"
            evaluated.append(_wait(target, Reason.UPDATING, message))
        else:
            request = build_request(exporter, observed.config, target.pod, target.container)
            request = replace(request, former=_find_former(target, observed))
            actions.append(_build_action(exporter, target, request, limits, now))
            busy.add(target.pod.key)
            at_work.add(target.pod.key)
            evaluated.append(
                _wait(target, Reason.STARTING, "an injector is being added to its pod")
            )
    return evaluated, actions, calls


def _is_stuck(run: InjectorRun) -> bool:
    """Return whether the kubelet reports that an injector cannot start; it blocks no other pod."""
    return bool(run.waits_for) and "ContainerCreating" not in run.waits_for


def may_still_inject(pod: Pod, uid: str, now: datetime) -> bool:
    """Return whether an injector that runs, or may still start, may create an endpoint.

    A deletion does not time out before: nothing would stop that endpoint later.
    """
    return any(run.request.action is Job.ENSURE and run.is_pending(now) for run in pod.runs_of(uid))


def _find_former(target: Target, observed: Observed) -> tuple[str, ...]:
    """Find exporters that were deleted without their finalizer: their endpoints hold the ports."""
    ids = (run.request.id for run in target.pod.runs if run.container == target.container.name)
    former = dict.fromkeys(each for each in ids if each not in observed.exporters)
    return tuple(former)[-_MOST_FORMER:] if observed.exporters else ()


def _find_refusal(target: Target, observed: Observed, now: datetime) -> Target | None:
    """Return the target of a pod for which the API server refused an injector; it holds no slot."""
    refused = observed.refused.get(target.pod.uid)
    if refused is None or refused.until <= now or target.calls:
        return None
    return replace(
        target,
        phase=Phase.FAILED,
        reason=Reason.REFUSED,
        message=refused.message,
        until=refused.until,
    )


def _is_suspect(targets: Iterable[Target], config: Config) -> bool:
    """Return whether one pod reports harm by the injection or by the configuration."""
    return any(
        target.reason is Reason.JVM_TERMINATED or _refuses(target, config) for target in targets
    )


def _wait(target: Target, reason: Reason, message: str) -> Target:
    return replace(target, phase=Phase.WAITING, reason=reason, message=message)


def _build_action(
    exporter: PrometheusJmxExporter, target: Target, request: Request, limits: Limits, now: datetime
) -> PodAction:
    last = now + limits.start_timeout + _find_lateness(target.pod, limits)
    created = int(now.timestamp())
    dated = replace(request, created=created, not_after=int(last.timestamp()))
    step = build_injection(
        target.pod, target.container, dated, exporter.spec.config, target.user, limits.image
    )
    where = f"container {target.container.name} of pod {target.pod.key.name}"
    note = f"Added an injector to {where}: {request.action}"
    return PodAction(step, Reason.STARTED, note, job=request.action)


def _find_lateness(pod: Pod, limits: Limits) -> timedelta:
    """Return how late injectors of a pod were by the clock of its node, which may be ahead."""
    late = [
        run.finished.timestamp() - run.request.not_after
        for run in pod.runs
        if run.finished and run.report and run.report.reason == Reason.INJECTOR_NOT_STARTED
    ]
    if not late:
        return timedelta()
    return limits.start_timeout + min(timedelta(seconds=max(late)), _MOST_LATE)


def _has_endpoint(exporter: PrometheusJmxExporter, pod: Pod, container: Container) -> bool:
    """Return whether a container may have an endpoint of the exporter that can be ended."""
    if not (container.container_id and pod.active):
        return False
    runs = pod.runs_of(exporter.metadata.uid, container)
    return any(run.request.action is Job.ENSURE for run in runs)


def _annotate(
    exporter: PrometheusJmxExporter, pods: Iterable[Pod], targets: Sequence[Target]
) -> list[PodAction]:
    actions: list[PodAction] = []
    for pod in pods:
        mine = [target for target in targets if target.pod.key == pod.key]
        served = [(each.jvm.port, each.path) for target in mine for each in target.endpoints]
        step = plan_annotations(exporter, pod, min(served, default=None))
        if step is not None:
            where = f"for port {min(served)[0]}" if served else "for no endpoint"
            note = f"Annotated pod {pod.key.name} {where}"
            actions.append(PodAction(step, Reason.ANNOTATED, note))
    return actions


def list_addresses(targets: Iterable[Target]) -> list[Address]:
    """List the addresses that serve metrics, including JVMs that wait for a new configuration."""
    return [
        Address(endpoint.jvm.port, target.pod.key.name, target.pod.uid, target.pod.ip)
        for target in targets
        for endpoint in target.endpoints
        if endpoint.jvm.port
    ]


def _unannotate(exporter: PrometheusJmxExporter, pod: Pod) -> list[PodAction]:
    step = plan_annotations(exporter, pod, None)
    note = f"Removed the annotations from pod {pod.key.name}"
    return [] if step is None else [PodAction(step, Reason.ANNOTATED, note)]
