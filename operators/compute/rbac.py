"""What the compute operator may do."""

from libs.common.kinds import LEASE, NODE, POD, PVC, SECRET
from libs.common.rbac import PolicyRule, children, grant, own, reads
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.instancetypes import (
    CLUSTER_INSTANCETYPE,
    CLUSTER_PREFERENCE,
    INSTANCETYPE,
    PREFERENCE,
)
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import (
    RUNNING_MACHINE_ACTIONS,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT, MACHINE_SNAPSHOT_CONTENT
from libs.contracts.network import FIREWALL, NETWORK
from libs.contracts.volumes import DEMO_VOLUME
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.api.size import INSTANCE_SIZE

RULES: tuple[PolicyRule, ...] = (
    *own(INSTANCE),
    *own(OPERATION),
    grant(OPERATION, "delete", why="delete finished Operations after their time to live"),
    *children(LEASE, "create", "delete", why="lock an Instance for one Operation at a time"),
    *children(
        VIRTUAL_MACHINE_INSTANCE_MIGRATION, "create", "delete", why="start and cancel migrations"
    ),
    *children(MACHINE_SNAPSHOT, "create", "delete", why="create and cancel snapshots"),
    grant(MACHINE_SNAPSHOT_CONTENT, "get", why="find the disk in a snapshot that is restored"),
    grant(
        RUNNING_MACHINE_ACTIONS,
        "update",
        subresource="softreboot",
        why="ask a guest to reboot",
    ),
    *reads(INSTANCE_SIZE, why="read the sizes of machines"),
    *children(VIRTUAL_MACHINE, "create", "patch", "delete", why="manage the machines of Instances"),
    *children(VIRTUAL_MACHINE_INSTANCE, "delete", why="delete one run of a machine by its UID"),
    *children(DATA_VOLUME, "create", "patch", "delete", why="manage the root disks of Instances"),
    *children(IP_CLAIM, "create", "patch", "delete", why="claim public addresses"),
    *children(
        PVC,
        "patch",
        "delete",
        why="manage root disks whose DataVolume was garbage-collected, and find volumes",
    ),
    # Neither list nor watch: users' Secrets are named to KubeVirt and never read.
    grant(SECRET, "get", "create", "patch", why="manage the Secrets with the user data"),
    *reads(CLUSTER_INSTANCETYPE, why="find the instancetypes that Instances name"),
    *reads(INSTANCETYPE, why="find the instancetypes that Instances name"),
    *reads(CLUSTER_PREFERENCE, why="find the preferences that Instances name"),
    *reads(PREFERENCE, why="find the preferences that Instances name"),
    *reads(NETWORK, why="start machines only when their network is ready"),
    *reads(FIREWALL, why="start machines only when their firewall is ready"),
    *reads(DEMO_VOLUME, why="find the claims of further volumes"),
    *reads(POD, why="report the addresses of launcher pods"),
    *reads(NODE, why="detect nodes that do not report"),
)
"""Rules of the operator itself; the generator adds the rules of the framework."""
