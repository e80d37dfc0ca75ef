"""Endpoints that serve, according to the reports of injectors. Pure.

An endpoint is published until a report says that it stopped, or its JVM or container has ended. The
report of a failed injector does not remove an endpoint: the JVM keeps the one that it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from operators.jmxexporter.injector.messages import Action, JvmReport, Report, State
from operators.jmxexporter.pods import InjectorRun
from operators.jmxexporter.reasons import Reason

_ENDS = (Reason.JVM_TERMINATED, Reason.NOT_SERVING)
"""Reasons in the report of a JVM which mean that its endpoint no longer serves."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of one JVM.

    Attributes:
        jvm: The report of the JVM, with port and configuration of the endpoint.
        verified: When an injector last verified that it serves; None if none did.
    """

    jvm: JvmReport
    path: str
    verified: datetime | None = None


def find_endpoints(runs: Iterable[InjectorRun]) -> Sequence[Endpoint]:
    """Return the endpoints of a container, given its injectors from the first to the last."""
    known: dict[tuple[int, int], Endpoint] = {}
    for run in runs:
        if run.report is not None and run.request.action is not Action.CHECK:
            known = _update(known, run, run.report)
    return list(known.values())


def _update(
    known: dict[tuple[int, int], Endpoint], run: InjectorRun, report: Report
) -> dict[tuple[int, int], Endpoint]:
    if report.reason == Reason.NO_JVM_FOUND:
        return {}
    reported = {(jvm.pid, jvm.start): jvm for jvm in report.jvms}
    kept = {key: known[key] for key in known if key in reported or not report.is_complete}
    for key, jvm in reported.items():
        if jvm.state is State.SERVING:
            kept[key] = Endpoint(jvm, run.request.path, run.finished)
        elif jvm.state is State.FAILED and jvm.port and key in kept:
            serving = replace(kept[key].jvm, port=jvm.port, config_hash=jvm.config_hash)
            kept[key] = replace(kept[key], jvm=serving, verified=run.finished)
        elif jvm.state is State.STOPPED or jvm.reason in _ENDS:
            kept.pop(key, None)
    return kept
