"""Steps: the writes of a plan, as data.

A reconciler decides with pure functions which steps to take; `Context.execute` takes them. A step
is one write, and each is safe to repeat: a crash between two steps leaves a state from which the
next reconcile continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from libs.common.kinds import Key, Kind, Manifest, describe, key_of, uid_of

type Propagation = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object that must not exist yet; its name is the lock.

    If an object of the same owner has the name, the step counts as done. If the object belongs to
    somebody else, the step fails with `ForeignObject`, and nothing is changed.

    Attributes:
        kind: Kind of the object.
        ours: Returns whether an existing object with the name is ours; None compares the UID of the
            controller.
        objection: Returns what is wrong with the stored object, or an empty text. For example,
            admission may have changed a label without which the object would be replaced again and
            again. If there is an objection, the object is deleted again and the step fails with
            `MutatedByAdmission`.
        inherits: Whether a child that an earlier incarnation of the owner has left is adopted as it
            is (`ownership.is_former_child`). For objects that hold data, keys or an address.
    """

    kind: Kind
    manifest: Manifest
    ours: Callable[[Manifest], bool] | None = None
    objection: Callable[[Manifest], str] | None = field(default=None, compare=False)
    inherits: bool = False

    @property
    def key(self) -> Key:
        """Key of the object."""
        return key_of(self.manifest)

    def __str__(self) -> str:
        """Render for logs: `create Pod default/web-pod-0`."""
        return f"create {describe(self.kind, self.key)}"


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the desired state of an object by server-side apply, or create the object.

    Nothing is sent if the live object matches the desired state. An existing object with another
    controller is never changed: the step fails with `ForeignObject`. A child that an earlier
    incarnation of the owner has left is adopted first (`ownership.is_former_child`).

    Attributes:
        kind: Kind of the object.
        ours: Returns whether an existing object with the name is ours; None compares the UID of the
            controller.
        version: Resource version of the object that the manifest was planned from, if the manifest
            copies live values; empty for any. The step fails with `Conflict` if the object has
            changed since, so that the change of somebody else is not undone.
        force: Whether fields that another manager owns are taken over; otherwise the step fails
            with `Conflict`.
    """

    kind: Kind
    manifest: Manifest
    ours: Callable[[Manifest], bool] | None = None
    version: str = ""
    force: bool = True

    @property
    def key(self) -> Key:
        """Key of the object."""
        return key_of(self.manifest)

    def __str__(self) -> str:
        """Render for logs: `apply PersistentVolumeClaim default/data`."""
        return f"apply {describe(self.kind, self.key)}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one incarnation of an object, but no other object with its name.

    If the object no longer exists or has another UID, the step counts as done.

    `resource_version` makes the step fail if the object has changed.
    """

    kind: Kind
    key: Key
    uid: str
    grace_seconds: int | None = None
    propagation: Propagation = "Background"
    resource_version: str = ""

    @classmethod
    def of(cls, kind: Kind, manifest: Manifest, *, grace_seconds: int | None = None) -> Delete:
        """Build the step that deletes exactly the given incarnation."""
        return cls(kind, key_of(manifest), uid_of(manifest), grace_seconds)

    def __str__(self) -> str:
        """Render for logs: `delete Pod default/web-pod-0`."""
        return f"delete {describe(self.kind, self.key)}"


@dataclass(frozen=True, slots=True)
class Patch:
    """Change fields of one incarnation by JSON patch, guarded by its UID.

    For changes that server-side apply cannot express, such as adopting an object. A `test` of the
    UID is added before the operations; `resource_version` adds a test of the version.
    """

    kind: Kind
    key: Key
    uid: str
    operations: Sequence[Mapping[str, Any]]
    resource_version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """Render for logs: `patch Pod default/web-pod-0`."""
        return f"patch {describe(self.kind, self.key)}"


type Step = Create | Apply | Delete | Patch


@dataclass(frozen=True, slots=True)
class StepFailure:
    """A failed step and its error."""

    step: Step
    error: Exception

    @property
    def message(self) -> str:
        """The message of the API server, or the text of the error."""
        return str(getattr(self.error, "message", "") or self.error)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the steps of a plan.

    Attributes:
        done: Steps that succeeded or had no effect, in the order of completion.
        failures: Steps that were refused, or whose response was lost.
        skipped: Steps that were not tried because an earlier step failed.
    """

    done: tuple[Step, ...] = ()
    failures: tuple[StepFailure, ...] = ()
    skipped: tuple[Step, ...] = ()
    changed: int = field(default=0)
    """Number of requests that changed something; steps without effect do not count."""

    @property
    def ok(self) -> bool:
        """Whether every step succeeded."""
        return not self.failures and not self.skipped

    def first_error(self) -> Exception | None:
        """Return the error of the first failed step, or None."""
        return self.failures[0].error if self.failures else None


def escape_pointer(name: str) -> str:
    """Escape a name, such as the key of a label, for a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def annotate(held: Collection[str], name: str, value: str) -> Manifest:
    """Build the operation of a JSON patch that sets an annotation; an empty value removes it."""
    if value and not held:
        return {"op": "add", "path": "/metadata/annotations", "value": {name: value}}
    path = f"/metadata/annotations/{escape_pointer(name)}"
    return {"op": "add", "path": path, "value": value} if value else {"op": "remove", "path": path}
