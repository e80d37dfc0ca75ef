"""The source of the public address of a machine, a part of Instance."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.crd import DnsLabel, DnsSubdomain, KubernetesModel, ListMap, Rule
from operators.compute.api.probes import PortNumber


class PublicIPMode(StrEnum):
    """PublicIPMode is the source of a public address."""

    NONE = "None"
    AUTO = "Auto"
    CLAIM = "Claim"


class PublicTraffic(StrEnum):
    """PublicTraffic defines which packets to the public address are routed to the machine."""

    PORTS = "Ports"
    ALL = "All"


class Protocol(StrEnum):
    """Protocol is the transport protocol of a port."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


class PublicPort(KubernetesModel):
    """PublicPort is a port of the public address that is routed to the machine."""

    name: Annotated[DnsLabel, Field(max_length=15)]
    """name is the name of the port, unique in the list."""
    protocol: Protocol = Protocol.TCP
    """protocol is TCP, UDP or SCTP. Defaults to TCP."""
    port: PortNumber
    """port is the port of the public address."""
    target_port: PortNumber | None = None
    """targetPort is the port of the machine. Defaults to port."""


class PublicIP(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.poolName) == (self.mode == 'Auto')",
            "poolName is required if mode is Auto and forbidden otherwise",
        ),
        Rule(
            "has(self.claimName) == (self.mode == 'Claim')",
            "claimName is required if mode is Claim and forbidden otherwise",
        ),
        Rule(
            "!has(self.ports) || self.mode == 'Auto'",
            "ports may be set only if mode is Auto; for mode Claim, set spec.ports of the IPClaim",
        ),
        Rule(
            "!has(self.traffic) || self.traffic != 'All' || self.mode == 'Auto'",
            "traffic may be All only if mode is Auto; for mode Claim, set spec.traffic of the "
            "IPClaim",
        ),
        Rule(
            "!has(self.traffic) || self.traffic != 'All' || !has(self.ports) || "
            "size(self.ports) == 0",
            "ports must be empty if traffic is All",
        ),
        Rule(
            "!has(self.poolName) || !has(oldSelf.poolName) || self.poolName == oldSelf.poolName",
            "poolName is immutable while mode is Auto; to get an address of "
            "another pool, set mode to None first",
        ),
    ),
):
    """PublicIP defines the source of the public address."""

    mode: PublicIPMode = PublicIPMode.NONE
    """mode is None, Auto (the operator creates an IPClaim) or Claim (the IPClaim exists)."""
    pool_name: DnsSubdomain | None = None
    """poolName is the IPPool of the address in mode Auto."""
    claim_name: DnsSubdomain | None = None
    """claimName is the IPClaim of mode Claim; its spec.target must be this Instance."""
    traffic: PublicTraffic | None = None
    """traffic is Ports, or All to route every port and ICMP to the machine and to send the traffic
    of the machine with this address, for mode Auto. All needs the setting `cozyProxy` of ipam.
    Defaults to Ports."""
    ports: Annotated[list[PublicPort], ListMap("name"), Field(max_length=64)] | None = None
    """ports are the ports of the address that are routed to the machine, for mode Auto. Without
    any, the address is allocated and nothing is routed. If unset, the ports of the IPClaim stay as
    they are."""
