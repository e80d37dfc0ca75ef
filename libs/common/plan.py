"""Steps: the writes that a plan asks for, as data.

A reconciler decides with pure functions which steps to take; `Context.execute` takes them. A step
is one write, and each is safe to repeat: a crash between any two of them is one more state to
reconcile from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from libs.common.kinds import Key, Kind, Manifest, describe, key_of, uid_of

type Propagation = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object that must not exist yet; its name is the lock.

    A name that is taken by an object of the same owner counts as done. Taken by anybody else, the
    step fails with `ForeignObject`, and nothing is changed.

    Attributes:
        kind: Kind of the object.
        manifest: The object.
        ours: Says whether an object that has the name already is ours; None goes by the UID of
            the controller.
        objection: Says what is wrong with the object as the API server stored it, such as a label
            that admission changed and without which the object would be replaced indefinitely;
            empty for nothing. An object that is objected to is deleted again, and the step fails
            with `Unacceptable`.
    """

    kind: Kind
    manifest: Manifest
    ours: Callable[[Manifest], bool] | None = None
    objection: Callable[[Manifest], str] | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        """Key of the object."""
        return key_of(self.manifest)

    def __str__(self) -> str:
        """Render for logs: `create Pod default/web-pod-0`."""
        return f"create {describe(self.kind, self.key)}"


@dataclass(frozen=True, slots=True)
class Apply:
    """Bring an object to a desired state by server-side apply, creating it when absent.

    Nothing is sent when the live object shows the desired state already. An object that exists and
    is controlled by another owner is never touched: the step fails with `ForeignObject`.

    Attributes:
        kind: Kind of the object.
        manifest: The object as it is to be.
        ours: Says whether an object that has the name already is ours; None goes by the UID of
            the controller.
    """

    kind: Kind
    manifest: Manifest
    ours: Callable[[Manifest], bool] | None = None

    @property
    def key(self) -> Key:
        """Key of the object."""
        return key_of(self.manifest)

    def __str__(self) -> str:
        """Render for logs: `apply PersistentVolumeClaim default/data`."""
        return f"apply {describe(self.kind, self.key)}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one incarnation of an object; another object of that name is left alone.

    Gone, or replaced by one of another UID, counts as done.
    """

    kind: Kind
    key: Key
    uid: str
    grace_seconds: int | None = None
    propagation: Propagation = "Background"

    @classmethod
    def of(cls, kind: Kind, manifest: Manifest, *, grace_seconds: int | None = None) -> Delete:
        """Build the deletion of exactly the given incarnation."""
        return cls(kind, key_of(manifest), uid_of(manifest), grace_seconds)

    def __str__(self) -> str:
        """Render for logs: `delete Pod default/web-pod-0`."""
        return f"delete {describe(self.kind, self.key)}"


@dataclass(frozen=True, slots=True)
class Patch:
    """Change fields of one incarnation by JSON patch, guarded by its UID.

    Meant for what server-side apply cannot say, such as adopting an object of somebody else. A
    `test` of the UID is put before the operations; `resource_version` adds one of the version.
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
    """Return which step failed and with what."""

    step: Step
    error: Exception

    @property
    def message(self) -> str:
        """What the API server said, or what is known of the trouble otherwise."""
        return str(getattr(self.error, "message", "") or self.error)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Return what became of the steps of a plan.

    Attributes:
        done: Steps that hold now, in the order in which they ended.
        failures: Steps that were refused, or whose answer was lost.
        skipped: Steps that were not tried because an earlier one failed.
    """

    done: tuple[Step, ...] = ()
    failures: tuple[StepFailure, ...] = ()
    skipped: tuple[Step, ...] = ()
    changed: int = field(default=0)
    """Number of requests that really changed something; no-op steps do not count."""

    @property
    def ok(self) -> bool:
        """Whether every step holds."""
        return not self.failures and not self.skipped

    def first_error(self) -> Exception | None:
        """Return the error of the first failed step, or None."""
        return self.failures[0].error if self.failures else None


def escape_pointer(name: str) -> str:
    """Write a name, such as that of a label, as one part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
