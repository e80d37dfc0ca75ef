"""The phase of a container, derived from the report of its injector. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto

from operators.jmxexporter.endpoints import Endpoint
from operators.jmxexporter.guard_calls import GuardCall
from operators.jmxexporter.injector.messages import Action, JvmReport, Request, State
from operators.jmxexporter.pods import Container, InjectorRun, Pod
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.resources import UNKNOWN_USER, Credentials

_RETRIED = (
    Reason.NOT_READY,
    Reason.CONFIG_CHANGED,
    Reason.INJECTOR_NOT_STARTED,
    Reason.NO_JVM_FOUND,
    Reason.NOT_SERVING,
    Reason.PORT_IN_USE,
    Reason.TIMEOUT,
    Reason.UID_MISMATCH,
    Reason.SECRET_MISSING,
    Reason.TLS_INVALID,
)
"""Transient reasons: another attempt may succeed without any change."""
_TUNED = (
    *_RETRIED,
    Reason.JVM_TERMINATED,
    Reason.TOO_LITTLE_MEMORY,
    Reason.TOO_MANY_JVMS,
)
"""Reasons that may no longer apply after a change of a limit in the spec."""
OF_CONFIG = frozenset({Reason.CONFIG_INVALID, Reason.CONFIG_CHANGED, Reason.TIMEOUT})
"""Reasons that may no longer apply with another configuration."""
OF_RULES = frozenset(
    {Reason.CONFIG_INVALID, Reason.TIMEOUT, Reason.AGENT_ERROR, Reason.NOT_SERVING}
)
"""Reasons that rules can cause in a JVM that serves other rules."""
_LASTING = frozenset(
    {
        Reason.ATTACH_DISABLED,
        Reason.DYNAMIC_AGENTS_DISABLED,
        Reason.SECURITY_MANAGER,
        Reason.TMP_NOT_WRITABLE,
        Reason.MISSING_MODULES,
        Reason.UNSUPPORTED_JVM,
    }
)
"""Reasons that hold for as long as the container runs, whatever the spec requests."""


class Phase(Enum):
    """The phase of a container."""

    DONE = auto()
    """The container is in the desired state."""
    NO_JVM = auto()
    """The container needs no endpoint."""
    DUE = auto()
    """An injector must be added."""
    WAITING = auto()
    """An injector is running, or the next one is not due yet."""
    FAILED = auto()
    """No attempt is due: the reason has to be resolved by a change.

    Which change depends on the reason: a change of the spec or the configuration, a restart of the
    container, or a new pod. The reasons in `_LASTING`, for example, end only with the container.
    """
    UNVERIFIED = auto()
    """It may serve, but its guard could not be reached."""


@dataclass(frozen=True, slots=True)
class Target:
    """The state of a container.

    Attributes:
        message: Explanation of the reason, for people.
        attempts: How many injectors it had for the current request.
        until: When it must be evaluated again; None if only a change requires that.
        reports: Reports of the last injector on its JVMs.
        endpoints: The endpoints that serve, as far as is known; they are published.
        verified: When the last injector verified the endpoints.
        started: Whether its JVMs were started with the exporter.
        calls: Guards to ask, or with phase DUE to send the configuration to.
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
    endpoints: Sequence[Endpoint] = ()
    verified: datetime | None = None
    started: bool = False
    calls: Sequence[GuardCall] = ()


def answers(run: InjectorRun, request: Request) -> bool:
    """Return whether the result of an injector still applies to a request."""
    if run.request.is_like(request):
        return True
    found = summarize(run)
    if run.request.wants_like(request):
        return found.phase is not Phase.FAILED or found.reason not in _TUNED
    stops = {run.request.action, request.action} & {Action.STOP}
    if stops or not run.request.looks_like(request):
        return False
    return found.phase is Phase.NO_JVM or found.reason in _LASTING


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of the report of an injector.

    Attributes:
        message: Explanation of the reason, for people.
        retried: Whether another attempt may succeed.
    """

    phase: Phase
    reason: Reason
    message: str = ""
    retried: bool = False


def summarize(run: InjectorRun) -> Summary:
    """Summarize the reports of an injector on all JVMs of its container."""
    report = run.report
    if run.finished is None and run.started is not None:
        message = "the injector did not end in time, or its node is lost"
        return Summary(Phase.FAILED, Reason.NO_REPORT, message, retried=True)
    if run.finished is None:
        message = run.waits_for or "the injector has not started"
        return Summary(Phase.FAILED, Reason.INJECTOR_NOT_STARTED, message, retried=True)
    if report is None:
        message = "the injector ended without a report"
        return Summary(Phase.FAILED, Reason.NO_REPORT, message, retried=True)
    if report.reason == Reason.NO_JVM_FOUND:
        return Summary(Phase.NO_JVM, Reason.NO_JVM_FOUND, report.message)
    bad = [jvm for jvm in report.jvms if jvm.state in (State.REFUSED, State.FAILED)]
    if report.reason and not bad:
        retried = report.reason in _RETRIED
        return Summary(Phase.FAILED, parse_reason(report.reason), report.message, retried)
    if not bad:
        return Summary(Phase.DONE, Reason.ALL_SERVING)
    # The message prefers a JVM with a permanent reason. A single JVM with a transient reason is
    # enough for another attempt.
    worst = next((jvm for jvm in bad if jvm.reason not in _RETRIED), bad[0])
    message = f"process {worst.pid} {worst.main}: {worst.message}"
    retried = any(jvm.reason in _RETRIED for jvm in bad)
    return Summary(Phase.FAILED, parse_reason(worst.reason), message, retried)


def find_user(container: Container, runs: Sequence[InjectorRun]) -> Credentials:
    """Find user and group of the next injector: those of the JVM, if an injector reported them.

    A process of the pod can forge the report of an injector, so a report never causes an injector
    to run as root if the specification of the pod excludes root.
    """
    for run in reversed(runs):
        for jvm in run.report.jvms if run.report else ():
            if jvm.uid >= 0 and jvm.gid >= 0 and not (container.non_root and jvm.uid == 0):
                return Credentials(jvm.uid, jvm.gid)
    uid = UNKNOWN_USER if container.uid is None else container.uid
    return Credentials(uid, uid if container.gid is None else container.gid)


def fill(summary: Summary, target: Target, run: InjectorRun) -> Target:
    """Return the target of a container with the summary of its last injector."""
    return replace(
        target,
        phase=summary.phase,
        reason=summary.reason,
        message=summary.message,
        reports=run.report.jvms if run.report else (),
        verified=run.finished,
    )


def parse_reason(text: str) -> Reason:
    """Read a reason that something in the pod gave."""
    try:
        return Reason(text)
    except ValueError:
        return Reason.AGENT_ERROR
