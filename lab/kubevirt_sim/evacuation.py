"""The evacuation controller: an instance that should leave its node is migrated. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lab.kubevirt_sim.launcher import short_hash
from lab.kubevirt_sim.migration import FINAL
from libs.common.kinds import Manifest, build_object, is_deleting, key_of, uid_of
from libs.common.plan import Create
from libs.common.reading import holds_at, text_at
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE_MIGRATION, VmiPhase
from libs.contracts.migrations import MIGRATED_INSTANCE

PREFIX: Final = "kubevirt-evacuation-"
_STRATEGIES: Final = ("LiveMigrate", "LiveMigrateIfPossible")


def build_evacuation(vmi: Manifest, migrations: Sequence[Manifest]) -> Create | None:
    """Build the migration away from the node that an instance should leave; None for none."""
    node = text_at(vmi, "status", "evacuationNodeName")
    here = text_at(vmi, "status", "nodeName")
    strategy = text_at(vmi, "spec", "evictionStrategy")
    if not node or node != here or strategy not in _STRATEGIES or is_deleting(vmi):
        return None
    if text_at(vmi, "status", "phase") != VmiPhase.RUNNING or not holds_at(vmi, "LiveMigratable"):
        return None
    if any(text_at(each, "status", "phase") not in FINAL for each in migrations):
        return None
    key = key_of(vmi)
    # KubeVirt lets the server name it; a name that follows from the tries so far is repeatable.
    name = PREFIX + short_hash(uid_of(vmi), node, str(len(migrations)))
    kind = VIRTUAL_MACHINE_INSTANCE_MIGRATION
    manifest: Manifest = build_object(
        kind,
        name,
        key.namespace,
        metadata={
            "labels": {MIGRATED_INSTANCE: key.name},
            "annotations": {"kubevirt.io/evacuationMigration": node},
        },
        spec={"vmiName": key.name},
    )
    return Create(kind, manifest, ours=lambda _: True)
