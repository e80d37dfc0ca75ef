"""Rules by conditions: reason, message, and the remedy of each reason."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from kubectl_slipway.diagnosis.advice import ADVICE
from kubectl_slipway.diagnosis.findings import Facts, Finding
from kubectl_slipway.model import (
    Condition,
    at,
    conditions,
    is_deleting,
    meaning,
    render_age,
    title,
)

_IMPERATIVES = frozenset(
    (
        *("Add", "Check", "Complete", "Create", "Delete", "If", "Install", "Mount", "Reduce"),
        *("Remove", "Restore", "See", "Set", "Start", "Use", "Wait"),
    )
)
_SUMMARIES = frozenset({"Available", "Progressing"})
"""Conditions that follow from others."""
_BUILTIN = frozenset({"Pod", "PersistentVolumeClaim", "Deployment", "ReplicaSet", "Node"})


def find_conditions(facts: Facts) -> Iterator[Finding]:
    """Report the conditions that indicate a problem, the most specific ones first."""
    if facts.manifest.get("kind") in _BUILTIN:
        return
    listed = conditions(facts.manifest)
    # Ready usually repeats the reason of another condition; otherwise it is reported as well.
    specific = [each for each in listed if each.bad and each.type != "Ready"]
    ready = [
        each for each in listed if each.type == "Ready" and each.status in ("False", "Unknown")
    ]
    is_ready = any(each.type == "Ready" and each.status == "True" for each in listed)
    same = {each.reason for each in ready}
    chosen = specific if same & {each.reason for each in specific} else [*ready, *specific]
    if is_deleting(facts.manifest):
        # A consumer would only prolong the deletion.
        chosen = [each for each in chosen if each.reason != "WaitingForFirstConsumer"]
    for each in sorted(chosen, key=lambda each: _rank(facts, each, same)):
        # Another condition may repeat the reason of Ready, but not its message.
        whole = [one for one in ready if one.reason == each.reason and one != each]
        told = max((each, *whole), key=lambda one: len(one.message))
        ready = [one for one in ready if one != told]
        yield _build(facts, told, "Warning" if is_ready else "Error")


def _rank(facts: Facts, found: Condition, ready_reasons: Container[str]) -> int:
    """Rank a condition: what Ready says comes first, unless it leaves open what to do."""
    if not advise(facts, found.reason):
        return 3
    if found.reason in ready_reasons:
        return 0
    return 2 if found.type in _SUMMARIES else 1


def find_failures(facts: Facts) -> Iterator[Finding]:
    """Report each reason in status.failures of a PrometheusJmxExporter, with one of its pods."""
    kind, seen = str(facts.manifest.get("kind")), set()
    for each in at(facts.manifest, "status.failures") or ():
        reason = str(each.get("reason"))
        remedy = find_remedy(kind, reason)
        if remedy and reason not in seen:
            seen.add(reason)
            message = (each.get("message") or meaning(kind, reason)).rstrip(".")
            cause = f"{message}. (container {each.get('container') or '-'})"
            yield Finding(reason, f"Pod/{each.get('pod')}", cause, remedy)


def _build(facts: Facts, found: Condition, severity: str) -> Finding:
    kind = str(facts.manifest.get("kind"))
    age = render_age(found.since, facts.now)
    message = found.message or meaning(kind, found.reason) or "The condition has no message."
    state = f"{found.type} is {found.status}{f' for {age}' if age else ''}"
    return Finding(
        found.reason or f"{found.type}{found.status}",
        title(facts.manifest),
        f"{_end(message)} ({state})",
        advise(facts, found.reason),
        severity,
    )


def _end(message: str) -> str:
    """Return a message that ends like a sentence."""
    return message if message.endswith("?") else f"{message.rstrip('.')}."


def advise(facts: Facts, reason: str) -> str:
    """Return what to do about a reason of this object, or nothing."""
    meta = facts.manifest["metadata"]
    remedy = find_remedy(str(facts.manifest.get("kind")), reason)
    return remedy.format(name=meta["name"], namespace=meta.get("namespace") or "")


def find_remedy(kind: str, reason: str) -> str:
    """Return what to do about a reason, with {name} and {namespace} of the object, or nothing."""
    advice = ADVICE.get((kind, reason)) or ADVICE.get(("", reason))
    if advice is not None:
        return advice
    # The documentation of a reason often says what to do, after what it means.
    clauses = re.split(r"(?<=[.;]) ", meaning(kind, reason))[1:]
    first = next(
        (n for n, each in enumerate(clauses) if each.split()[0].capitalize() in _IMPERATIVES), None
    )
    remedy = "" if first is None else " ".join(clauses[first:])
    return remedy[:1].upper() + remedy[1:]
