"""Children as they are and as they are wanted, for Network and Firewall alike; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from libs.common.apply import build_desired
from libs.common.kinds import Key, Kind, Manifest, describe, is_deleting, key_of, uid_of
from libs.common.labels import APPLIED_HASH
from libs.common.ownership import controller_uid
from libs.common.plan import Apply, Delete, Patch, Step, escape_pointer
from libs.contracts.multus import NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1.fields import USERS_SHOWN
from operators.network.naming import KEPT_FOR
from operators.network.resources import is_same_policy


@dataclass(frozen=True, slots=True)
class Child:
    """One child.

    Attributes:
        kind: Its kind.
        wanted: The child as it must be.
        live: The object of its name, whosever it is; None for none.
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
        """Whether the live object belongs to the owner of the wanted one."""
        return self.live is not None and self.owns(self.live)

    def owns(self, live: Manifest) -> bool:
        """Return whether an object of the name has the owner, or a mark as the wanted one has.

        The name of a child is derived from the name of its owner, so a mark is ours, whatever its
        UID is: an owner that was restored from a backup, or deleted by force and recreated, finds
        its old children.
        """
        if KEPT_FOR in _marks(self.wanted):
            return KEPT_FOR in _marks(live) and not controller_uid(live)
        return controller_uid(live) == controller_uid(self.wanted)

    @property
    def is_up_to_date(self) -> bool:
        """Whether the live object is ours, should stay, and says exactly what is wanted."""
        return (
            self.live is not None
            and self.is_ours
            and not is_deleting(self.live)
            and _says_the_same(self.kind, self.live, self.wanted)
        )

    @property
    def is_tampered(self) -> bool:
        """Whether somebody else changed what the live object says since we wrote it."""
        if self.live is None or not self.is_ours:
            return False
        wanted = build_desired(self.wanted)["metadata"]["annotations"][APPLIED_HASH]
        same = _says_the_same(self.kind, self.live, self.wanted)
        return _marks(self.live).get(APPLIED_HASH) == wanted and not same

    def plan(self) -> Step:
        """Plan the one step that brings it in line; it is no write if nothing must be done."""
        if self.live is None or not self.is_tampered:
            return Apply(self.kind, self.wanted, self.owns)
        # An apply leaves fields alone that others added, and here they open or close something.
        operations = [
            {"op": "replace", "path": "/spec", "value": self.wanted["spec"]},
            *(
                {
                    "op": "add",
                    "path": f"/metadata/annotations/{escape_pointer(name)}",
                    "value": text,
                }
                for name, text in _marks(self.wanted).items()
            ),
        ]
        return Patch(self.kind, self.key, uid_of(self.live), operations)

    def __str__(self) -> str:
        """Name it for people: `NetworkPolicy default/firewall-web`."""
        return describe(self.kind, self.key)


def plan_children(
    children: Iterable[Child], surplus: Iterable[tuple[Kind, Manifest]]
) -> list[list[Step]]:
    """Plan children one after the other, in order, and then to delete what is wanted no more."""
    batches: list[list[Step]] = [[child.plan()] for child in children]
    deletions: list[Step] = [Delete.of(kind, manifest) for kind, manifest in surplus]
    return [*batches, deletions] if deletions else batches


def drop_empty(status: Manifest) -> Manifest:
    """Leave out what is empty, which says the same and is not sent back and forth."""
    return {name: value for name, value in status.items() if value not in ("", [], None)}


def show_users(users: Iterable[str]) -> Manifest:
    """Build the fields of a status that tell who uses an object."""
    names = list(users)
    return {"usedByCount": len(names), "usedBy": names[:USERS_SHOWN]}


def render_users(users: Iterable[str], limit: int = 3) -> str:
    """Render users for a message: `Instance a, Instance b and 2 more`."""
    names = list(users)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


def _marks(manifest: Manifest) -> Mapping[str, str]:
    return manifest["metadata"].get("annotations") or {}


def _says_the_same(kind: Kind, live: Manifest, wanted: Manifest) -> bool:
    if kind == NETWORK_ATTACHMENT_DEFINITION:
        return bool((live.get("spec") or {}).get("config") == wanted["spec"]["config"])
    return is_same_policy(live, wanted)
