"""Directives: requests to change the running machine, a part of Instance."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.crd import DnsSubdomain, KubernetesModel, ListMap, LongText, Rule, Uid, Waive
from libs.contracts.images import Image


class DirectiveKind(StrEnum):
    """DirectiveKind is the kind of change that a directive requests."""

    RESTART = "Restart"
    ROOT_DISK = "RootDisk"


class DiskUse(StrEnum):
    """DiskUse is what a RootDisk directive does with the disk."""

    PREPARE = "Prepare"
    BOOT = "Boot"


class DirectiveState(StrEnum):
    """DirectiveState is the progress of a directive."""

    IN_PROGRESS = "InProgress"
    DONE = "Done"
    FAILED = "Failed"


class Directive(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.vmiUID) == (self.kind == 'Restart')",
            "vmiUID is required if kind is Restart and forbidden otherwise",
        ),
        Rule(
            "has(self.disk) == (self.kind == 'RootDisk')",
            "disk is required if kind is RootDisk and forbidden otherwise",
        ),
        Rule(
            "self.kind == 'RootDisk' || !has(self.image)",
            "image may be set only if kind is RootDisk",
        ),
        Rule(
            "self.kind == 'RootDisk' || !has(self.attach)",
            "attach may be set only if kind is RootDisk",
        ),
    ),
):
    """Directive is a request to change the machine. It is idempotent.

    The operator stores nothing about a directive except its result: a Restart names the run to end,
    and a RootDisk names the disk to boot from.
    """

    kind: DirectiveKind
    """kind is Restart or RootDisk."""
    token: Annotated[str, Field(min_length=1, max_length=64)]
    """token is copied to the status. Operations use their UID."""
    vmi_uid: Annotated[Uid | None, Field(alias="vmiUID")] = None
    """vmiUID is the run to end. Any other run is not changed."""
    disk: DnsSubdomain | None = None
    """disk is the name of the root disk to create and to boot from."""
    image: Image | None = None
    """image is the image of the new disk. Defaults to spec.image."""
    use: DiskUse = DiskUse.BOOT
    """use is Prepare to create the disk while the machine runs, or Boot to boot from it."""
    attach: DnsSubdomain | None = None
    """attach is another root disk to attach as an additional disk when the machine boots, so that
    it can be repaired. A new disk is then created on the node of the machine."""


Directives = Annotated[list[Directive], ListMap("kind"), Field(max_length=4)]
"""Directives, at most one of each kind."""


class DirectiveStatus(KubernetesModel):
    """DirectiveStatus is the state of a directive."""

    kind: DirectiveKind
    """kind is the kind of the directive."""
    token: Annotated[str, Field(max_length=64)]
    """token is the token of the directive."""
    state: Annotated[
        DirectiveState, Waive("no-phase", "the status of a directive has one of three values")
    ]
    """state is InProgress, Done or Failed."""
    message: LongText = ""
    """message describes the state for people."""
