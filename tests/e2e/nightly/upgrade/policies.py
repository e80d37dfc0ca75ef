"""What the NetworkPolicies of machines let through, at every moment of an upgrade."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from libs.common.errors import ApiError, Unreachable
from libs.common.kinds import NETWORK_POLICY, POD, Manifest, uid_of
from libs.common.labels import matches_selector
from operators.network.api.v1alpha1.firewall import Direction, Protocol
from operators.network.firewall.packets import Packet, Pod, passes_policy
from tests.e2e.nightly.upgrade.users import FIRST, Place

_MACHINE: Final = FIRST
_CONTROL_PLANE: Final = f"{FIRST}-control-plane-0"
_WORKER: Final = f"{FIRST}-web-0"
_OFFICE: Final = "192.0.2.7"
_INTERNET: Final = "198.51.100.7"


@dataclass(frozen=True)
class Flow:
    """The first packet of a connection to or from a machine.

    Attributes:
        machine: The machine.
        port: Destination port.
        other: Address at the other end, or the machine there.
        passes: Whether the packet passes.
        direction: Ingress to the machine, or Egress from it.
    """

    machine: str
    port: int
    other: str
    passes: bool
    direction: Direction = Direction.INGRESS


FLOWS: Final = (
    Flow(_MACHINE, 22, _OFFICE, passes=True),
    Flow(_MACHINE, 22, _INTERNET, passes=False),
    Flow(_MACHINE, 80, _OFFICE, passes=False),
    Flow(_MACHINE, 22, _WORKER, passes=False),
    Flow(_MACHINE, 443, _INTERNET, passes=True, direction=Direction.EGRESS),
    Flow(_CONTROL_PLANE, 6443, _INTERNET, passes=True),
    Flow(_CONTROL_PLANE, 2379, _INTERNET, passes=False),
    Flow(_CONTROL_PLANE, 2379, _MACHINE, passes=False),
    Flow(_CONTROL_PLANE, 10250, _WORKER, passes=True),
    Flow(_WORKER, 10250, _CONTROL_PLANE, passes=True),
    Flow(_WORKER, 10250, _INTERNET, passes=False),
)
"""Connections that pass, and connections that do not, with the firewalls of the users."""


class PolicyWatch:
    """Evaluates all flows after every change of a NetworkPolicy."""

    def __init__(self, place: Place) -> None:
        self.faults: list[str] = []
        """Flows that passed although they must not, or did not pass although they must."""
        self._place = place
        self._pods: dict[str, Manifest] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Find the pods of the machines, and begin if it has not begun."""
        if self._task is not None:
            return
        pods = (await self._place.cluster.client.list(POD, self._place.namespace)).items
        for machine in (_MACHINE, _CONTROL_PLANE, _WORKER):
            prefix = f"virt-launcher-{machine}-"
            (self._pods[machine],) = (
                pod
                for pod in pods
                if pod["metadata"]["name"].startswith(prefix)
                # The suffix is random and has no dash.
                and "-" not in pod["metadata"]["name"].removeprefix(prefix)
            )
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def check(self) -> None:
        """Check that no flow changed."""
        assert self._task is not None and not self._task.done(), "policies are watched"
        assert not self.faults, self.faults

    async def _watch(self) -> None:
        client, namespace = self._place.cluster.client, self._place.namespace
        while True:
            listing = await client.list(NETWORK_POLICY, namespace)
            policies = {uid_of(policy): policy for policy in listing.items}
            self._evaluate(policies.values(), "list")
            with suppress(ApiError, Unreachable):
                async for event in client.watch(
                    NETWORK_POLICY, namespace, resource_version=listing.resource_version
                ):
                    if event.type == "BOOKMARK":
                        continue
                    policies[uid_of(event.object)] = event.object
                    if event.type == "DELETED":
                        del policies[uid_of(event.object)]
                    name = event.object["metadata"]["name"]
                    self._evaluate(policies.values(), f"{event.type} {name}")

    def _evaluate(self, policies: Iterable[Mapping[str, Any]], change: str) -> None:
        held = list(policies)
        for flow in FLOWS:
            if self._passes(held, flow) != flow.passes:
                self.faults.append(f"{change}: {flow}")

    def _passes(self, policies: Iterable[Mapping[str, Any]], flow: Flow) -> bool:
        labels = self._pods[flow.machine]["metadata"]["labels"]
        other = self._pods.get(flow.other)
        address = other["status"]["podIP"] if other else flow.other
        packet = Packet(
            flow.direction,
            Protocol.TCP,
            flow.port,
            ip_address(address),
            Pod(other["metadata"]["labels"]) if other else None,
        )
        selecting = [
            policy
            for policy in policies
            if str(flow.direction) in policy["spec"]["policyTypes"]
            and matches_selector(policy["spec"]["podSelector"], labels)
        ]
        return not selecting or any(passes_policy(policy, packet) for policy in selecting)
