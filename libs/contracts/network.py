"""Views of Network and Firewall, for operators that depend on the operator network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from libs.common.conditions import READY
from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import holds_at, int_at, maps_at, text_at, texts_at
from libs.contracts.compute import instance_uids

NETWORK_GROUP: Final = "network.slipway.dev"
"""API group of the operator network."""
NETWORK: Final = Kind(NETWORK_GROUP, "v1alpha1", "Network", "networks")
"""Optional kind: check that the cluster serves it before requesting its objects."""
FIREWALL: Final = Kind(NETWORK_GROUP, "v1alpha1", "Firewall", "firewalls")
"""Optional kind: check that the cluster serves it before requesting its objects."""
_MULTUS: Final = "Multus"


@dataclass(frozen=True, slots=True)
class RouteView:
    """One route of a Network.

    Attributes:
        destination: Addresses in CIDR notation.
        next_hop: Address that packets are sent to; empty if the route is not resolved.
        resolved: Whether the route can be used now.
    """

    destination: str
    next_hop: str
    resolved: bool


@dataclass(frozen=True, slots=True)
class NetworkView:
    """The parts of a Network that operators use.

    Attributes:
        deleting: Whether it is being deleted; a finalizer keeps it while any instance or Firewall
            names it.
        backend: `PodNetwork` or `Multus`.
        binding: How the guest is connected: `Masquerade`, `Bridge` or `Passt`. With the last two
            the guest has the address of its pod, or its own one on backend `Multus`.
        isolated: Whether the policy exists that denies all traffic to every instance unless another
            policy allows it. No virtual machine of the network may start before.
        attachment: Name of the NetworkAttachmentDefinition; empty for the network of pods.
        routes: Routes that guests may set up, in the order of the spec.
        cidrs: Address blocks of the network; one per family.
        pool: Name of the IPPool that private addresses come from; empty for none.
        gateway: Router of the network; empty for none.
        nameservers: DNS servers for guests.
        mtu: Largest packet in bytes; 0 if neither the Network nor its ProviderNetwork sets it.
    """

    key: Key
    uid: str
    deleting: bool
    backend: str
    isolated: bool
    attachment: str
    routes: tuple[RouteView, ...]
    binding: str = "Masquerade"
    cidrs: tuple[str, ...] = ()
    pool: str = ""
    gateway: str = ""
    nameservers: tuple[str, ...] = ()
    mtu: int = 0

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a network; invalid fields count as absent."""
        backend = text_at(manifest, "spec", "backend")
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            backend=backend,
            isolated=holds_at(manifest, "Isolated"),
            attachment=text_at(manifest, "status", "nadRef", "name"),
            routes=tuple(
                RouteView(
                    text_at(route, "destination"),
                    text_at(route, "nextHop"),
                    text_at(route, "reason") == "Resolved",
                )
                for route in maps_at(manifest, "status", "routes")
            ),
            binding=_find_binding(backend, text_at(manifest, "spec", "binding")),
            cidrs=texts_at(manifest, "spec", "cidrs"),
            pool=text_at(manifest, "spec", "poolRef", "name"),
            gateway=text_at(manifest, "spec", "gateway"),
            nameservers=texts_at(manifest, "spec", "nameservers"),
            mtu=int_at(manifest, "status", "mtu") or int_at(manifest, "spec", "mtu") or 0,
        )

    @property
    def is_attached(self) -> bool:
        """Whether Multus attaches machines to the network, in place of the pod network."""
        return self.backend == _MULTUS

    @property
    def allocates_addresses(self) -> bool:
        """Whether guests get permanent private addresses from an IPPool."""
        return self.is_attached and bool(self.pool)


def _find_binding(backend: str, asked: str) -> str:
    """Return the binding that is in effect; interfaces that Multus attaches are always bridged."""
    return "Bridge" if backend == _MULTUS else asked or "Masquerade"


@dataclass(frozen=True, slots=True)
class FirewallView:
    """The parts of a Firewall that operators use.

    Attributes:
        deleting: Whether it is being deleted; a finalizer keeps it while any instance names it.
        ready: Whether everything that its spec asks for is in effect.
        protected: UIDs of the instances that its policy is known to cover.
    """

    key: Key
    uid: str
    deleting: bool
    network: str
    ready: bool
    protected: frozenset[str]

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a firewall; invalid fields count as absent."""
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            network=text_at(manifest, "spec", "networkRef", "name"),
            ready=holds_at(manifest, READY),
            protected=instance_uids(manifest, "status", "instances"),
        )

    def protects(self, instance_uid: str) -> bool:
        """Return whether the machine of an instance may start: the policy covers the instance."""
        return instance_uid in self.protected
