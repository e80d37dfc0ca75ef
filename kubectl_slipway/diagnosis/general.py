"""Rules that hold for every kind: namespace, operator, permissions, deletion, stale status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubectl_slipway.diagnosis.conditions import advise
from kubectl_slipway.diagnosis.findings import Facts, Finding, Reference
from kubectl_slipway.diagnosis.workloads import find_pod_problem
from kubectl_slipway.model import (
    Manifest,
    conditions,
    is_deleting,
    is_paused,
    is_stale,
    is_unseen,
    observed_generation,
    parse_time,
    readiness,
    render_age,
    title,
)
from kubectl_slipway.operators import Operator

_FRESH_SECONDS = 30
"""Time after which a missing or old status is a problem."""
_DELETION_SECONDS = 30
_EVENT_SECONDS = 3600


def find_stops(facts: Facts) -> Iterator[Finding]:
    """Find what prevents the operator from reconciling the object."""
    if not facts.operator_id:
        return
    subject = title(facts.manifest)
    yield from _find_operator_stops(facts, subject)
    if facts.denied:
        operator = facts.operator_id
        yield Finding(
            "PermissionMissing",
            f"Operator/{operator}",
            f"The {operator} operator lacks permissions: {'; '.join(facts.denied)}.",
            "Upgrade the release, so that its Roles match the operator, or add the permissions to "
            "the Role of the operator if you manage it yourself (rbac.create=false).",
        )


def has_current_status(facts: Facts) -> bool:
    """Return whether an operator has seen the present spec, so that its conditions are evidence."""
    return not is_unseen(facts.manifest) and not is_stale(facts.manifest) and _has_status(facts)


def _find_operator_stops(facts: Facts, subject: str) -> Iterator[Finding]:
    id, operators = facts.operator_id, facts.operators
    if operators is None:
        return
    if not operators and has_current_status(facts):
        yield Finding(
            "OperatorNotFound",
            subject,
            f"The cluster has no Deployment of the {id} operator, but the status is current: the "
            "operator runs elsewhere, or was removed after it wrote the status.",
            f"If no process of the operator runs, install its chart: helm install {id} "
            f"oci://REGISTRY/charts/{id} -n NAMESPACE",
            "Warning",
        )
        return
    if not operators:
        yield Finding(
            "OperatorMissing",
            subject,
            f"The {id} operator is not installed, so nothing reconciles this object.",
            f"Install its chart: helm install {id} oci://REGISTRY/charts/{id} -n NAMESPACE",
        )
        return
    namespace = str(facts.manifest["metadata"].get("namespace") or "")
    labels = ((facts.namespace or {}).get("metadata") or {}).get("labels") or {}
    watching = [each for each in operators if each.watches(namespace, labels)]
    if not watching:
        where = "; ".join(f"{e.namespace}/{e.release} watches {e.watches_text}" for e in operators)
        yield Finding(
            "NamespaceNotWatched",
            subject,
            f"No {id} operator watches namespace {namespace}: {where}.",
            f"Add {namespace} to watch.namespaces of the release, or move the object to a watched "
            "namespace.",
            # Settings can come from places that a Deployment does not show.
            "Warning" if has_current_status(facts) else "Error",
        )
        return
    for each in watching:
        yield from _find_operator_problem(each, facts)


def _find_operator_problem(operator: Operator, facts: Facts) -> Iterator[Finding]:
    subject = f"Operator/{operator.id}"
    where = f"deployment/{operator.release} -n {operator.namespace}"
    logs = f"kubectl logs {where}"
    if operator.released:
        yield Finding(
            "OperatorReleased",
            subject,
            f"An uninstall has stopped the {operator.id} operator and removed its finalizers.",
            f"Install it again, or delete the Lease {operator.id} in namespace "
            f"{operator.namespace} and restart the operator.",
        )
    elif operator.replicas == 0:
        yield Finding(
            "OperatorScaledToZero",
            subject,
            f"The {operator.id} operator has 0 replicas.",
            f"kubectl scale {where} --replicas=1",
        )
    elif operator.ready == 0:
        problems = [each for pod in operator.pods for each in find_pod_problem(pod, facts.now)]
        if problems:
            first = problems[0]
            cause = f"No pod of the {operator.id} operator is ready: {first.cause}"
            yield Finding("OperatorNotReady", subject, cause, first.remedy or logs)
        elif not operator.leads(facts.now):
            yield Finding(
                "OperatorNotReady",
                subject,
                f"No pod of the {operator.id} operator is ready.",
                logs,
            )
    elif not operator.leads(facts.now):
        holder = operator.leader or "nobody"
        yield Finding(
            "NoLeader",
            subject,
            f"No pod of the {operator.id} operator leads: the Lease belongs to {holder} and "
            "is not renewed.",
            f"Check whether the pods reach the API server: {logs}",
        )


def find_own(facts: Facts) -> Iterator[Finding]:
    """Find problems in the metadata and status of the object itself."""
    manifest = facts.manifest
    if _namespace_ends(facts) and not is_deleting(manifest):
        yield Finding(
            "NamespaceTerminating",
            title(manifest),
            f"Namespace {manifest['metadata'].get('namespace')} is being deleted; nothing can be "
            "created in it.",
            "Use another namespace.",
        )
    if is_paused(manifest):
        yield Finding(
            "Paused",
            title(manifest),
            "The annotation slipway.dev/paused stops the operator from reconciling this object.",
            f"kubectl slipway resume {title(manifest)}",
            "Warning",
        )
    if is_deleting(manifest):
        yield from _find_deletion(facts)
    elif facts.operator_id and not is_paused(manifest):
        yield from _find_old_status(facts)


def _find_deletion(facts: Facts) -> Iterator[Finding]:
    manifest, meta = facts.manifest, facts.manifest["metadata"]
    if manifest.get("kind") == "Pod":
        return
    deleted = parse_time(meta["deletionTimestamp"])
    finalizers = [str(each) for each in meta.get("finalizers") or ()]
    if deleted is None or (facts.now - deleted).total_seconds() < _DELETION_SECONDS:
        return
    age = render_age(meta["deletionTimestamp"], facts.now)
    group = facts.resource.group
    foreign = [e for e in finalizers if e.partition("/")[0] != group and "slipway.dev" not in e]
    if "foregroundDeletion" in foreign:
        yield Finding(
            "WaitingForDependents",
            title(manifest),
            f"Deleted {age} ago; Kubernetes waits for objects that it owns.",
            f"kubectl slipway tree {title(manifest)} shows them.",
        )
    elif foreign:
        yield Finding(
            "ForeignFinalizer",
            title(manifest),
            f"Deleted {age} ago; the finalizer {foreign[0]} is still set, which another component "
            "must remove.",
            f"Find out which component uses {foreign[0]} and whether it runs.",
        )
    elif finalizers:
        waiting = [e for e in conditions(manifest) if e.type == "Terminating"]
        why = f": {waiting[0].message}" if waiting and waiting[0].message else ""
        yield Finding(
            "DeletionBlocked",
            title(manifest),
            f"Deleted {age} ago; the clean-up of the operator has not finished{why}",
            "Fix the cause of the wait. To skip the clean-up: "
            f"kubectl slipway force-finalize {title(manifest)}",
        )


def _find_old_status(facts: Facts) -> Iterator[Finding]:
    manifest, meta = facts.manifest, facts.manifest["metadata"]
    logs = f"kubectl slipway logs {facts.operator_id} --object {meta['name']}"
    created = parse_time(meta.get("creationTimestamp") or "")
    fresh = created is not None and (facts.now - created).total_seconds() < _FRESH_SECONDS
    if is_unseen(manifest) and not fresh and _has_status(facts):
        yield Finding(
            "NotReconciled",
            title(manifest),
            "The operator runs and has not written a status for this object.",
            f"Look for errors: {logs}",
        )
    elif is_stale(manifest):
        yield Finding(
            "StaleStatus",
            title(manifest),
            f"The status is about generation {observed_generation(manifest)} of the spec; the "
            f"current generation is {meta.get('generation')}.",
            f"Wait a few seconds. If the status stays old, look for errors: {logs}",
            # A condition of an older spec says nothing about the current one.
            "Warning" if readiness(manifest).ok else "Error",
        )


def _has_status(facts: Facts) -> bool:
    from kubectl_slipway.model import known_kinds

    known = known_kinds().get(str(facts.manifest.get("kind")))
    return known is None or "Ready" in known["conditions"]


def _namespace_ends(facts: Facts) -> bool:
    return facts.namespace is not None and is_deleting(facts.namespace)


def missing_reference(facts: Facts, reference: Reference) -> Finding:
    """Report that an object that the spec names does not exist."""
    return Finding(
        f"{reference.kind}Missing",
        f"{reference.kind}/{reference.name}",
        f"{reference.kind} {reference.name}, which {reference.field} of {title(facts.manifest)} "
        "names, does not exist.",
        f"Create it, or change {reference.field}.",
    )


def find_events(facts: Facts, own: Sequence[Finding], severity: str) -> Iterator[Finding]:
    """Report the latest warning event, if the conditions do not say the same."""
    said = {each.code for each in own}
    for event in reversed(facts.events):
        if event.get("type") != "Warning" or event.get("reason") in said:
            continue
        last = parse_time(event_time(event))
        if last is None or (facts.now - last).total_seconds() > _EVENT_SECONDS:
            continue
        note = event.get("note") or event.get("message") or ""
        age = render_age(event_time(event), facts.now)
        reason = str(event.get("reason") or "Warning")
        cause = f"Event {age} ago: {note}"
        yield Finding(reason, title(facts.manifest), cause, advise(facts, reason), severity)
        return


def event_time(event: Manifest) -> str:
    """Return the time of the last occurrence of an event."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("eventTime")
        or event.get("deprecatedLastTimestamp")
        or event.get("lastTimestamp")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
