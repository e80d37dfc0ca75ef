"""Actual and desired state of children, for Networks and Firewalls. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from libs.common.apply import build_desired
from libs.common.kinds import Key, Kind, Manifest, describe, is_deleting, key_of, uid_of
from libs.common.labels import APPLIED_HASH
from libs.common.ownership import controller_uid
from libs.common.plan import Apply, Delete, Patch, Step, annotate
from libs.contracts.multus import NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1.fields import USERS_SHOWN
from operators.network.naming import KEPT_FOR
from operators.network.resources import is_same_policy


@dataclass(frozen=True, slots=True)
class Child:
    """The desired and the actual state of one child.

    Attributes:
        live: Existing object with the name, whoever owns it; None if there is none.
    """

    kind: Kind
    wanted: Manifest
    live: Manifest | None

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return key_of(self.wanted)

    @property
    def is_ours(self) -> bool:
        """Whether the live object has the same owner as the desired one."""
        return self.live is not None and self.owns(self.live)

    def owns(self, live: Manifest) -> bool:
        """Return whether an object with the name belongs to the owner of the desired child.

        If the desired child has the annotation `kept-for` instead of an owner reference, an object
        with this annotation is ours whatever UID it contains: the name is derived from the name of
        the owner, and after a restore from a backup, or a forced deletion and recreation, the owner
        has another UID but must keep its children.
        """
        if KEPT_FOR in _marks(self.wanted):
            return KEPT_FOR in _marks(live) and not controller_uid(live)
        return controller_uid(live) == controller_uid(self.wanted)

    @property
    def is_up_to_date(self) -> bool:
        """Whether the live object is ours, is not being deleted, and equals the desired one."""
        return (
            self.live is not None
            and self.is_ours
            and not is_deleting(self.live)
            and _has_same_content(self.kind, self.live, self.wanted)
        )

    @property
    def is_tampered(self) -> bool:
        """Whether another client has changed the live object since our last write.

        The hash in the annotation is the hash of the desired state, so our last write is up to
        date; if the content differs nevertheless, another client has changed it.
        """
        if self.live is None or not self.is_ours:
            return False
        wanted = build_desired(self.wanted)["metadata"]["annotations"][APPLIED_HASH]
        same = _has_same_content(self.kind, self.live, self.wanted)
        return _marks(self.live).get(APPLIED_HASH) == wanted and not same

    def plan(self) -> Step:
        """Plan the step that brings the child in line; it writes nothing if the child is so."""
        if self.live is None or not self.is_tampered:
            return Apply(self.kind, self.wanted, self.owns)
        # An apply would keep fields that other clients have added, and in a policy such fields can
        # allow or deny traffic. So replace the spec as a whole.
        operations = [
            {"op": "replace", "path": "/spec", "value": self.wanted["spec"]},
            *(annotate(_marks(self.live), *mark) for mark in _marks(self.wanted).items()),
        ]
        return Patch(self.kind, self.key, uid_of(self.live), operations)

    def __str__(self) -> str:
        """Return its name for messages: `NetworkPolicy default/firewall-web`."""
        return describe(self.kind, self.key)


def plan_children(
    children: Iterable[Child], surplus: Iterable[tuple[Kind, Manifest]]
) -> list[list[Step]]:
    """Plan the children one after the other, and then the deletion of surplus objects."""
    batches: list[list[Step]] = [[child.plan()] for child in children]
    deletions: list[Step] = [Delete.of(kind, manifest) for kind, manifest in surplus]
    return [*batches, deletions] if deletions else batches


def drop_empty(status: Manifest) -> Manifest:
    """Return a status without empty fields, which would make equal statuses look different."""
    return {name: value for name, value in status.items() if value not in ("", [], None)}


def show_users(users: Iterable[str]) -> Manifest:
    """Build the fields of a status that list the users of an object."""
    names = list(users)
    return {"usedByCount": len(names), "usedBy": names[:USERS_SHOWN]}


def render_users(users: Iterable[str], limit: int = 3) -> str:
    """Render users for a message: `Instance a, Instance b and 2 more`."""
    names = list(users)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


def _marks(manifest: Manifest) -> Mapping[str, str]:
    return manifest["metadata"].get("annotations") or {}


def _has_same_content(kind: Kind, live: Manifest, wanted: Manifest) -> bool:
    if kind == NETWORK_ATTACHMENT_DEFINITION:
        return bool((live.get("spec") or {}).get("config") == wanted["spec"]["config"])
    return is_same_policy(live, wanted)
