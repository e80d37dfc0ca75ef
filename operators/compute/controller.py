"""The operator: its controllers, one of Instances and one of Operations."""

from __future__ import annotations

from typing import Final

from libs.common.runtime import Operator
from operators.compute.instance.controller import build_instances
from operators.compute.metrics import METRICS
from operators.compute.naming import OPERATOR as ID
from operators.compute.operation.controller import build_operations
from operators.compute.settings import Settings

OPERATOR: Final = Operator(
    ID,
    (build_instances, build_operations),
    settings=Settings,
    metrics=METRICS,
    summary="Runs virtual machines through KubeVirt and carries out operations on them.",
)
"""The operator, as the process and the tests run it."""
