"""Oracles: the properties that every trial must have, whatever its fault. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lab.sweep.modes import EXCLUSIVE, Mode
from lab.sweep.outcome import Finding, Outcome
from lab.sweep.ownership import belongs
from lab.sweep.session import Record
from lab.sweep.wire import JSON_PATCH
from lab.sweep.workload import State, Workload
from libs.common.kinds import ENDPOINTS, SERVICE, uid_of
from libs.common.reading import map_at
from libs.common.testing.differences import describe_difference

_DEFECTS: Final = re.compile(r"Unhandled error in reconcile|Traceback \(most recent call last\)")
_MANY: Final = 12
_REFUSING: Final = frozenset({Mode.E403, *EXCLUSIVE})
"""Modes in which the API server or the proxy may respond with 403 for a while."""
_ENDING: Final = frozenset({Mode.H, Mode.LEASE})
"""Modes in which a leader exits after losing its leadership, as it must."""
_SHOWN: Final = 4
_SERVER_ERROR: Final = 500


def evaluate(outcome: Outcome, reference: Outcome, workload: Workload) -> list[Finding]:
    """Compare a trial with the fault-free run, and check the properties of all trials."""
    checks: tuple[tuple[str, Callable[[], list[str]]], ...] = (
        ("fired", lambda: _check_fired(outcome)),
        ("converged", lambda: _check_late(outcome, probe=False)),
        ("not-watching", lambda: _check_late(outcome, probe=True)),
        ("state", lambda: _check_states(outcome, reference, workload)),
        ("counts", lambda: _check_counts(outcome, reference, workload)),
        ("invariant", lambda: _check_invariants(outcome, workload)),
        ("foreign", lambda: outcome.damaged),
        ("rest", lambda: outcome.restless),
        ("hygiene", lambda: _check_hygiene(outcome, workload)),
        ("hot-loop", lambda: _check_loops(outcome, reference)),
        ("rights", lambda: outcome.refused if outcome.plan.mode not in _REFUSING else []),
        ("process", lambda: _check_process(outcome)),
        ("secrets", lambda: outcome.leaks),
        ("ready", lambda: outcome.unready),
    )
    return [
        Finding(oracle, message)
        for oracle, check in checks
        for message in list(dict.fromkeys(check()))[:_SHOWN]
    ]


def lint(record: Record, namespace: str, operator: str, *, repeated: bool = False) -> list[str]:
    """Check one write for faults that no write may have.

    Args:
        record: The write.
        namespace: Namespace that it must be in.
        operator: Id of the operator, which names the field managers.
        repeated: Whether it may change nothing, because an earlier response was lost.
    """
    call, body = record.call, record.body
    if call.system:
        return []
    found = []
    name = {"metadata": {"name": call.name}, "spec": body}
    if call.namespace != namespace and (call.namespace or not belongs(name, namespace)):
        found.append(f"{call} is outside the namespace: {call.namespace or 'none'}")
    if call.verb == "delete" and not (body.get("preconditions") or {}).get("uid"):
        found.append(f"{call} does not name the UID")
    stored = record.query.get("dryRun") != "All"
    if call.verb == "create" and stored and not (body.get("metadata") or {}).get("name"):
        found.append(f"{call} leaves the name to the server")
    # An operator with several controllers has a manager for each: `network-firewall`.
    manager = record.query.get("fieldManager") or ""
    if call.verb == "apply" and not f"{manager}-".startswith(f"{operator}-"):
        found.append(f"{call} is applied as {manager!r}")
    if call.verb in ("update", "patch") and not _is_guarded(record):
        found.append(f"{call} names neither UID nor version")
    if record.after and record.after == record.before and not repeated:
        found.append(f"{call} changed nothing")
    if not record.agent.startswith("slipway-"):
        found.append(f"{call} has the User-Agent {record.agent!r}")
    return found


def _is_guarded(record: Record) -> bool:
    body = record.body
    if body.get(JSON_PATCH):
        paths = {each.get("path") for each in body[JSON_PATCH] if each.get("op") == "test"}
        return bool(paths & {"/metadata/uid", "/metadata/resourceVersion"})
    metadata = body.get("metadata") or {}
    return bool(metadata.get("uid") or metadata.get("resourceVersion"))


def _check_fired(outcome: Outcome) -> list[str]:
    if outcome.fired or outcome.plan.trigger is None:
        return []
    return [f"{outcome.plan.trigger} never came"]


def _check_late(outcome: Outcome, *, probe: bool) -> list[str]:
    return [f"{phase}: {why}" for phase, why in outcome.late.items() if (phase == "probe") == probe]


def _check_states(outcome: Outcome, reference: Outcome, workload: Workload) -> list[str]:
    found = []
    for phase, wanted in reference.states.items():
        if phase not in outcome.states:
            continue
        lines = compare_states(workload, wanted, outcome.states[phase])
        found += [f"{phase}: {line}" for line in lines]
    return found


def compare_states(workload: Workload, wanted: State, state: State) -> list[str]:
    """Describe how a state differs from the state of the fault-free run, a line each."""
    return describe_difference(_rewrite_state(workload, wanted), _rewrite_state(workload, state))


def _rewrite_state(workload: Workload, state: State) -> State:
    rewritten: State = json.loads(workload.rewrite(json.dumps(state)))
    return workload.fold(rewritten)


def _check_counts(outcome: Outcome, reference: Outcome, workload: Workload) -> list[str]:
    found = []
    pairs = (
        ("created", outcome.creates, reference.creates),
        ("deleted", outcome.deletes, reference.deletes),
    )

    def count(titles: Iterable[str]) -> Counter[str]:
        masked = (title.replace(outcome.namespace, "<namespace>") for title in titles)
        return Counter(_fold(title, workload) for title in masked)

    removed = count(outcome.removed | _find_dependents(outcome))
    late = count(title for title, _ in _find_late_children(outcome))
    for verb, counted, wanted in pairs:
        counts, asked = _fold_counts(counted, workload), _fold_counts(wanted, workload)
        for title in sorted({*counts, *asked}):
            # The counts include the foreign object, and the object whose name it had.
            extra = 2 * removed[title] + late[title]
            if not asked[title] <= counts[title] <= asked[title] + extra:
                times = f"{counts[title]} times instead of {asked[title]}"
                found.append(f"{title} was {verb} {times}")
    return found


def _find_dependents(outcome: Outcome) -> set[str]:
    """Return the objects that were deleted because the fault removed another object.

    The other object is an owner, or the claim of a PersistentVolume. The API server also deletes
    the Endpoints with the name of a deleted Service.
    """
    endpoints = {
        f"{ENDPOINTS.plural} {title.partition(' ')[2]}"
        for title in outcome.removed
        if title.startswith(f"{SERVICE.plural} ")
    }
    gone = {
        uid_of(version.manifest)
        for version in outcome.history
        if version.action == "DELETED" and version.title in outcome.removed
    }
    return endpoints | {
        version.title
        for version in outcome.history
        for reference in (
            *(version.manifest["metadata"].get("ownerReferences") or ()),
            map_at(version.manifest, "spec", "claimRef"),
        )
        if reference.get("uid") in gone
    }


def _find_late_children(outcome: Outcome) -> set[tuple[str, str]]:
    """Return objects that were created for an owner that no longer existed, with its UID.

    Until an operator observes the deletion, it may recreate each child that the garbage collector
    has deleted, as the controllers of Kubernetes do. The garbage collector deletes it again.
    """
    ends = {
        uid_of(version.manifest): version.number
        for version in outcome.history
        if version.action == "DELETED"
    }
    return {
        (version.title, owner["uid"])
        for version in outcome.history
        for owner in version.manifest["metadata"].get("ownerReferences") or ()
        if version.action == "ADDED" and version.number > ends.get(owner["uid"], version.number)
    }


def _fold_counts(counts: Mapping[str, int], workload: Workload) -> Counter[str]:
    folded: Counter[str] = Counter()
    for title, count in counts.items():
        folded[_fold(title, workload)] += count
    return folded


def _fold(title: str, workload: Workload) -> str:
    plural = title.partition(" ")[0]
    if workload.renames and plural != workload.primary.plural:
        return plural
    return workload.rewrite(title)


def _check_invariants(outcome: Outcome, workload: Workload) -> list[str]:
    # Watches of different kinds have no common order, but resource versions have.
    history = sorted(outcome.history, key=lambda version: version.number)
    return [line for invariant in workload.invariants for line in invariant(history)]


def _check_hygiene(outcome: Outcome, workload: Workload) -> list[str]:
    namespace, operator = outcome.namespace, outcome.plan.operator
    return [
        line
        for record in outcome.records
        for line in lint(
            record, namespace, operator, repeated=_is_repeated(record, outcome, workload)
        )
    ]


def _is_repeated(record: Record, outcome: Outcome, workload: Workload) -> bool:
    """Return whether a write may change nothing.

    It may be the retry of a write whose response was lost, or the write of a delayed leader that
    does not know yet that another leader has already written.
    """
    trigger, call = outcome.plan.trigger, record.call
    name = workload.name_in_moments(call.name, outcome.namespace)
    if trigger is None:
        return False
    if outcome.plan.mode is Mode.H:
        return record.process == outcome.fired_process and record.phase == trigger.phase
    if outcome.plan.mode in EXCLUSIVE and _has_lost_response(record, outcome):
        return True
    return outcome.plan.mode in (Mode.A1, *EXCLUSIVE) and (
        (trigger.action, trigger.target, trigger.name) == (call.verb, call.target, name)
    )


def _has_lost_response(record: Record, outcome: Outcome) -> bool:
    """Return whether an earlier attempt of a write failed without a certain outcome.

    If a component is killed, the responses to all writes in progress are lost.
    """
    return any(
        each.call == record.call
        and each.at < record.at
        and (each.status == 0 or each.status >= _SERVER_ERROR)
        for each in outcome.records
    )


def _check_loops(outcome: Outcome, reference: Outcome) -> list[str]:
    def count(each: Outcome) -> Counter[str]:
        return Counter(f"{record.phase}: {record.call}" for record in each.records)

    usual = count(reference)
    return [
        f"{call} was sent {times} times instead of {usual[call]}"
        for call, times in count(outcome).items()
        if times > usual[call] + _MANY
    ]


def _check_process(outcome: Outcome) -> list[str]:
    found = [line[:300] for line in outcome.log.splitlines() if _DEFECTS.search(line) is not None]
    exits = [] if outcome.plan.mode in _ENDING else outcome.exits
    return found + [f"a process ended by itself with {status}" for status in exits]
