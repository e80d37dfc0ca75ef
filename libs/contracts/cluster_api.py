"""Kinds of Cluster API that concern IPAM providers; all of them are optional in a cluster.

Source: the IPAM provider contract of Cluster API and its API types, version 1.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from libs.common.kinds import Kind
from libs.common.reading import map_at, text_at, text_map_at

IPAM_GROUP: Final = "ipam.cluster.x-k8s.io"
"""API group of address claims and addresses."""
IP_ADDRESS_CLAIM: Final = Kind(IPAM_GROUP, "v1beta2", "IPAddressClaim", "ipaddressclaims")
"""A request for one address from a pool of any kind; infrastructure providers create it."""
IP_ADDRESS: Final = Kind(IPAM_GROUP, "v1beta2", "IPAddress", "ipaddresses")
"""An address that a provider allocated to the claim of the same name; its spec is immutable."""
CLUSTER: Final = Kind("cluster.x-k8s.io", "v1beta2", "Cluster", "clusters")
"""A cluster of Cluster API; while it is paused, no controller reconciles what belongs to it."""
CLUSTER_NAME_LABEL: Final = "cluster.x-k8s.io/cluster-name"
"""Label on every object that belongs to a Cluster; its value is the name of the Cluster."""
PAUSED: Final = "cluster.x-k8s.io/paused"
"""Annotation, with any value, on an object that no controller may reconcile."""


def is_paused(manifest: Mapping[str, object]) -> bool:
    """Return whether an object asks controllers not to reconcile it."""
    annotations = text_map_at(manifest, "metadata", "annotations")
    return PAUSED in annotations or map_at(manifest, "spec").get("paused") is True


def find_cluster(claim: Mapping[str, object]) -> str:
    """Return the name of the Cluster of an IPAddressClaim; empty if it names none."""
    return text_at(claim, "spec", "clusterName") or text_at(
        claim, "metadata", "labels", CLUSTER_NAME_LABEL
    )
