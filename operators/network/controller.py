"""The network operator: the controllers of Network and Firewall in one process."""

from __future__ import annotations

from typing import Final

from libs.common.runtime import Operator
from operators.network.firewall.controller import build_controller as build_firewall_controller
from operators.network.metrics import METRICS
from operators.network.naming import OPERATOR_ID
from operators.network.network.controller import build_controller as build_network_controller
from operators.network.settings import Settings

OPERATOR: Final = Operator(
    OPERATOR_ID,
    (build_network_controller, build_firewall_controller),
    settings=Settings,
    metrics=METRICS,
    summary=(
        "Isolates instances, allows only the traffic that firewalls permit, and resolves routes."
    ),
)
"""The operator, which the process and the tests run."""
