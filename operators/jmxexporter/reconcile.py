"""What to do next for a PrometheusJmxExporter; pure: no input or output, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from libs.common.actions import Action
from libs.common.kinds import Kind, Manifest
from libs.common.plan import Outcome, Patch, Step
from operators.jmxexporter.api.v1alpha1 import (
    AgentKind,
    Mode,
    PrometheusJmxExporter,
    Reason,
)
from operators.jmxexporter.config import Config
from operators.jmxexporter.discovery import Address
from operators.jmxexporter.injector.messages import Action as Job
from operators.jmxexporter.injector.messages import Reason as Told
from operators.jmxexporter.injector.messages import Request, State
from operators.jmxexporter.naming import MARK, OWNER, PATH, PORT, SCRAPE
from operators.jmxexporter.pods import Container, Pod
from operators.jmxexporter.resources import (
    Image,
    build_annotation_patch,
    build_annotations,
    build_injection,
)
from operators.jmxexporter.targets import (
    Judge,
    Phase,
    Target,
    build_request,
    build_stop,
    judge_started,
)

_UNSET: Mapping[str, None] = dict.fromkeys((SCRAPE, PORT, PATH, OWNER, MARK))


@dataclass(frozen=True, slots=True)
class Observed:
    """Hold what the plan looks at.

    Attributes:
        config: The configuration.
        pods: Running pods that the exporter selects and has.
        contested: Names of selected pods that an older exporter has, with its name.
        coming: Number of selected pods that do not run yet.
        strays: Other pods that had injectors of this exporter or carry its annotations.
        broken: Whether the status says that the circuit breaker is open for this generation.
        monitored: Whether the cluster has ServiceMonitors.
        published: Objects by which Prometheus finds the endpoints, each with its kind.
    """

    config: Config
    pods: Sequence[Pod] = ()
    contested: Mapping[str, str] = field(default_factory=dict)
    coming: int = 0
    strays: Sequence[Pod] = ()
    broken: bool = False
    monitored: bool = True
    published: Sequence[tuple[Kind, Manifest]] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Hold the settings that a plan needs.

    Attributes:
        image: What injectors are made of.
        start_timeout: How long an injector may take to start.
    """

    image: Image
    start_timeout: timedelta = timedelta(seconds=300)


