"""ControllerRevisions of machines, and the generations that follow from them. Pure.

KubeVirt keeps the spec that an instance was started from in a ControllerRevision. The instance is
annotated with the generation of its machine. The annotation is raised to a newer generation only
while the template still equals the template of that revision, and the machine reports the
annotation as `status.observedGeneration` only while an instance exists (vm.go,
`conditionallyBumpGenerationAnnotationOnVmi` and `syncGenerationInfo`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lab.kubevirt_sim.instancetypes import is_start_revision, name_revisions
from libs.common.kinds import CONTROLLER_REVISION, Manifest, build_object, key_of, uid_of
from libs.common.ownership import build_owner_reference, controller_uid
from libs.common.plan import Create, Delete, Patch, Step
from libs.common.reading import map_at, text_at, text_map_at
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE

GENERATION: Final = "kubevirt.io/vm-generation"
"""Annotation of an instance: the generation of its machine that it stands for."""
BY_MACHINE: Final = "machine"
"""Index of revisions by the UID of their machine."""


def index_revision(revision: Manifest) -> Iterable[str]:
    """Index a revision by its machine."""
    uid = controller_uid(revision)
    return [uid] if uid else []


def revision_name(vm: Mapping[str, Any]) -> str:
    """Return the name of the revision of the current generation of a machine."""
    return f"revision-start-vm-{uid_of(vm)}-{generation_of(vm)}"


def generation_of(vm: Mapping[str, Any]) -> int:
    """Return the generation of a machine."""
    return int(map_at(vm, "metadata").get("generation") or 0)


def build_revision(vm: Manifest) -> Manifest:
    """Build the revision that keeps the spec of a machine as it is now."""
    return build_object(
        CONTROLLER_REVISION,
        revision_name(vm),
        key_of(vm).namespace,
        metadata={"ownerReferences": [build_owner_reference(VIRTUAL_MACHINE, vm)]},
        data={"spec": name_revisions(vm)},
        revision=generation_of(vm),
    )


def plan_revision(vm: Manifest, revisions: Sequence[Manifest]) -> list[Step]:
    """Plan the revision of a machine that is about to start; older ones are deleted."""
    name = revision_name(vm)
    started = [each for each in revisions if is_start_revision(each)]
    old = [each for each in started if key_of(each).name != name]
    steps: list[Step] = [Delete.of(CONTROLLER_REVISION, each) for each in old]
    if len(old) == len(started):
        steps.append(Create(CONTROLLER_REVISION, build_revision(vm)))
    return steps


def find_revision(vmi: Mapping[str, Any], revisions: Sequence[Manifest]) -> Manifest | None:
    """Return the revision that an instance was started from; None if it is missing."""
    name = text_at(vmi, "status", "virtualMachineRevisionName")
    return next((each for each in revisions if key_of(each).name == name), None)


def template_of(revision: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the template that a revision keeps."""
    return map_at(revision, "data", "spec", "template")


def is_same(left: object, right: object) -> bool:
    """Compare as Go does semantically: an empty list is as good as none."""
    return _without_empty_lists(left) == _without_empty_lists(right)


def _without_empty_lists(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            name: _without_empty_lists(part)
            for name, part in value.items()
            if part is not None and part != []
        }
    if isinstance(value, list):
        return [_without_empty_lists(part) for part in value]
    return value


def observed_generation(vmi: Mapping[str, Any]) -> int | None:
    """Return the generation that an instance stands for; None if it is not known."""
    text = text_map_at(vmi, "metadata", "annotations").get(GENERATION, "")
    return int(text) if text.isdecimal() else None


def plan_bump(vm: Manifest, vmi: Manifest, revision: Manifest | None) -> Patch | None:
    """Plan the newer generation of an instance whose template has not changed; None for none."""
    generation = generation_of(vm)
    if revision is None or observed_generation(vmi) == generation:
        return None
    if not is_same(template_of(revision), map_at(vm, "spec", "template")):
        return None
    held = text_map_at(vmi, "metadata", "annotations")
    value = {**held, GENERATION: str(generation)}
    operation = {"op": "add", "path": "/metadata/annotations", "value": value}
    version = vmi["metadata"]["resourceVersion"]
    return Patch(
        VIRTUAL_MACHINE_INSTANCE, key_of(vmi), uid_of(vmi), [operation], resource_version=version
    )
