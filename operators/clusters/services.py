"""Services of type LoadBalancer of a managed cluster, as its own API reports them. Pure.

Whoever is root in the cluster chooses what its API returns, so a Service counts only with valid
names, and everything else about it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import Any, ClassVar, Final, Self

from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import condition_at, int_at, map_at, maps_at, text_at, texts_at
from operators.clusters.naming import OPERATOR_ID, PUBLISHED, exposure_name

PORTS_LIMIT: Final = 16
"""Maximum number of ports of a Service: the ports of one rule of a Firewall."""
_CIDRS_LIMIT: Final = 64
_MOST_WAITING: Final = 50
"""Maximum number of Services without an address that are told why."""
MESSAGE_LIMIT: Final = 1_000
"""Maximum length of a text that the operator keeps or writes."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PROTOCOLS: Final = frozenset({"TCP", "UDP", "SCTP"})


@dataclass(frozen=True, slots=True)
class ExposedPort:
    """A port of an address, and the port of the nodes to which it leads."""

    protocol: str
    port: int
    node_port: int

    def __str__(self) -> str:
        """Render for messages: `TCP 80`."""
        return f"{self.protocol} {self.port}"


@dataclass(frozen=True, slots=True)
class GuestService:
    """A view of a Service of type LoadBalancer in the managed cluster.

    Attributes:
        key: Its namespace and name in the managed cluster.
        ports: Its ports that nodes serve.
        cidrs: Addresses of the clients that it accepts; empty for all.
        problem: Why it gets no address; empty if it can get one.
        is_local: Whether only nodes with one of its endpoints serve it.
        nodes: Names of these nodes; empty for other Services.
        families: Its address families: IPv4, IPv6 or both; empty if unknown.
        published: Addresses in its status that the operator wrote.
        message: Message of our condition in its status; empty if it has none.
    """

    key: Key
    uid: str
    ports: tuple[ExposedPort, ...] = ()
    cidrs: tuple[str, ...] = ()
    problem: str = ""
    is_local: bool = False
    nodes: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()
    published: tuple[str, ...] = ()
    message: str = ""

    @classmethod
    def parse(cls, manifest: Manifest) -> Self | None:
        """Parse a Service; None if it needs no address from the operator."""
        key, spec = key_of(manifest), map_at(manifest, "spec")
        named = _NAME.fullmatch(key.name) and _NAME.fullmatch(key.namespace)
        if not named or is_deleting(manifest) or text_at(spec, "type") != "LoadBalancer":
            return None
        if text_at(spec, "loadBalancerClass"):
            return None
        ports, cidrs = tuple(_list_ports(spec)), tuple(_list_cidrs(spec))
        shown = maps_at(manifest, "status", "loadBalancer", "ingress")[:2]
        rival = _find_rival(manifest) if shown else ""
        return cls(
            key,
            uid_of(manifest)[:MESSAGE_LIMIT],
            ports[:PORTS_LIMIT],
            cidrs,
            rival or _find_problem(spec, ports, cidrs),
            text_at(spec, "externalTrafficPolicy") == "Local",
            families=frozenset(texts_at(spec, "ipFamilies")) & {"IPv4", "IPv6"},
            published=() if rival else tuple(text_at(each, "ip")[:64] for each in shown),
            message=text_at(condition_at(manifest, PUBLISHED), "message")[:MESSAGE_LIMIT],
        )

    def is_served_at(self, address: str) -> bool:
        """Return whether a node with an address can serve it; False for an empty address."""
        family = "IPv6" if ":" in address else "IPv4"
        return bool(address) and (not self.families or family in self.families)


@dataclass(frozen=True, slots=True)
class Admission:
    """Which Services of a cluster can get an address.

    Attributes:
        limit: Maximum number of Services with an address.
        held: Names of the existing IPClaims of Services, which come before others.
    """

    cluster: str
    limit: int
    held: frozenset[str] = frozenset()

    def admit(self, services: Iterable[GuestService]) -> tuple[GuestService, ...]:
        """Return Services in their order, with a problem for those beyond the limit."""
        ordered = sorted(services, key=lambda each: (self._is_new(each), str(each.key)))
        problem = (
            f"the {self.limit} addresses of spec.loadBalancers.limit of KubernetesCluster "
            f"{self.cluster} are in use; delete another Service of type LoadBalancer, or raise "
            "the limit"
        )
        admitted, count = [], 0
        for each in ordered:
            is_new = self._is_new(each)
            # A Service that has an address keeps it, whatever problem it gets.
            count += not (is_new and each.problem)
            over = count > self.limit and is_new and not each.problem
            admitted.append(replace(each, problem=problem) if over else each)
        return tuple(admitted[: len(self.held) + self.limit + _MOST_WAITING])

    def _is_new(self, service: GuestService) -> bool:
        return exposure_name(self.cluster, service.key) not in self.held


