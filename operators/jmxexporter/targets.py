"""Evaluation of one container: its phase and the next action. Pure.

The earlier injectors of a container show the attempts for its request and their results. Ephemeral
containers stay in the spec of the pod forever, so no injector is added to repeat an attempt whose
result is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from operators.jmxexporter.api.v1alpha1 import HostNetwork, PrometheusJmxExporter
from operators.jmxexporter.config import Config
from operators.jmxexporter.endpoints import Endpoint, find_endpoints
from operators.jmxexporter.guard_calls import (
    UNMATCHED,
    GuardCall,
    GuardKey,
    GuardState,
    is_pod_address,
)
from operators.jmxexporter.injector.messages import Action, JvmReport, Request, State
from operators.jmxexporter.phases import (
    OF_CONFIG,
    Phase,
    Summary,
    Target,
    answers,
    fill,
    find_user,
    parse_reason,
    summarize,
)
from operators.jmxexporter.pods import Container, InjectorRun, Pod
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.resources import Credentials
from operators.jmxexporter.started import Started

_SILENT: Final = 6
"""Failed attempts, over about 10 minutes, to reach a guard that has responded before."""


def evaluate_started(
    exporter: PrometheusJmxExporter,
    pod: Pod,
    container: Container,
    config_hash: str,
    states: Mapping[GuardKey, GuardState],
    now: datetime,
) -> Target | None:
    """Evaluate a container whose JVMs were started with the exporter; None for any other one.

    No injector is added to such a pod: attaching may not be possible in it. Anyone who creates pods
    can write the annotation, so the operator verifies the endpoint with a request.
    """
    held = pod.started
    if held is None or not pod.begins_with(exporter.metadata.name, container):
        return None
    key = GuardKey(container.container_id)
    ports = tuple(range(held.port, min(held.last_port, held.port + 99) + 1))
    call = GuardCall(key, pod.ip, ports, held.exporter, False, "", config_hash)
    state = states.get(key)
    port = state.port if state is not None and state.port else held.port
    served = state.config_hash if state is not None else ""
    report = JvmReport(pid=0, state=State.SERVING, port=port, config_hash=served)
    phase, reason, message = Phase.DONE, Reason.ALL_SERVING, ""
    if state is None or state.failures:
        phase, reason = Phase.UNVERIFIED, Reason.NOT_VERIFIED
        message = state.message if state is not None else "the endpoint was not checked yet"
    elif held != Started.of(exporter, held.containers):
        reason = Reason.RESTART_REQUIRED
        message = f"began with port {held.port}, path {held.path} and ConfigMap {held.config}"
    elif state.unmatched:
        message = UNMATCHED
    # The kubelet updates the mounted configuration within a minute or two.
    if not is_pod_address(pod.ip):
        message = f"the pod has no usable address: {pod.ip or 'none'}"
        state = GuardState("", config_hash, now, message=message, failures=1)
        phase, reason = Phase.UNVERIFIED, Reason.NOT_VERIFIED
    elif state is not None and not state.failures and (state.reason or state.scrape):
        phase = Phase.FAILED
        reason = parse_reason(state.reason) if state.reason else Reason.SCRAPE_FAILED
        message = state.message or state.scrape
    elif pod.host_network and exporter.spec.host_network is HostNetwork.REFUSE:
        message = "the JVM began with the exporter on the network of its node; recreate the pod"
        phase, reason = Phase.FAILED, Reason.HOST_NETWORK
    due = state is None or state.wanted != config_hash or state.next_at <= now
    return Target(
        pod,
        container,
        phase,
        reason,
        message,
        endpoints=(Endpoint(report, held.path),),
        started=True,
        until=None if due or state is None else state.next_at,
        calls=(call,) if due else (),
    )


@dataclass(frozen=True, slots=True)
class TargetEvaluator:
    """An evaluator of containers against the limits of an exporter.

    Attributes:
        resumed: Time before which JVMs that ended do not count.
    """

    exporter: PrometheusJmxExporter
    now: datetime
    config: Config = field(default_factory=Config)
    states: Mapping[GuardKey, GuardState] | None = None
    resumed: datetime | None = None

    def evaluate(self, pod: Pod, container: Container, request: Request) -> Target:
        """Evaluate a container for a request."""
        runs = pod.runs_of(request.id, container)
        endpoints = [self._update(each, container, runs) for each in find_endpoints(runs)]
        attempts, user = sum(run.request.is_like(request) for run in runs), find_user(
            container, runs
        )
        due = Target(pod, container, Phase.DUE, Reason.INJECTING, "", attempts, user)
        return self._evaluate(replace(due, endpoints=endpoints), request, runs)

    def _update(
        self, endpoint: Endpoint, container: Container, runs: Sequence[InjectorRun]
    ) -> Endpoint:
        """Return an endpoint, updated with the configuration that its guard reported last."""
        state = self._find_state(endpoint, container, runs[-1])
        if state is None or not state.config_hash:
            return endpoint
        return replace(endpoint, jvm=replace(endpoint.jvm, config_hash=state.config_hash))

    def _find_state(
        self, endpoint: Endpoint, container: Container, last: InjectorRun
    ) -> GuardState | None:
        """Return the report of a guard; None if an injector has run since."""
        state = (self.states or {}).get(_key_of(endpoint, container))
        return state if state is not None and state.run == last.name else None

    def _evaluate(self, due: Target, request: Request, runs: Sequence[InjectorRun]) -> Target:
        """Evaluate a container; `due` is the target if it needs an injector now."""
        pod, container, last = due.pod, due.container, runs[-1] if runs else None
        refused = self.exporter.spec.host_network is HostNetwork.REFUSE
        if pod.host_network and refused and last is None:
            message = "the pod uses the network of its node; see spec.hostNetwork"
            return _fail(due, Reason.HOST_NETWORK, message)
        if pod.static:
            message = "the kubelet runs the pod from a file; the API server accepts no injectors"
            return _fail(due, Reason.STATIC_POD, message)
        if request.action is Action.ENSURE and (harmed := self._find_harm(due)):
            return harmed
        if container.tmp_sharer and last is None:
            message = (
                f"{container.tmp_sharer} can mount the same volume as /tmp; mount an "
                "emptyDir at /tmp that no other container mounts, or use spec.startup"
            )
            return _fail(due, Reason.SHARED_TMP, message)
        if last is not None and last.is_pending(self.now):
            return _await(due, last)
        if last is not None and self._is_reachable(due, last, request):
            return self._compare(due, request, last)
        if last is not None and answers(last, request):
            return self._weigh(due, last)
        return self._start(due, request)

    def _find_harm(self, due: Target) -> Target | None:
        """Return the target of a container that ended during an injection for this spec."""
        for run in due.pod.runs_of(self.exporter.metadata.uid):
            ends = due.pod.outlived(run) if run.container == due.container.name else None
            if ends is None or not counts(run, self.exporter, self.resumed):
                continue
            message = f"the container ended during an injection, and {ends} times since"
            reason = Reason.CONTAINER_UNSTABLE if ends > 0 else Reason.JVM_TERMINATED
            return _fail(due, reason, message)
        return None

    def _is_reachable(self, due: Target, last: InjectorRun, request: Request) -> bool:
        """Return whether guards can satisfy a request, because only the configuration differs.

        Only injectors can change ports, path and certificates.
        """
        endpoints = due.endpoints
        if self.states is None or last.report is None or not endpoints:
            return False
        first, ports = last.request.port, {each.jvm.port for each in endpoints}
        if not is_pod_address(due.pod.ip) or not ports <= {
            *range(first, last.request.last_port + 1)
        }:
            return False
        serving = {(each.jvm.pid, each.jvm.start) for each in endpoints}
        return (
            request.action is last.request.action is Action.ENSURE
            and replace(last.request, config_hash=request.config_hash).wants_like(request)
            and last.report.reason in ("", Reason.TOO_MANY_JVMS)
            and {(jvm.pid, jvm.start) for jvm in last.report.jvms} == serving
        )

    def _compare(self, due: Target, request: Request, last: InjectorRun) -> Target:
        """Compare the configurations of guards with the wanted one, and plan calls to send it."""
        states = [(each, self._find_state(each, due.container, last)) for each in due.endpoints]
        behind = [
            (each, state) for each, state in states if each.jvm.config_hash != request.config_hash
        ]
        if not behind:
            found = summarize(last)
            if found.phase is Phase.FAILED and found.reason in OF_CONFIG:
                found = Summary(Phase.DONE, Reason.ALL_SERVING)
            target = fill(found, due, last)
            known = [state for _, state in states if state is not None]
            if target.phase is Phase.DONE and any(each.unmatched for each in known):
                target = replace(target, message=UNMATCHED)
            if any(_must_renew(each, last) for each in known):
                return self._start(due, request)
            lost = next((each for each in known if each.is_given_up and each.config_hash), None)
            if lost is not None and lost.failures >= _SILENT and self._hears_others():
                # The JVM may have been restarted in its container, which nothing reports.
                return self._start(due, request)
            if lost is not None:
                message = f"the endpoint responds no longer: {lost.message}"
                target = replace(
                    target, phase=Phase.UNVERIFIED, reason=Reason.NOT_VERIFIED, message=message
                )
            if bad := next((each for each in known if each.scrape), None):
                message = f"port {bad.port}: {bad.scrape}"
                target = _fail(target, Reason.SCRAPE_FAILED, message)
            # After a restart of the operator the configurations of guards are unknown. Later, a
            # bean that was registered since may make scrapes fail.
            old = [each for each, state in states if state is None or state.next_at <= self.now]
            calls = [_build_call(each, due, last, request) for each in old]
            until = min((each.next_at for each in known), default=None)
            return replace(target, calls=calls, until=None if calls else until)
        if last.request.config_hash == request.config_hash and all(
            state is None for _, state in behind
        ):
            # The injector brought this configuration, and the guard refused it.
            return self._weigh(due, last)
        asked = [state for _, state in behind if state and state.wanted == request.config_hash]
        for state in asked:
            if state.reason:
                message = f"port {state.port}: {state.message}"
                return _fail(due, parse_reason(state.reason), message)
        if any(state.is_given_up for state in asked):
            # The guard cannot be reached, for example because of a NetworkPolicy.
            return self._start(due, request)
        if waiting := [
            state.retry_at for state in asked if state.failures and state.retry_at > self.now
        ]:
            message = "the guard did not respond; the request is repeated"
            return _wait(due, Reason.UPDATING, message, min(waiting))
        calls = [
            replace(_build_call(each, due, last, request), config=self.config.text)
            for each, _ in behind
        ]
        return replace(due, reason=Reason.UPDATING, calls=calls)

    def _hears_others(self) -> bool:
        """Return whether the network is probably not the reason why a guard does not respond."""
        states = list((self.states or {}).values())
        return len(states) == 1 or any(not each.failures for each in states)

    def _start(self, due: Target, request: Request) -> Target:
        """Plan an injector for a container, once its pod has been ready for long enough."""
        pod, budget = due.pod, self.exporter.spec.max_ephemeral_containers
        # The budget must not prevent a stop: the endpoint would serve until the pod is deleted.
        if len(pod.runs) >= budget and request.action is not Action.STOP:
            message = f"the pod has had {len(pod.runs)} injectors; replace the pod for more"
            return _fail(due, Reason.BUDGET_EXHAUSTED, message)
        wait = timedelta(seconds=self.exporter.spec.min_ready_seconds)
        if pod.ready_since is None:
            return _wait(due, Reason.POD_NOT_READY, "the pod is not ready")
        if (start := pod.ready_since + wait) > self.now:
            message = f"the injection starts when the pod has been ready for {wait.seconds} s"
            return _wait(due, Reason.POD_NOT_READY, message, start)
        return due

    def _weigh(self, due: Target, run: InjectorRun) -> Target:
        """Derive the phase from the report of the last injector for a request."""
        found = summarize(run)
        if found.phase is not Phase.FAILED:
            return fill(found, due, run)
        limit = self.exporter.spec.max_attempts
        if Credentials(run.uid, run.gid) != due.user and due.attempts < limit:
            return self._start(due, run.request)
        if not found.retried or due.attempts >= limit:
            return fill(found, due, run)
        delay = self.exporter.spec.backoff_seconds * 2 ** (due.attempts - 1)
        ended = run.finished or datetime.fromtimestamp(run.request.not_after, UTC)
        if (start := ended + timedelta(seconds=delay)) > self.now:
            message = f"{found.reason}: {found.message}; retried after {delay} s"
            return _wait(due, Reason.WAITING, message, start)
        return self._start(due, run.request)


def _fail(due: Target, reason: Reason, message: str) -> Target:
    return replace(due, phase=Phase.FAILED, reason=reason, message=message)


def _wait(due: Target, reason: Reason, message: str, until: datetime | None = None) -> Target:
    return replace(due, phase=Phase.WAITING, reason=reason, message=message, until=until)


def _await(due: Target, run: InjectorRun) -> Target:
    until = datetime.fromtimestamp(run.last_second + 1, UTC)
    if run.started is not None:
        return _wait(due, Reason.RUNNING, "the injector is running", until)
    return _wait(due, Reason.STARTING, run.waits_for or "the injector is starting", until)


def _build_call(endpoint: Endpoint, due: Target, last: InjectorRun, request: Request) -> GuardCall:
    return GuardCall(
        _key_of(endpoint, due.container),
        due.pod.ip,
        (endpoint.jvm.port,),
        request.id,
        bool(last.request.tls_secret),
        last.name,
        request.config_hash,
        seconds=max(1, request.timeout_seconds // 2),
    )


def _must_renew(state: GuardState, last: InjectorRun) -> bool:
    """Return whether an injector should read the Secrets again, as none has done in time."""
    request, at = last.request, state.renew_at
    closed = request.tls_secret or request.login_secret
    return bool(closed and at is not None and request.created < at.timestamp())


def counts(run: InjectorRun, exporter: PrometheusJmxExporter, resumed: datetime | None) -> bool:
    """Return whether a run says something about injections as the spec wants them now."""
    current = run.request.generation == exporter.metadata.generation
    # By the clock of the operator: the clock of the node, which says when it ended, may be wrong.
    return current and not (resumed and run.request.created <= resumed.timestamp())


def _key_of(endpoint: Endpoint, container: Container) -> GuardKey:
    return GuardKey(container.container_id, endpoint.jvm.pid, endpoint.jvm.start)
