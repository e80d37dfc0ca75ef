"""What the compute operator may do."""

from libs.common.contracts.cdi import DATA_VOLUME
from libs.common.contracts.ip_claims import IP_CLAIM
from libs.common.contracts.kubevirt import (
    RUNNING_MACHINE_ACTIONS,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.common.contracts.machine_snapshots import MACHINE_SNAPSHOT, MACHINE_SNAPSHOT_CONTENT
from libs.common.contracts.network import FIREWALL, NETWORK
from libs.common.contracts.volumes import DEMO_VOLUME
from libs.common.kinds import LEASE, NODE, POD, PVC, SECRET
from libs.common.rbac import PolicyRule, children, grant, own, reads
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE

RULES: tuple[PolicyRule, ...] = (
    *own(INSTANCE),
    *own(OPERATION),
    grant(OPERATION, "delete", why="delete finished Operations for their age"),
    *children(LEASE, "create", "delete", why="let one Operation at a time have an Instance"),
    *children(
        VIRTUAL_MACHINE_INSTANCE_MIGRATION, "create", "delete", why="move guests, or give that up"
    ),
    *children(MACHINE_SNAPSHOT, "create", "delete", why="take snapshots, or give that up"),
    grant(MACHINE_SNAPSHOT_CONTENT, "get", why="find the disk in a snapshot that is restored"),
    grant(
        RUNNING_MACHINE_ACTIONS,
        "update",
        subresource="softreboot",
        why="ask a guest to reboot",
    ),
    *reads(INSTANCE_SIZE, why="know how much a machine gets"),
    *children(VIRTUAL_MACHINE, "create", "patch", "delete", why="keep the machines of Instances"),
    *children(VIRTUAL_MACHINE_INSTANCE, "delete", why="end exactly the run that is to be rebooted"),
    *children(DATA_VOLUME, "create", "patch", "delete", why="keep the root disks of Instances"),
    *children(IP_CLAIM, "create", "patch", "delete", why="ask for public addresses"),
    *children(PVC, "patch", "delete", why="root disks whose DataVolume was collected, and volumes"),
    # Neither list nor watch: users' Secrets are named to KubeVirt and never read.
    grant(SECRET, "get", "create", "patch", why="keep the Secrets with the first settings"),
    *reads(NETWORK, why="start no machine before its network stands"),
    *reads(FIREWALL, why="start no machine before its firewall stands"),
    *reads(DEMO_VOLUME, why="find the claims of further volumes"),
    *reads(POD, why="report the addresses of launcher pods"),
    *reads(NODE, why="tell when the node of a machine is silent"),
)
"""Rules of the operator itself; those of the framework are added by the generator."""
