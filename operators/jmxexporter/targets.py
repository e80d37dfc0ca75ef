"""What is to be done for one container; pure.

A container is tried with one request until the request changes. The injectors that it had tell
what was tried and how it went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from operators.jmxexporter.api.v1alpha1 import (
    AgentKind,
    Mode,
    PrometheusJmxExporter,
    Reason,
)
from operators.jmxexporter.config import Config
from operators.jmxexporter.injector.messages import Action, Agent, JvmReport, Request, State
from operators.jmxexporter.injector.messages import Reason as Told
from operators.jmxexporter.pods import Container, Pod, Run
from operators.jmxexporter.resources import UNKNOWN_USER, Credentials
from operators.jmxexporter.started import Started

_RETRIED = (
    Told.NOT_READY,
    Told.CONFIG_CHANGED,
    Told.NO_JVM_FOUND,
    Told.NOT_SERVING,
    Told.PORT_IN_USE,
    Told.TIMEOUT,
    Told.UID_MISMATCH,
)
"""What may be otherwise at another attempt though nobody has changed anything."""


class Phase(Enum):
    """Where a container stands."""

    DONE = auto()
    """All that was asked for holds."""
    NO_JVM = auto()
    """There is nothing to do in it."""
    DUE = auto()
    """An injector is to be put beside it."""
    WAITING = auto()
    """An injector is at work, or the next one is not due yet."""
    FAILED = auto()
    """It is given up until something changes."""


@dataclass(frozen=True, slots=True)
class Target:
    """Say where a container stands.

    Attributes:
        pod: Its pod.
        container: The container.
        phase: Where it stands.
        reason: Why.
        message: The same for people.
        attempts: How many injectors it had for what is asked for now.
        user: As whom the next injector runs.
        until: When it is to be looked at again; None for no time of its own.
        reports: What is known of its JVMs.
        before: What the injector before said of the JVMs that serve, for as long as another one is
            to come: they go on with what they have.
        verified: When that was seen.
        begun: Whether its JVMs began with the exporter, which is not verified.
    """

    pod: Pod
    container: Container
    phase: Phase
    reason: Reason
    message: str = ""
    attempts: int = 0
    user: Credentials = field(default_factory=Credentials)
    until: datetime | None = None
    reports: Sequence[JvmReport] = ()
    before: Sequence[JvmReport] = ()
    verified: datetime | None = None
    begun: bool = False


def judge_started(exporter: PrometheusJmxExporter, pod: Pod, container: Container) -> Target | None:
    """Say where a container stands whose JVMs began with the exporter; None for any other.

    Nothing is ever put beside it: who chose this way may not be able to attach.
    """
    held = pod.started
    if held is None or not pod.begins_with(exporter.metadata.name, container):
        return None
    report = JvmReport(pid=0, state=State.SERVING, port=held.port)
    reason, message = Reason.ALL_SERVING, ""
    if held != Started.of(exporter, held.containers):
        reason = Reason.RESTART_REQUIRED
        message = f"began with port {held.port}, path {held.path} and ConfigMap {held.config}"
    return Target(pod, container, Phase.DONE, reason, message, reports=(report,), begun=True)


def build_request(
    exporter: PrometheusJmxExporter, config: Config, pod: Pod, container: Container
) -> Request:
    """Build what is asked for in a container."""
    spec = exporter.spec
    first, last = spec.ports
    return Request(
        id=exporter.metadata.uid,
        action=Action.CHECK if spec.mode is Mode.DRY_RUN else Action.ENSURE,
        container_id=container.container_id,
        shared_processes=pod.shared_processes,
        port=first,
        last_port=last,
        path="/metrics" if spec.agent is AgentKind.UPSTREAM else spec.path,
        config_hash=config.hash,
        agent=Agent(spec.agent),
        main_class=spec.main_class,
        exclude_main_class=spec.exclude_main_class,
        max_jvms=spec.max_jvms,
        timeout_seconds=spec.timeout_seconds,
        generation=exporter.metadata.generation,
    )


def build_stop(exporter: PrometheusJmxExporter, pod: Pod, container: Container) -> Request:
    """Build the request that ends the endpoints of a container."""
    return Request(
        id=exporter.metadata.uid,
        action=Action.STOP,
        container_id=container.container_id,
        shared_processes=pod.shared_processes,
        timeout_seconds=exporter.spec.timeout_seconds,
        generation=exporter.metadata.generation,
    )


@dataclass(frozen=True, slots=True)
class Judge:
    """Judge containers by the limits of an exporter.

    Attributes:
        exporter: The exporter.
        now: The time.
        start_timeout: How long an injector may take to start.
    """

    exporter: PrometheusJmxExporter
    now: datetime
    start_timeout: timedelta

    def judge(self, pod: Pod, container: Container, request: Request) -> Target:
        """Say where a container stands with a request."""
        target = self._judge(pod, container, request)
        if target.phase not in (Phase.DUE, Phase.WAITING):
            return target
        return replace(target, before=find_serving(pod.runs_of(request.id, container)))

    def _judge(self, pod: Pod, container: Container, request: Request) -> Target:
        runs = pod.runs_of(request.id, container)
        tried = [run for run in runs if run.request.asks_like(request)]
        user = find_user(container, runs)
        attempts = len(tried)
        last = runs[-1] if runs else None
        if last is not None and last.finished is None:
            return self._await(pod, container, last, attempts)
        if last is None or last not in tried:
            return self._start(pod, container, user, attempts)
        return self._weigh(pod, container, last, user, attempts)

    def _await(self, pod: Pod, container: Container, run: Run, attempts: int) -> Target:
        if run.started is not None:
            message = "the injector is at work"
            return Target(pod, container, Phase.WAITING, Reason.RUNNING, message, attempts)
        message = run.waits_for or "the injector is on its way"
        return Target(pod, container, Phase.WAITING, Reason.STARTING, message, attempts)

    def _start(self, pod: Pod, container: Container, user: Credentials, attempts: int) -> Target:
        """Put the first injector for a request beside a container, once its pod is steady."""
        budget = self.exporter.spec.max_ephemeral_containers
        if len(pod.runs) >= budget:
            message = f"the pod has had {len(pod.runs)} injectors; replace the pod for more"
            return Target(pod, container, Phase.FAILED, Reason.BUDGET_EXHAUSTED, message, attempts)
        wait = timedelta(seconds=self.exporter.spec.min_ready_seconds)
        if pod.ready_since is None:
            message = "the pod is not ready"
            return Target(pod, container, Phase.WAITING, Reason.POD_NOT_READY, message, attempts)
        if (due := pod.ready_since + wait) > self.now:
            message = f"the pod is touched once it is ready for {wait.seconds} s"
            reason = Reason.POD_NOT_READY
            return Target(pod, container, Phase.WAITING, reason, message, attempts, user, until=due)
        return Target(pod, container, Phase.DUE, Reason.INJECTING, "", attempts, user)

    def _weigh(
        self, pod: Pod, container: Container, run: Run, user: Credentials, attempts: int
    ) -> Target:
        """Weigh what the last injector for a request said."""
        found = summarize(run)
        if found.phase is not Phase.FAILED:
            return _fill(found, pod, container, run, attempts)
        if Credentials(run.uid, run.gid) != user and attempts < self.exporter.spec.max_attempts:
            return self._start(pod, container, user, attempts)
        if not found.retried or attempts >= self.exporter.spec.max_attempts:
            return _fill(found, pod, container, run, attempts)
        delay = self.exporter.spec.backoff_seconds * 2 ** (attempts - 1)
        due = (run.finished or self.now) + timedelta(seconds=delay)
        if due > self.now:
            message = f"{found.reason}: {found.message}; tried again after {delay} s"
            return Target(
                pod, container, Phase.WAITING, Reason.WAITING, message, attempts, user, until=due
            )
        return self._start(pod, container, user, attempts)


@dataclass(frozen=True, slots=True)
class Summary:
    """Sum up what an injector said.

    Attributes:
        phase: Where its container stands.
        reason: Why.
        message: The same for people.
        retried: Whether another attempt may end otherwise.
    """

    phase: Phase
    reason: Reason
    message: str = ""
    retried: bool = False


def summarize(run: Run) -> Summary:
    """Sum up what an injector said of all JVMs of its container."""
    report = run.report
    if report is None:
        message = "the injector ended without a report"
        return Summary(Phase.FAILED, Reason.NO_REPORT, message, retried=True)
    if report.reason == Told.NO_JVM_FOUND:
        return Summary(Phase.NO_JVM, Reason.NO_JVM_FOUND, report.message)
    if report.reason:
        reason = _reason(report.reason)
        return Summary(Phase.FAILED, reason, report.message, report.reason in _RETRIED)
    bad = [jvm for jvm in report.jvms if jvm.state in (State.REFUSED, State.FAILED)]
    if not bad:
        return Summary(Phase.DONE, Reason.ALL_SERVING)
    # One that may be otherwise next time makes the container worth another attempt.
    worst = next((jvm for jvm in bad if jvm.reason not in _RETRIED), bad[0])
    message = f"process {worst.pid} {worst.main}: {worst.message}"
    retried = any(jvm.reason in _RETRIED for jvm in bad)
    return Summary(Phase.FAILED, _reason(worst.reason), message, retried)


def find_serving(runs: Sequence[Run]) -> Sequence[JvmReport]:
    """Find the JVMs that serve, as far as the last injector that said anything of them knows."""
    told = [run for run in runs if run.report and run.request.action is not Action.CHECK]
    if not told or told[-1].report is None:
        return ()
    return [jvm for jvm in told[-1].report.jvms if jvm.state is State.SERVING]


def find_user(container: Container, runs: Sequence[Run]) -> Credentials:
    """Find as whom the next injector runs: as the JVM, whose ids an earlier one may have told."""
    for run in reversed(runs):
        for jvm in run.report.jvms if run.report else ():
            if jvm.uid >= 0 and jvm.gid >= 0:
                return Credentials(jvm.uid, jvm.gid)
    uid = UNKNOWN_USER if container.uid is None else container.uid
    return Credentials(uid, uid if container.gid is None else container.gid)


def _fill(summary: Summary, pod: Pod, container: Container, run: Run, attempts: int) -> Target:
    return Target(
        pod,
        container,
        summary.phase,
        summary.reason,
        summary.message,
        attempts,
        reports=run.report.jvms if run.report else (),
        verified=run.finished,
    )


def _reason(text: str) -> Reason:
    try:
        return Reason(text)
    except ValueError:
        return Reason.AGENT_ERROR
