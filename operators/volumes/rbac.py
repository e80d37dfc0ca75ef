"""What the volumes operator may do."""

from libs.common.contracts.snapshots import VOLUME_SNAPSHOT
from libs.common.kinds import POD, PVC, STORAGE_CLASS
from libs.common.rbac import PolicyRule, children, own, reads
from operators.volumes.api.v1alpha1 import DEMO_VOLUME

RULES: tuple[PolicyRule, ...] = (
    *own(DEMO_VOLUME),
    *children(PVC, "create", "patch", "delete", why="keep the claims of DemoVolumes"),
    *children(VOLUME_SNAPSHOT, "create", why="take the last snapshot under reclaimPolicy Snapshot"),
    *reads(POD, why="tell which pods use a volume"),
    *reads(STORAGE_CLASS, why="tell whether volumes may grow, and whether they wait for a pod"),
)
"""Rules of the operator itself; those of the framework are added by the generator."""
