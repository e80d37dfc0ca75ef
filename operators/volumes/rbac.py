"""What the volumes operator may do."""

from libs.common.kinds import POD, PVC, STORAGE_CLASS
from libs.common.rbac import PolicyRule, children, own, reads
from libs.contracts.snapshots import VOLUME_SNAPSHOT
from operators.volumes.api.v1alpha1 import DEMO_VOLUME

RULES: tuple[PolicyRule, ...] = (
    *own(DEMO_VOLUME),
    *children(PVC, "create", "patch", "delete", why="manage the claims of DemoVolumes"),
    *children(VOLUME_SNAPSHOT, "create", why="take the last snapshot under reclaimPolicy Snapshot"),
    *reads(POD, why="find the pods that use a volume"),
    *reads(STORAGE_CLASS, why="check whether volumes can grow, and whether they wait for a pod"),
)
"""Rules of the operator itself; those of the framework are added by the generator."""
