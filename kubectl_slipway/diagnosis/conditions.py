"""Rules by conditions: their reason and message, and what to do about each reason."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_slipway.diagnosis.advice import ADVICE
from kubectl_slipway.diagnosis.findings import Facts, Finding
from kubectl_slipway.model import Condition, conditions, meaning, render_age, title

_IMPERATIVES = frozenset(
    ("Check", "Create", "Delete", "Install", "Remove", "Set", "Use", "Wait", "Add", "Complete")
)
_BUILTIN = frozenset({"Pod", "PersistentVolumeClaim", "Deployment", "ReplicaSet", "Node"})


def find_conditions(facts: Facts) -> Iterator[Finding]:
    """Report conditions that are not as they should be, the most specific ones first."""
    if facts.manifest.get("kind") in _BUILTIN:
        return
    listed = conditions(facts.manifest)
    # Ready repeats the reason of another condition; a Ready of its own reason is reported as well.
    specific = [each for each in listed if each.bad and each.type != "Ready"]
    ready = [
        each for each in listed if each.type == "Ready" and each.status in ("False", "Unknown")
    ]
    is_ready = any(each.type == "Ready" and each.status == "True" for each in listed)
    same = {each.reason for each in ready}
    ordered = sorted(specific, key=lambda each: each.reason not in same)
    for each in [*ready, *ordered] if not (same & {e.reason for e in specific}) else ordered:
        yield _build(facts, each, "Warning" if is_ready else "Error")


def _build(facts: Facts, found: Condition, severity: str) -> Finding:
    kind = str(facts.manifest.get("kind"))
    age = render_age(found.since, facts.now)
    message = found.message or meaning(kind, found.reason) or "The condition has no message."
    state = f"{found.type} is {found.status}{f' for {age}' if age else ''}"
    return Finding(
        found.reason or f"{found.type}{found.status}",
        title(facts.manifest),
        f"{message.rstrip('.')}. ({state})",
        _remedy(facts, kind, found.reason),
        severity,
    )


def _remedy(facts: Facts, kind: str, reason: str) -> str:
    advice = ADVICE.get((kind, reason)) or ADVICE.get(("", reason))
    if advice is not None:
        meta = facts.manifest["metadata"]
        return advice.format(name=meta["name"], namespace=meta.get("namespace") or "")
    # The documentation of a reason often says what to do, after what it means.
    sentences = meaning(kind, reason).split(". ")[1:]
    first = next((n for n, each in enumerate(sentences) if each.split()[0] in _IMPERATIVES), None)
    return "" if first is None else ". ".join(sentences[first:])
