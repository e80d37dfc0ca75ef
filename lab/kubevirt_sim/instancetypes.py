"""Instancetypes and preferences: how a machine gets their content. Pure.

It follows KubeVirt d923fdb (1.9.0-rc.2): `pkg/instancetype/controller/vm/controller.go` (`Sync`),
`find/spec.go`, `revision/store.go`, `apply/cpu.go`, `apply/memory.go`, `preference/requirements`,
and the policy `reference`. With `expand`, KubeVirt writes the content into the machine instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.common.kinds import CONTROLLER_REVISION, Manifest, build_object, key_of, uid_of
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create
from libs.common.quantity import parse_quantity
from libs.common.reading import map_at, text_at, text_map_at
from libs.contracts.instancetypes import (
    INSTANCETYPE_GROUP,
    STARTED_WITH,
    Matcher,
    MatcherField,
    MatcherState,
)
from libs.contracts.kubevirt import VIRTUAL_MACHINE

OBJECT_NAME: Final = f"{INSTANCETYPE_GROUP}/object-name"
"""Label of a revision: the name of the instancetype or the preference that it keeps."""
_FIELDS: Final[tuple[MatcherField, ...]] = ("instancetype", "preference")
_REASONS: Final = {
    "instancetype": "FailedFindInstancetype",
    "preference": "FailedFindPreference",
}
_TOPOLOGY: Final = {"cores": "cores", "preferCores": "cores", "threads": "threads"} | {
    "preferThreads": "threads"
}
"""Part of a topology that gets all processors, by the preferred topology; sockets otherwise."""

_LESS: Final = "overcommitPercent"
"""Field of an instancetype that makes the pod of a guest smaller, not the guest."""

type Find = Callable[[Matcher], Manifest | None]
"""Return an instancetype or a preference, or None."""


@dataclass(frozen=True, slots=True)
class Synced:
    """What the VM controller does about instancetypes before anything else.

    Attributes:
        failure: Reason and message of the condition `Failure`; None if all is found.
        revisions: Revisions to store.
        status: Fields of the status that change.
    """

    failure: tuple[str, str] | None = None
    revisions: tuple[Create, ...] = ()
    status: Mapping[str, Manifest] | None = None


def is_start_revision(revision: Manifest) -> bool:
    """Return whether a revision keeps the spec of a machine, not what it names."""
    return OBJECT_NAME not in text_map_at(revision, "metadata", "labels")


def sync(vm: Manifest, find: Find, revisions: Sequence[Manifest]) -> Synced:
    """Find what a machine names, and keep it in revisions.

    Args:
        vm: The machine.
        find: Returns the objects as they are now.
        revisions: ControllerRevisions of the machine.
    """
    steps, changed = [], {}
    for field in _FIELDS:
        state = MatcherState.parse(vm, field)
        if state is None:
            continue
        if _find_kept(state, revisions) is not None:
            continue
        held = find(state.matcher)
        if held is None:
            plural = state.matcher.locate("")[0].resource
            text = f'{plural} "{state.matcher.name}" not found'
            return Synced(failure=(_REASONS[field], text))
        if field == "instancetype" and (conflicts := find_conflicts(vm, held)):
            return Synced(failure=("FailedCreate", _explain_conflicts(conflicts)))
        revision = build_kept(vm, held)
        steps.append(Create(CONTROLLER_REVISION, revision))
        changed[f"{field}Ref"] = {
            "kind": state.matcher.kind,
            "name": state.matcher.name,
            "controllerRevisionRef": {"name": key_of(revision).name},
        }
    return Synced(revisions=tuple(steps), status=changed or None)


def build_kept(vm: Manifest, held: Manifest) -> Manifest:
    """Build the revision that keeps an instancetype or a preference for a machine."""
    key, generation = key_of(held), held["metadata"].get("generation", 1)
    version = text_at(held, "apiVersion").rpartition("/")[2]
    labels = {
        OBJECT_NAME: key.name,
        f"{INSTANCETYPE_GROUP}/object-kind": text_at(held, "kind"),
        f"{INSTANCETYPE_GROUP}/object-uid": uid_of(held),
        f"{INSTANCETYPE_GROUP}/object-generation": str(generation),
        f"{INSTANCETYPE_GROUP}/object-version": version,
    }
    return build_object(
        CONTROLLER_REVISION,
        f"{key_of(vm).name}-{key.name}-{version}-{uid_of(held)}-{generation}",
        key_of(vm).namespace,
        metadata={
            "labels": labels,
            "ownerReferences": [build_owner_reference(VIRTUAL_MACHINE, vm)],
        },
        data={"kind": text_at(held, "kind"), "spec": dict(map_at(held, "spec"))},
        revision=0,
    )


def expand(vm: Manifest, spec: Mapping[str, Any], revisions: Sequence[Manifest]) -> Manifest:
    """Return the spec of a machine, now or in a revision, with the content of what it names."""
    shown = {**vm, "spec": dict(spec)}
    contents: dict[str, Mapping[str, Any]] = {}
    for field in _FIELDS:
        state = MatcherState.parse(shown, field)
        name = text_at(spec, field, "revisionName")
        # A revision of a machine names the revisions that it was started with.
        if state is not None and name:
            state = MatcherState(state.matcher, name)
        kept = None if state is None else _find_kept(state, revisions)
        if kept is not None:
            contents[field] = map_at(kept, "data", "spec")
    if not contents:
        return dict(spec)
    template = dict(map_at(spec, "template"))
    inner = dict(map_at(template, "spec"))
    inner["domain"] = _fill_domain(map_at(inner, "domain"), contents)
    selector = map_at(contents.get("instancetype", {}), "nodeSelector")
    if selector:
        inner["nodeSelector"] = dict(selector)
    return {**spec, "template": {**template, "spec": inner}}


def _fill_domain(domain: Mapping[str, Any], contents: Mapping[str, Mapping[str, Any]]) -> Manifest:
    preference, filled = contents.get("preference", {}), dict(domain)
    if "instancetype" in contents:
        given = contents["instancetype"]
        cpus = int(map_at(given, "cpu").get("guest") or 1)
        wanted = text_at(preference, "cpu", "preferredCPUTopology")
        cpu = {"cores": 1, "sockets": 1, "threads": 1} | {_TOPOLOGY.get(wanted, "sockets"): cpus}
        most = {
            name: map_at(given, "cpu")[name] for name in ("maxSockets",) if name in given["cpu"]
        }
        filled["cpu"] = {**map_at(domain, "cpu"), **cpu, **most}
        rest = {
            key: value
            for key, value in map_at(given, "memory").items()
            if key != "overcommitPercent"
        }
        filled["memory"] = {**map_at(domain, "memory"), **rest}
    bus = text_at(preference, "devices", "preferredDiskBus")
    if bus:
        devices = dict(map_at(domain, "devices"))
        disks = [dict(each) for each in devices.get("disks") or ()]
        for disk in disks:
            if "disk" in disk and not map_at(disk, "disk").get("bus"):
                disk["disk"] = {**map_at(disk, "disk"), "bus": bus}
        filled["devices"] = {**devices, "disks": disks}
    return filled


def name_revisions(vm: Manifest) -> Manifest:
    """Return the spec of a machine with the revisions of what it names (`patchVMRevision`)."""
    spec = dict(map_at(vm, "spec"))
    for field in _FIELDS:
        state = MatcherState.parse(vm, field)
        if state is not None and state.revision:
            spec[field] = {**spec[field], "revisionName": state.revision}
    return spec


def build_notes(vm: Manifest) -> dict[str, str]:
    """Build the annotations of an instance: the names of what its machine was started with."""
    notes = {}
    state = MatcherState.parse(vm, "instancetype")
    if state is not None and state.matcher.kind in STARTED_WITH:
        notes[STARTED_WITH[state.matcher.kind]] = state.matcher.name
    state = MatcherState.parse(vm, "preference")
    if state is not None:
        scope = "cluster-" if "Cluster" in state.matcher.kind else ""
        notes[f"kubevirt.io/{scope}preference-name"] = state.matcher.name
    return notes


def evaluate_names(vm: Manifest, find: Find) -> str:
    """Return why a machine is refused for what it names; what does not exist is no reason."""
    contents: dict[str, Manifest] = {}
    for field in _FIELDS:
        if field in map_at(vm, "spec") and not text_at(vm, "spec", field, "name"):
            what = "InstancetypeMatcher" if field == "instancetype" else "PreferenceMatcher"
            return f"Either Name or InferFromVolume should be provided within the {what}"
        state = MatcherState.parse(vm, field)
        held = None if state is None else find(state.matcher)
        if held is not None:
            contents[field] = held
    given = contents.get("instancetype")
    if given is not None and (conflicts := find_conflicts(vm, given)):
        return ", ".join(_explain_conflicts([each]) for each in conflicts)
    return _check_requirements(vm, given, contents.get("preference"))


def find_conflicts(vm: Manifest, instancetype: Manifest) -> list[str]:
    """Return the fields of a template that an instancetype defines as well."""
    spec = map_at(vm, "spec", "template", "spec")
    domain, base = map_at(spec, "domain"), "spec.template.spec"
    found = []
    if map_at(instancetype, "spec").get("nodeSelector") and spec.get("nodeSelector"):
        found.append(f"{base}.nodeSelector")
    resources = map_at(domain, "resources")
    names = ("requests", "limits")
    limited = [name for name in names if "cpu" in map_at(resources, name)]
    found += [f"{base}.domain.resources.{name}.cpu" for name in limited]
    parts = ("sockets", "cores", "threads")
    found += [f"{base}.domain.cpu.{part}" for part in parts if map_at(domain, "cpu").get(part)]
    # KubeVirt names only the first conflict of the memory.
    if map_at(domain, "memory").get("guest"):
        return [*found, f"{base}.domain.memory.guest"]
    for name in names:
        if "memory" in map_at(resources, name):
            return [*found, f"{base}.domain.resources.{name}.memory"]
    return found


def _check_requirements(
    vm: Manifest, instancetype: Manifest | None, preference: Manifest | None
) -> str:
    """Return which requirement of a preference a machine does not meet; empty for none."""
    wanted = map_at(preference or {}, "spec", "requirements")
    prefix = "failure checking preference requirements: insufficient"
    source = "instance type" if instancetype is not None else "VirtualMachine"
    domain = map_at(vm, "spec", "template", "spec", "domain")
    given = map_at(instancetype, "spec") if instancetype is not None else domain
    cpus, needed = map_at(given, "cpu").get("guest"), map_at(wanted, "cpu").get("guest")
    if needed and instancetype is not None and int(cpus or 0) < needed:
        return (
            f"{prefix} CPU resources of {cpus} vCPU provided by {source}, preference requires "
            f"{needed} vCPU"
        )
    memory, least = text_at(given, "memory", "guest"), text_at(wanted, "memory", "guest")
    if least and parse_quantity(memory or "0") < parse_quantity(least):
        return (
            f"{prefix} Memory resources of {memory or 0} provided by {source}, preference requires "
            f"{least}"
        )
    return ""


def _explain_conflicts(conflicts: Iterable[str]) -> str:
    return f"VM field(s) {', '.join(conflicts)} conflicts with selected instance type"


def _find_kept(state: MatcherState, revisions: Sequence[Manifest]) -> Manifest | None:
    """Return the revision of what a machine names, if it is of that name."""
    for revision in revisions:
        if key_of(revision).name == state.revision:
            label = text_map_at(revision, "metadata", "labels").get(OBJECT_NAME)
            return revision if label == state.matcher.name else None
    return None
