"""Directives: what is to be done to the machine that runs now, a part of Instance."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.contracts.images import Image
from libs.common.crd import DnsSubdomain, KubernetesModel, ListMap, LongText, Rule, Uid, Waive


class DirectiveKind(StrEnum):
    """DirectiveKind says what a directive is about."""

    RESTART = "Restart"
    ROOT_DISK = "RootDisk"


class DiskUse(StrEnum):
    """DiskUse says how far a RootDisk directive goes."""

    PREPARE = "Prepare"
    BOOT = "Boot"


class DirectiveState(StrEnum):
    """DirectiveState says what became of a directive."""

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
    """Directive says what is to be done to the machine; it is harmless to repeat.

    Nothing is remembered of a directive but what it made: a Restart names the run that is to end,
    and a RootDisk names the disk to boot from.
    """

    kind: DirectiveKind
    """kind is Restart or RootDisk."""
    token: Annotated[str, Field(min_length=1, max_length=64)]
    """token is repeated in the status; an Operation puts its UID there."""
    vmi_uid: Annotated[Uid | None, Field(alias="vmiUID")] = None
    """vmiUID is the run that is to end; another one is left alone."""
    disk: DnsSubdomain | None = None
    """disk is the name of the root disk to make and to boot from."""
    image: Image | None = None
    """image is what the disk is filled with when it is made (default: that of the spec)."""
    use: DiskUse = DiskUse.BOOT
    """use is Prepare to make the disk while the machine runs, Boot to boot from it."""
    attach: DnsSubdomain | None = None
    """attach is another root disk, to be repaired: a further disk while the machine boots from
    disk."""


Directives = Annotated[list[Directive], ListMap("kind"), Field(max_length=4)]
"""Directives, at most one of each kind."""


class DirectiveStatus(KubernetesModel):
    """DirectiveStatus says what became of a directive."""

    kind: DirectiveKind
    """kind is that of the directive."""
    token: Annotated[str, Field(max_length=64)]
    """token is that of the directive."""
    state: Annotated[
        DirectiveState, Waive("no-phase", "the status of a directive has one of three values")
    ]
    """state is InProgress, Done or Failed."""
    message: LongText = ""
    """message is for people."""