@dataclass(frozen=True, slots=True)
class PodAction(Action):
    """One change of a pod.

    Attributes:
        step: The write.
        job: What an injector is to do; None for annotations.
    """

    step: Patch
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Say what to do, and where all containers stand.

    Attributes:
        actions: What to do.
        targets: Where the containers of the exporter's pods stand.
        lost: Why the circuit breaker is open; empty while it is closed.
        rejected: What JVMs have against the configuration; empty for nothing.
        next_look: When to look again though nothing happens; None for never.
        foreign: Names of pods that carry annotations for Prometheus of somebody else.
        stopping: Whether endpoints are still to be ended.
    """

    actions: Sequence[PodAction] = ()
    targets: Sequence[Target] = ()
    lost: str = ""
    rejected: str = ""
    next_look: datetime | None = None
    foreign: Sequence[str] = ()
    stopping: bool = False

    @property
    def steps(self) -> list[Step]:
        """The steps, which do not depend on each other."""
        return [action.step for action in self.actions]

    def refusals(self, outcome: Outcome) -> list[str]:
        """Return what the API server said to steps that failed."""
        return [f"pod {_pod_of(failure.step)}: {failure.error}" for failure in outcome.failures]


def _pod_of(step: Step) -> str:
    return step.key.name


def plan_exporter(
    exporter: PrometheusJmxExporter, observed: Observed, now: datetime, limits: Limits
) -> Plan:
    """Decide what brings the selected pods in line with the spec."""
    lost = find_lost(exporter, [*observed.pods, *observed.strays])
    config = observed.config
    judge = Judge(exporter, now, limits.start_timeout)
    targets = [
        judge_started(exporter, pod, container)
        or judge.judge(pod, container, build_request(exporter, config, pod, container))
        for pod in observed.pods
        for container in pick_containers(exporter, pod)
    ]
    rejected = find_rejection(exporter, config, observed.pods)
    paused = exporter.spec.mode is Mode.PAUSED
    stops = plan_stops(exporter, observed.strays, now, limits)
    actions: list[PodAction] = []
    if not paused:
        actions += _annotate(exporter, observed.pods, targets)
        actions += stops.actions
    blocked = paused or lost or observed.broken or rejected or config.reason
    if not blocked:
        targets, injections = _inject(exporter, observed, targets, now, limits)
        actions += injections
    looks = [target.until for target in targets if target.until is not None and not blocked]
    return Plan(
        actions,
        targets,
        lost,
        rejected,
        min(looks, default=stops.next_look),
        _find_foreign(exporter, observed.pods),
        stops.stopping,
    )


def plan_stops(
    exporter: PrometheusJmxExporter, pods: Iterable[Pod], now: datetime, limits: Limits
) -> Plan:
    """Decide what ends the endpoints in pods that the exporter does not have any more."""
    actions: list[PodAction] = []
    looks: list[datetime] = []
    stopping = False
    judge = Judge(exporter, now, limits.start_timeout)
    for pod in pods:
        targets = [
            judge.judge(pod, container, build_stop(exporter, pod, container))
            for container in pod.containers
            if _has_endpoint(exporter, pod, container)
        ]
        for target in targets:
            # Unlike a start, an end does not wait for the pod to be ready.
            due = target.phase is Phase.DUE or target.reason is Reason.POD_NOT_READY
            if due and not pod.busy:
                actions.append(
                    _build_action(
                        exporter,
                        replace(target, phase=Phase.DUE),
                        build_stop(exporter, pod, target.container),
                        limits,
                    )
                )
                break
        waiting = [target for target in targets if target.phase in (Phase.DUE, Phase.WAITING)]
        looks += [target.until for target in waiting if target.until is not None]
        if waiting:
            stopping = True
        elif pod.belongs_to(exporter.metadata.uid):
            actions += _unannotate(pod)
    return Plan(actions, next_look=min(looks, default=None), stopping=stopping)


def plan_release(exporter: PrometheusJmxExporter, pods: Iterable[Pod]) -> Plan:
    """Decide what lets go of pods whose endpoints did not end in time.

    To the next exporter the annotations of one that is gone are somebody else's.
    """
    mine = [pod for pod in pods if pod.belongs_to(exporter.metadata.uid)]
    return Plan([action for pod in mine for action in _unannotate(pod)])


def pick_containers(exporter: PrometheusJmxExporter, pod: Pod) -> list[Container]:
    """Return the running containers of a pod that the spec does not leave out."""
    wanted = exporter.spec.containers
    return [
        container
        for container in pod.containers
        if container.container_id
        and (not wanted.include or container.name in wanted.include)
        and container.name not in wanted.exclude
    ]


def find_lost(exporter: PrometheusJmxExporter, pods: Iterable[Pod]) -> str:
    """Tell of JVMs that ended during an injection for this generation of the spec."""
    lost = [
        f"pod {pod.key.name}, container {run.container}"
        for pod in pods
        for run in pod.runs_of(exporter.metadata.uid)
        if run.request.generation == exporter.metadata.generation
        and run.request.action is not Job.CHECK
        and pod.has_lost(run)
    ]
    return "; ".join(lost[:3])


def find_rejection(exporter: PrometheusJmxExporter, config: Config, pods: Iterable[Pod]) -> str:
    """Tell what a JVM has against the configuration: the others would say the same."""
    for pod in pods:
        for run in pod.runs_of(exporter.metadata.uid):
            if run.request.config_hash == config.hash and run.report is not None:
                for jvm in run.report.jvms:
                    if jvm.reason == Told.CONFIG_INVALID:
                        return jvm.message
    return ""


def _inject(
    exporter: PrometheusJmxExporter,
    observed: Observed,
    targets: Sequence[Target],
    now: datetime,
    limits: Limits,
) -> tuple[list[Target], list[PodAction]]:
    """Give containers their turn: one a pod, and some pods at a time."""
    uid = exporter.metadata.uid
    busy = {pod.key for pod in observed.pods if pod.busy}
    at_work = {
        pod.key
        for pod in observed.pods
        if any(run.finished is None and run.started is not None for run in pod.runs_of(uid))
        or _is_starting(uid, pod, now, limits)
    }
    actions: list[PodAction] = []
    judged: list[Target] = []
    for target in targets:
        if target.phase is not Phase.DUE:
            judged.append(target)
        elif target.pod.key in busy:
            message = "another container of the pod has its turn"
            judged.append(_wait(target, Reason.POD_BUSY, message))
        elif len(at_work) >= exporter.spec.max_concurrent:
            message = "as many pods as spec.maxConcurrent are worked on already"
            judged.append(_wait(target, Reason.WAITING, message))
        else:
            request = build_request(exporter, observed.config, target.pod, target.container)
            actions.append(_build_action(exporter, target, request, limits))
            busy.add(target.pod.key)
            at_work.add(target.pod.key)
            judged.append(_wait(target, Reason.STARTING, "an injector is put beside it"))
    return judged, actions


def _is_starting(uid: str, pod: Pod, now: datetime, limits: Limits) -> bool:
    """Tell whether an injector may still start: one that cannot does not hold up other pods.

    An ephemeral container has no time of creation. The pod was ready before it got one, which is
    all that is known.
    """
    waiting = [run for run in pod.runs_of(uid) if run.finished is None and run.started is None]
    if not waiting:
        return False
    stuck = any(run.waits_for and "ContainerCreating" not in run.waits_for for run in waiting)
    since = pod.ready_since
    return not (stuck and since is not None and now > since + limits.start_timeout)


def _wait(target: Target, reason: Reason, message: str) -> Target:
    return replace(target, phase=Phase.WAITING, reason=reason, message=message)


def _build_action(
    exporter: PrometheusJmxExporter, target: Target, request: Request, limits: Limits
) -> PodAction:
    step = build_injection(
        target.pod, target.container, request, exporter.spec.config, target.user, limits.image
    )
    where = f"container {target.container.name} of pod {target.pod.key.name}"
    note = f"Put an injector beside {where}: {request.action}"
    return PodAction(step, Reason.STARTED, note, job=request.action)


def _has_endpoint(exporter: PrometheusJmxExporter, pod: Pod, container: Container) -> bool:
    """Tell whether a container may have an endpoint of the exporter that can be ended."""
    if exporter.spec.agent is AgentKind.UPSTREAM or not (container.container_id and pod.active):
        return False
    runs = pod.runs_of(exporter.metadata.uid, container)
    return any(run.request.action is Job.ENSURE for run in runs)


def _annotate(
    exporter: PrometheusJmxExporter, pods: Iterable[Pod], targets: Sequence[Target]
) -> list[PodAction]:
    actions: list[PodAction] = []
    uid = exporter.metadata.uid
    for pod in pods:
        mine = [target for target in targets if target.pod.key == pod.key]
        ports = sorted(
            jvm.port for target in mine for jvm in target.reports if jvm.state is State.SERVING
        )
        waits = any(target.phase in (Phase.DUE, Phase.WAITING) for target in mine)
        if ports and not is_foreign(pod, uid):
            path = find_path(exporter, pod, mine)
            step = build_annotation_patch(pod, build_annotations(uid, ports[0], path))
            if step is not None:
                note = f"Annotated pod {pod.key.name} for port {ports[0]}"
                actions.append(PodAction(step, Reason.ANNOTATED, note))
        elif not ports and not waits and pod.belongs_to(uid):
            actions += _unannotate(pod)
    return actions


def find_path(exporter: PrometheusJmxExporter, pod: Pod, targets: Iterable[Target]) -> str:
    """Return the path that the JVMs of a pod serve at."""
    if pod.started is not None and all(target.begun for target in targets):
        return pod.started.path
    return "/metrics" if exporter.spec.agent is AgentKind.UPSTREAM else exporter.spec.path


def list_addresses(targets: Iterable[Target]) -> list[Address]:
    """List where metrics are served, also by what is to be served otherwise soon."""
    return [
        Address(jvm.port, target.pod.key.name, target.pod.uid, target.pod.ip)
        for target in targets
        for jvm in target.reports or target.before
        if jvm.state is State.SERVING and jvm.port
    ]


def _unannotate(pod: Pod) -> list[PodAction]:
    step = build_annotation_patch(
        pod, {name: None for name in _UNSET if name in (pod.annotations or {})}
    )
    note = f"Took the annotations off pod {pod.key.name}"
    return [] if step is None else [PodAction(step, Reason.ANNOTATED, note)]


def is_foreign(pod: Pod, uid: str) -> bool:
    """Tell whether a pod carries annotations for Prometheus that are not ours to change."""
    held = pod.annotations or {}
    return held.get(OWNER) != uid and any(name in held for name in (SCRAPE, PORT, PATH))


def _find_foreign(exporter: PrometheusJmxExporter, pods: Iterable[Pod]) -> list[str]:
    return [pod.key.name for pod in pods if is_foreign(pod, exporter.metadata.uid)]