@dataclass(frozen=True, slots=True)
class Publish:
    """A step that writes the address of a Service to its status.

    Attributes:
        address: Its address; empty for none.
        message: Message of the condition; empty to remove all that the operator wrote.
        is_routed: Whether the address routes traffic to it.
    """

    service: Key
    uid: str
    address: str = ""
    message: str = ""
    is_routed: bool = False
    kind: ClassVar[str] = "Publish"
    node: ClassVar[str] = ""

    def __str__(self) -> str:
        """Render for logs: `publish the address of Service shop/web`."""
        return f"publish the address of Service {self.service}"

    def render(self, moment: str) -> Manifest:
        """Render the status for server-side apply."""
        condition = {
            "type": PUBLISHED,
            "status": str(self.is_routed),
            "reason": "Routed" if self.is_routed else "NotRouted",
            "message": self.message,
            "lastTransitionTime": moment,
        }
        status: Manifest = {"conditions": [condition]} if self.message else {}
        if self.address:
            status["loadBalancer"] = {"ingress": [{"ip": self.address}]}
        return status


def list_serving_nodes(slices: Iterable[Manifest]) -> Iterable[str]:
    """Yield the names of the nodes with a ready endpoint."""
    for each in slices:
        for endpoint in maps_at(each, "endpoints"):
            if map_at(endpoint, "conditions").get("ready") is not False:
                yield text_at(endpoint, "nodeName")[:MESSAGE_LIMIT]


def _list_ports(spec: Mapping[str, Any]) -> Iterable[ExposedPort]:
    for each in maps_at(spec, "ports"):
        port, node_port = int_at(each, "port") or 0, int_at(each, "nodePort") or 0
        protocol = text_at(each, "protocol") or "TCP"
        if protocol in _PROTOCOLS and 0 < port < 2**16 and 0 < node_port < 2**16:
            yield ExposedPort(protocol, port, node_port)


def _find_rival(manifest: Manifest) -> str:
    """Return a problem if another client has written addresses to the status; empty if none has.

    Two controllers that correct each other would write without end.
    """
    for each in maps_at(manifest, "metadata", "managedFields"):
        writer = text_at(each, "manager")[:64] or "another client"
        written = map_at(each, "fieldsV1", "f:status", "f:loadBalancer")
        if "f:ingress" in written and writer != OPERATOR_ID:
            return (
                f"{writer} has written an address to its status; create Services for {writer} with "
                "a loadBalancerClass"
            )
    return ""


def _find_problem(
    spec: Mapping[str, Any], ports: Sequence[ExposedPort], cidrs: Sequence[str]
) -> str:
    if not ports:
        return "it has no node ports; set spec.allocateLoadBalancerNodePorts to true"
    if len(ports) > PORTS_LIMIT:
        return f"it has more than {PORTS_LIMIT} ports; divide it into several Services"
    if text_at(spec, "loadBalancerIP"):
        return "spec.loadBalancerIP is not supported; remove it to get any address"
    if len(cidrs) > _CIDRS_LIMIT:
        return f"spec.loadBalancerSourceRanges has more than {_CIDRS_LIMIT} entries"
    if "" in cidrs:
        return "spec.loadBalancerSourceRanges has an entry that is no block of addresses"
    return ""


def _list_cidrs(spec: Mapping[str, Any]) -> Iterable[str]:
    """Yield the blocks without the bits of hosts; an invalid one as an empty text."""
    for each in texts_at(spec, "loadBalancerSourceRanges")[: _CIDRS_LIMIT + 1]:
        try:
            yield str(ip_network(each.strip(), strict=False))
        except ValueError:
            yield ""
