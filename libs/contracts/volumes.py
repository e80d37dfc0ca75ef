"""View of DemoVolume, for operators that mount volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from libs.common.conditions import READY
from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import condition_at, holds_at, text_at

DEMO_VOLUME: Final = Kind("storage.slipway.dev", "v1alpha1", "DemoVolume", "demovolumes")
"""Optional kind: check that the cluster serves it before requesting its objects."""


@dataclass(frozen=True, slots=True)
class DemoVolumeView:
    """The parts of a DemoVolume that operators use to mount it.

    Attributes:
        claim: Name of the claim that it controls; empty before there is one.
        ready: Whether the claim can be mounted and has the requested size.
    """

    key: Key
    uid: str
    deleting: bool
    claim: str
    ready: bool
    message: str

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a volume; invalid fields count as absent."""
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            claim=text_at(manifest, "status", "pvcRef", "name"),
            ready=holds_at(manifest, READY),
            message=text_at(condition_at(manifest, READY), "message"),
        )
