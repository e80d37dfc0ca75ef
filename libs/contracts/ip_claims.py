"""View of IPClaim, for operators that request addresses and wait until these are routed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from libs.common.conditions import READY
from libs.common.kinds import Key, Kind, Manifest, key_of
from libs.common.reading import (
    condition_at,
    holds_at,
    map_at,
    maps_at,
    text_at,
)

IPAM_GROUP: Final = "ipam.slipway.dev"
"""API group of pools, claims and the ledger."""
IP_POOL: Final = Kind(IPAM_GROUP, "v1alpha1", "IPPool", "ippools", namespaced=False)
"""A range of addresses that an administrator makes available."""
IP_CLAIM: Final = Kind(IPAM_GROUP, "v1alpha1", "IPClaim", "ipclaims")
"""A request for an address, which it keeps until deletion, and the target of that address."""
IP_ALLOCATION: Final = Kind(
    IPAM_GROUP, "v1alpha1", "IPAllocation", "ipallocations", namespaced=False
)
"""An entry of the ledger: which claim has which address."""


@dataclass(frozen=True, slots=True)
class IpClaimView:
    """The parts of an IPClaim that its creators use.

    Attributes:
        target: Object that the address is routed to, such as `Instance/web`; empty for none.
        ports: Ports of the address that are routed, such as `TCP 80`, or `all ports`.
        address: The address; empty until one is allocated. It never changes afterwards.
        secondary_address: The second address of a dual-stack claim.
        ready: Whether the claim has all addresses that it requests.
        bound: Whether the address is routed to its target.
        vmi_uid: UID of the VirtualMachineInstance that the address is routed to; empty for none.
        node: Node that the address is routed to; empty for none.
    """

    key: Key
    pool: str
    target: str
    ports: tuple[str, ...]
    address: str
    secondary_address: str
    ready: bool
    message: str
    bound: bool
    bound_message: str
    vmi_uid: str
    node: str

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a claim; invalid fields count as absent."""
        spec, status = map_at(manifest, "spec"), map_at(manifest, "status")
        name = text_at(spec, "target", "name") or text_at(spec, "target", "address")
        return cls(
            key=key_of(manifest),
            pool=text_at(spec, "poolRef", "name"),
            target=f"{text_at(spec, 'target', 'kind')}/{name}" if name else "",
            ports=_list_ports(spec),
            address=text_at(status, "address"),
            secondary_address=text_at(status, "secondaryAddress"),
            ready=holds_at(manifest, READY),
            message=text_at(condition_at(manifest, READY), "message"),
            bound=holds_at(manifest, "Bound"),
            bound_message=text_at(condition_at(manifest, "Bound"), "message"),
            vmi_uid=text_at(status, "binding", "vmiUID"),
            node=text_at(status, "binding", "nodeName"),
        )


def _list_ports(spec: Mapping[str, object]) -> tuple[str, ...]:
    if text_at(spec, "traffic") == "All":
        return ("all ports",)
    return tuple(
        f"{text_at(port, 'protocol') or 'TCP'} {port.get('port')}"
        for port in maps_at(spec, "ports")
    )
