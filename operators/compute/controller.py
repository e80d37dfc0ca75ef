"""The operator: its controllers, one of Instances and one of Operations."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import PV, SECRET
from libs.common.rbac import grant
from libs.common.runtime import Operator
from libs.contracts.kubevirt import RUNNING_MACHINE_ACTIONS
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT_CONTENT
from operators.compute.api.instance import INSTANCE
from operators.compute.instance.controller import build_instances
from operators.compute.metrics import METRICS
from operators.compute.naming import OPERATOR_ID
from operators.compute.operation.controller import build_operations
from operators.compute.settings import Settings

OPERATOR: Final = Operator(
    OPERATOR_ID,
    (build_instances, build_operations),
    settings=Settings,
    permissions=(
        grant(INSTANCE, "update", subresource="finalizers", why="own children"),
        grant(MACHINE_SNAPSHOT_CONTENT, "get", why="find the disk in a snapshot that is restored"),
        grant(
            RUNNING_MACHINE_ACTIONS,
            "update",
            subresource="softreboot",
            why="ask a guest to reboot",
        ),
        grant(PV, "get", why="create root disks where the further volumes of a machine are"),
        # Neither list nor watch: users' Secrets are named to KubeVirt and never read.
        grant(SECRET, "get", "create", "patch", why="manage the Secrets with the user data"),
    ),
    metrics=METRICS,
    summary="Runs virtual machines through KubeVirt and carries out operations on them.",
)
"""The operator, which the process and the tests run."""
