"""Order the findings about an object and its dependencies: root causes first."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_slipway.diagnosis import conditions, general, workloads
from kubectl_slipway.diagnosis.findings import Facts, Finding
from kubectl_slipway.model import is_deleting, readiness

_DEPTH = 5
_SYMPTOMS = frozenset({"ClaimPending", "MinimumUnavailable", "PodsNotReady", "ProbeFailing"})
"""Codes that say what is not ready; other errors say why."""
_REPEATED = frozenset({"MinimumUnavailable"})
"""Codes whose message usually repeats the message of another condition."""


def explain(facts: Facts) -> list[Finding]:
    """Return the causes why an object is not ready, root causes first; empty for none."""
    found: list[Finding] = []
    seen: set[tuple[str, str]] = set()
    for each in _walk(facts, set(), 0):
        key = (each.subject, each.code)
        if key not in seen:
            seen.add(key)
            found.append(each)
    causes = {each.cause.partition(" (")[0] for each in found if each.code not in _SYMPTOMS}
    kept = [
        each
        for each in found
        if each.code not in _REPEATED or not causes or each.cause.partition(" (")[0] not in causes
    ]
    return sorted(kept, key=lambda each: (each.severity != "Error", each.code in _SYMPTOMS))


def _walk(facts: Facts, visited: set[str], depth: int) -> Iterator[Finding]:
    uid = str(facts.manifest["metadata"].get("uid") or id(facts))
    if uid in visited or depth > _DEPTH:
        return
    visited.add(uid)
    # Without a current status, an error that prevents reconciliation explains all other problems.
    stops = list(general.find_stops(facts))
    yield from stops
    if any(each.severity == "Error" for each in stops) and not general.has_current_status(facts):
        return
    own = [*general.find_own(facts), *conditions.find_failures(facts)]
    found = conditions.find_conditions(facts)
    # Other findings already explain what blocks the deletion.
    blocked = is_deleting(facts.manifest) and bool(own)
    own += [each for each in found if not (blocked and each.code == "Terminating")]
    own += workloads.find_workload(facts)
    if own or not readiness(facts.manifest).ok:
        for reference in facts.references:
            if reference.facts is None:
                yield general.missing_reference(facts, reference)
            elif not is_deleting(facts.manifest):
                yield from _walk(reference.facts, visited, depth + 1)
        for child in facts.children:
            yield from _walk(child, visited, depth + 1)
    if not own and readiness(facts.manifest).ok:
        return
    # If no finding has a remedy, the events explain more, so they come first.
    explained = any(each.remedy for each in own)
    events = list(general.find_events(facts, own, "Warning" if explained else "Error"))
    yield from [*own, *events] if explained else [*events, *own]
