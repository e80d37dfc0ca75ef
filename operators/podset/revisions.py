"""The revisions of a set: each template that it had, in a ControllerRevision. Pure.

A revision is known by the hash of its template, which is also a label of the pods. What the object
contains is believed only if it has that hash, so a revision that somebody else wrote changes
nothing.

The *update revision* is the template to which pods are brought. The *current revision* is the last
one that all pods had while they were available; pods that a partition protects are recreated from
it. `status.currentRevision` remembers it. Without that, it is the oldest one that a pod has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from libs.common.crd import ParseError, PodTemplate, parse
from libs.common.kinds import CONTROLLER_REVISION, Key, Manifest, build_object, uid_of
from libs.common.labels import matches_selector
from libs.common.ownership import build_adopt_patch
from libs.common.plan import Create, Delete, Patch, Step
from libs.common.reading import map_at, text_at
from operators.podset.api.v1 import PodSet
from operators.podset.naming import SET_LABEL, TEMPLATE_HASH_LABEL, revision_name
from operators.podset.resources import DEFAULT_IMAGE, Blueprint, build_blueprint_of


@dataclass(frozen=True, slots=True)
class Revision:
    """A ControllerRevision of a set, without its content.

    Attributes:
        name: Name of the object.
        uid: UID of the object.
        number: The later a template came into use, the higher.
        template_hash: Hash of the template, as the label says.
    """

    name: str
    uid: str
    number: int
    template_hash: str

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Read a ControllerRevision, whole or shrunk."""
        return cls(
            name=text_at(manifest, "metadata", "name"),
            uid=uid_of(manifest),
            number=int(manifest.get("revision") or 0),
            template_hash=text_at(manifest, "metadata", "labels", TEMPLATE_HASH_LABEL),
        )


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of a set, in one snapshot.

    Attributes:
        revisions: Revisions that the set controls, the oldest first.
        orphans: Revisions that a deleted set of the same name left behind.
    """

    revisions: tuple[Revision, ...] = ()
    orphans: tuple[Manifest, ...] = ()

    def find(self, template_hash: str) -> Revision | None:
        """Return the newest revision of a template, or None."""
        found = [each for each in self.revisions if each.template_hash == template_hash]
        return found[-1] if found else None

    def find_former(self, podset: PodSet, hashes: Iterable[str]) -> Revision | None:
        """Return the revision that the status remembers as current, or None if there is none.

        Args:
            podset: The set.
            hashes: Template hashes of its pods; the oldest one counts if the status is empty.
        """
        name = podset.status.current_revision if podset.status is not None else None
        held = frozenset(hashes)
        remembered = [each for each in self.revisions if each.name == name]
        used = [each for each in self.revisions if each.template_hash in held]
        return next(iter([*remembered, *used]), None)


def build_history(
    controlled: Iterable[Mapping[str, Any]], orphans: Iterable[Manifest] = ()
) -> History:
    """Read the revisions of a set."""
    parsed = [Revision.parse(each) for each in controlled]
    ordered = sorted(parsed, key=lambda each: (each.number, each.name))
    return History(tuple(ordered), tuple(orphans))


def build_revision(podset: PodSet, blueprint: Blueprint, owner: Manifest, number: int) -> Manifest:
    """Build the ControllerRevision that records a template."""
    template = blueprint.template
    name, uid = podset.metadata.name, podset.metadata.uid
    labels = {SET_LABEL: name, TEMPLATE_HASH_LABEL: blueprint.template_hash}
    return build_object(
        CONTROLLER_REVISION,
        revision_name(name, uid, blueprint.template_hash),
        podset.metadata.namespace,
        metadata={"labels": labels, "ownerReferences": [owner]},
        # A strategic merge patch of the set, as StatefulSet and DaemonSet record it.
        data={"spec": {} if template is None else {"template": _render_template(template)}},
        revision=number,
    )


def read_blueprint(
    podset: PodSet, manifest: Mapping[str, Any], *, default_image: str = DEFAULT_IMAGE
) -> Blueprint | None:
    """Read the template that a ControllerRevision records.

    Returns:
        The template; None if the object is not a revision of the set, or not what its label says.
    """
    metadata = map_at(manifest, "metadata")
    owners = metadata.get("ownerReferences") or ()
    if not any(owner.get("uid") == podset.metadata.uid for owner in owners):
        return None
    data = map_at(manifest, "data", "spec").get("template")
    try:
        template = None if data is None else parse(PodTemplate, data)
    except ParseError:
        return None
    blueprint = build_blueprint_of(podset, template, default_image=default_image)
    genuine = text_at(metadata, "labels", TEMPLATE_HASH_LABEL) == blueprint.template_hash
    return blueprint if genuine and matches_selector(blueprint.selector, blueprint.labels) else None


def plan_revisions(
    podset: PodSet, blueprint: Blueprint, owner: Manifest, history: History, hashes: Iterable[str]
) -> list[Step]:
    """Plan what keeps the history: record the template, adopt orphans, delete what is too old.

    Args:
        podset: The set.
        blueprint: The template to which pods are brought.
        owner: Controller reference to the set.
        history: The revisions.
        hashes: Template hashes that are in use: of the pods, and of the current revision.
    """
    namespace = podset.metadata.namespace
    if history.orphans:
        return [_build_adoption(orphan, owner) for orphan in history.orphans]
    steps: list[Step] = []
    held = history.find(blueprint.template_hash)
    latest = history.revisions[-1].number if history.revisions else 0
    if held is None:
        manifest = build_revision(podset, blueprint, owner, latest + 1)
        steps.append(Create(CONTROLLER_REVISION, manifest))
    elif held.number != latest or _is_ambiguous(history):
        number = {"op": "replace", "path": "/revision", "value": latest + 1}
        key = Key(namespace, held.name)
        steps.append(Patch(CONTROLLER_REVISION, key, held.uid, [number]))
    used = {blueprint.template_hash, *hashes}
    unused = [each for each in history.revisions if each.template_hash not in used]
    surplus = unused[: max(0, len(unused) - podset.spec.revision_history_limit)]
    steps += [Delete(CONTROLLER_REVISION, Key(namespace, each.name), each.uid) for each in surplus]
    return steps


def shrink_revision(manifest: Manifest) -> Manifest:
    """Keep of a ControllerRevision what `Revision` and adoption read: all but its content."""
    metadata = manifest["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "labels")
    shrunk: Manifest = {name: metadata[name] for name in kept if metadata.get(name)}
    if metadata.get("ownerReferences"):
        shrunk["ownerReferences"] = metadata["ownerReferences"]
    return {"metadata": shrunk, "revision": manifest.get("revision") or 0}


def _render_template(template: PodTemplate) -> Manifest:
    # The spec stays as it was written, including nulls, so that its hash stays the same.
    return {"metadata": template.metadata.to_manifest(), "spec": template.spec}


def _is_ambiguous(history: History) -> bool:
    """Return whether two revisions have the highest number, such as after an adoption."""
    return len(history.revisions) > 1 and (
        history.revisions[-1].number == history.revisions[-2].number
    )


def _build_adoption(orphan: Manifest, owner: Manifest) -> Patch:
    metadata = orphan["metadata"]
    key = Key(metadata.get("namespace") or "", metadata["name"])
    version = metadata.get("resourceVersion") or ""
    operations: Sequence[Manifest] = build_adopt_patch(orphan, owner)
    return Patch(CONTROLLER_REVISION, key, uid_of(orphan), operations, resource_version=version)
