"""Revisions of a PodSet: each template that it has had, in a ControllerRevision. Pure.

A revision is identified by the hash of its template, which is a label of the pods as well. The
template in a revision is used only if it has this hash, so a revision that somebody else has
changed has no effect.

Templates that mean the same have one revision, so nobody restarts pods for another way to write a
template. If a new template means the same as a revision that is in use, its hash is recorded as an
alias of that revision, and the template gets the hash of the revision.

The *update revision* is the template from which new pods are created. The *current revision* is the
last one that all pods had while they were available; pods that a partition protects are recreated
from it. Its name is stored in `status.currentRevision`. If that field is empty, the current
revision is the oldest revision of an existing pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from libs.common.crd import ParseError, PodTemplate, parse
from libs.common.kinds import CONTROLLER_REVISION, Key, Manifest, build_object, uid_of
from libs.common.labels import matches_selector
from libs.common.ownership import build_adopt_patch
from libs.common.plan import Create, Delete, Patch, Step, escape_pointer
from libs.common.reading import map_at, text_at
from operators.podset.api.v1 import PodSet
from operators.podset.naming import (
    SET_LABEL,
    TEMPLATE_ALIAS_LABEL,
    TEMPLATE_HASH_LABEL,
    revision_name,
)
from operators.podset.resources import DEFAULT_IMAGE, Blueprint, build_blueprint_of


@dataclass(frozen=True, slots=True)
class Revision:
    """A ControllerRevision of a PodSet, without the template.

    Attributes:
        number: Revision number, which is higher for templates that came into use later.
        template_hash: Hash of the template, from the label.
        alias: Hash of another template that means the same; empty if none is known.
    """

    name: str
    uid: str
    number: int
    template_hash: str
    alias: str = ""

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Read a ControllerRevision, whole or shrunk."""
        return cls(
            name=text_at(manifest, "metadata", "name"),
            uid=uid_of(manifest),
            number=int(manifest.get("revision") or 0),
            template_hash=text_at(manifest, "metadata", "labels", TEMPLATE_HASH_LABEL),
            alias=text_at(manifest, "metadata", "labels", TEMPLATE_ALIAS_LABEL),
        )


@dataclass(frozen=True, slots=True)
class History:
    """A snapshot of the revisions of a PodSet.

    Attributes:
        revisions: Revisions that the PodSet controls, the oldest first.
        orphans: Orphaned revisions of a deleted PodSet with the same name.
    """

    revisions: tuple[Revision, ...] = ()
    orphans: tuple[Manifest, ...] = ()

    def find(self, template_hash: str) -> Revision | None:
        """Return the newest revision of a template, or None."""
        found = [each for each in self.revisions if each.template_hash == template_hash]
        return found[-1] if found else None

    def recognize(self, blueprint: Blueprint) -> Blueprint:
        """Return a template with the hash of the revision that is known to mean the same."""
        own = blueprint.template_hash
        if self.find(own) is not None:
            return blueprint
        same = [each for each in self.revisions if each.alias == own]
        return blueprint.with_hash(same[-1].template_hash) if same else blueprint

    def find_former(self, podset: PodSet, hashes: Iterable[str]) -> Revision | None:
        """Return the current revision according to the status, or None if there is none.

        Args:
            podset: The PodSet.
            hashes: Template hashes of its pods; used if the status names no revision.
        """
        name = podset.status.current_revision if podset.status is not None else None
        held = frozenset(hashes)
        remembered = [each for each in self.revisions if each.name == name]
        used = [each for each in self.revisions if each.template_hash in held]
        return next(iter([*remembered, *used]), None)


def build_history(
    controlled: Iterable[Mapping[str, Any]], orphans: Iterable[Manifest] = ()
) -> History:
    """Build the history from ControllerRevisions."""
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
        # A strategic merge patch of the PodSet, in the same format as for a StatefulSet.
        data={"spec": {} if template is None else {"template": _render_template(template)}},
        revision=number,
    )


def read_blueprint(
    podset: PodSet, manifest: Mapping[str, Any], *, default_image: str = DEFAULT_IMAGE
) -> Blueprint | None:
    """Read the template that a ControllerRevision records.

    Returns:
        The template; None if the object is not a revision of the PodSet, or if its template does
        not have the hash in its label.
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
    """Plan the writes of revisions: record the template, adopt orphans, delete old revisions.

    Args:
        podset: The PodSet.
        blueprint: The template from which new pods are created.
        owner: Controller reference to the PodSet.
        history: The existing revisions.
        hashes: Template hashes in use, by pods or the current revision. Their revisions are kept.
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


def build_alias_patch(namespace: str, revision: Revision, alias: str) -> Patch:
    """Build the patch that records that another template means the same as a revision."""
    path = f"/metadata/labels/{escape_pointer(TEMPLATE_ALIAS_LABEL)}"
    operation = {"op": "add", "path": path, "value": alias}
    return Patch(CONTROLLER_REVISION, Key(namespace, revision.name), revision.uid, [operation])


def shrink_revision(manifest: Manifest) -> Manifest:
    """Drop the template of a ControllerRevision; `Revision` and adoption do not read it."""
    metadata = manifest["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "labels")
    shrunk: Manifest = {name: metadata[name] for name in kept if metadata.get(name)}
    if metadata.get("ownerReferences"):
        shrunk["ownerReferences"] = metadata["ownerReferences"]
    return {"metadata": shrunk, "revision": manifest.get("revision") or 0}


def _render_template(template: PodTemplate) -> Manifest:
    # The spec is stored as the user wrote it, including nulls, so that its hash stays the same.
    return {"metadata": template.metadata.to_manifest(), "spec": template.spec}


def _is_ambiguous(history: History) -> bool:
    """Return whether two revisions share the highest number, for example after an adoption."""
    return len(history.revisions) > 1 and (
        history.revisions[-1].number == history.revisions[-2].number
    )


def _build_adoption(orphan: Manifest, owner: Manifest) -> Patch:
    metadata = orphan["metadata"]
    key = Key(metadata.get("namespace") or "", metadata["name"])
    version = metadata.get("resourceVersion") or ""
    operations: Sequence[Manifest] = build_adopt_patch(orphan, owner)
    return Patch(CONTROLLER_REVISION, key, uid_of(orphan), operations, resource_version=version)
