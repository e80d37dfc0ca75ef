"""Peers of rules as pod selectors. Pure.

If pods have no label that identifies a peer, the peer is resolved to the UIDs of its instances: an
instance can change its firewall while its pod runs, and the labels of an instance are not copied to
its pod.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import orjson

from libs.common.kinds import Manifest
from libs.common.labels import matches_selector
from libs.contracts.compute import InstanceView
from operators.network.api.v1alpha1.peers import FirewallPeer
from operators.network.resources import build_network_peers, select_instances

UIDS_LIMIT: Final = 5_000
"""Maximum number of instances that the peers of one policy name; about 200 KB."""


class PeerType(StrEnum):
    """How a peer is distinguished from other pods."""

    INSTANCES = "instances"
    FIREWALL = "firewallRef"
    NETWORK = "networkRef"
    NAMESPACES = "namespaceSelector"
    NEIGHBORS = "neighbors"
    CLUSTER_DNS = "clusterDNS"


@dataclass(frozen=True, slots=True, order=True)
class Peer:
    """Pods at the other end.

    Attributes:
        sort: How they are distinguished from other pods.
        value: Name of the firewall or network, or the selector as JSON.
    """

    sort: PeerType
    value: str = ""

    @classmethod
    def of(cls, peer: FirewallPeer) -> Peer:
        """Build it from a peer of a rule."""
        if peer.firewall_ref is not None:
            return cls(PeerType.FIREWALL, peer.firewall_ref.name)
        if peer.network_ref is not None:
            return cls(PeerType.NETWORK, peer.network_ref.name)
        if peer.instances is not None:
            return cls(PeerType.INSTANCES, _render(peer.instances.to_manifest()))
        selector = peer.namespace_selector
        return cls(PeerType.NAMESPACES, _render(selector.to_manifest() if selector else {}))

    @property
    def selector(self) -> Manifest:
        """Selector of instances or namespaces."""
        selector: Manifest = orjson.loads(self.value)
        return selector


NEIGHBORS: Final = Peer(PeerType.NEIGHBORS)
"""Every pod of the namespace of the policy."""
CLUSTER_DNS: Final = Peer(PeerType.CLUSTER_DNS)
"""Pods of the DNS service of the cluster, which the settings name."""


@dataclass(frozen=True, slots=True)
class PeerCandidates:
    """The instances that peers can select.

    Attributes:
        unlabelled: UIDs of instances with a pod that lacks the label of a network.
    """

    instances: Sequence[InstanceView] = ()
    unlabelled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ResolvedPeers:
    """The resolved peers of a policy.

    Attributes:
        peers: Entries of a policy for each peer.
        too_many: Peers that are omitted because they select too many instances.
    """

    peers: Mapping[Peer, Sequence[Manifest]] = field(default_factory=dict)
    too_many: frozenset[Peer] = frozenset()


def resolve_peers(
    peers: Iterable[Peer], around: PeerCandidates, *, limit: int = UIDS_LIMIT
) -> ResolvedPeers:
    """Resolve peers to pod selectors.

    Args:
        peers: Peers; if the limit is exceeded, the last ones are omitted.
        around: Instances that peers can select.
        limit: Maximum number of instances that all peers select together.
    """
    found: dict[Peer, Sequence[Manifest]] = {}
    too_many = set()
    for peer in peers:
        if peer == CLUSTER_DNS:
            continue
        uids = sorted(_list_uids(peer, around))
        if len(uids) > limit:
            too_many.add(peer)
            uids = []
        limit -= len(uids)
        found[peer] = _build(peer, uids)
    return ResolvedPeers(found, frozenset(too_many))


def _list_uids(peer: Peer, around: PeerCandidates) -> list[str]:
    """Return the UIDs of the instances that a peer must name individually."""
    belongs: Mapping[PeerType, Callable[[InstanceView], bool]] = {
        PeerType.FIREWALL: lambda each: each.firewall == peer.value,
        PeerType.NETWORK: lambda each: (
            each.network == peer.value and each.uid in around.unlabelled
        ),
        PeerType.INSTANCES: lambda each: matches_selector(peer.selector, each.labels),
    }
    test = belongs.get(peer.sort)
    return [] if test is None else [each.uid for each in around.instances if test(each)]


def _build(peer: Peer, uids: Sequence[str]) -> list[Manifest]:
    match peer.sort:
        case PeerType.NETWORK:
            return build_network_peers(peer.value, uids)
        case PeerType.NAMESPACES:
            return [{"namespaceSelector": peer.selector}]
        case PeerType.NEIGHBORS:
            return [{"podSelector": {}}]
        case _:
            return [{"podSelector": select_instances(uids)}]


def _render(selector: Manifest) -> str:
    return json.dumps(selector, sort_keys=True)
