"""Manifests of the children of a KubernetesCluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from libs.common.kinds import ENDPOINT_SLICE, SECRET, SERVICE, Kind, Manifest, build_object
from libs.common.labels import INSTANCE as INSTANCE_NAME
from libs.common.labels import MANAGED_BY, SERVICE_NAME
from libs.common.ownership import build_owner_reference
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL
from operators.clusters.api.v1alpha1 import (
    CONTROL_PLANE,
    KUBERNETES_CLUSTER,
    ControlPlane,
    KubernetesCluster,
    Pool,
)
from operators.clusters.bootstrap import encode
from operators.clusters.naming import (
    CLUSTER_LABEL,
    GUEST_SERVICE,
    OPERATOR_ID,
    POOL_LABEL,
    RECYCLED,
    authorities_name,
    endpoint_name,
    firewall_name,
    join_name,
    kubeconfig_name,
    user_data_name,
)
from operators.clusters.services import ExposedPort

# An address from which no packet can come. An older CRD of Firewall drops the field `peers`, and a
# rule with neither peers nor cidrs would allow all addresses.
_NOBODY: Final = "127.0.0.1/32"
EVICTION: Final = "External"
"""Eviction strategy of the machines: a drain of their host waits until the operator moves them."""
_TLS: Final = "kubernetes.io/tls"
# Tools expect the kubeconfig as in Cluster API: in a Secret of this type under the key `value`.
_KUBECONFIG_TYPE: Final = "cluster.x-k8s.io/secret"


def build_authorities(cluster: KubernetesCluster, files: Mapping[str, str]) -> Manifest:
    """Build the Secret with the authorities; it is created once and never changed."""
    return {
        **build_secret(cluster, authorities_name(cluster.metadata.name), files),
        "immutable": True,
    }


def build_kubeconfig_secret(cluster: KubernetesCluster, data: Mapping[str, str]) -> Manifest:
    """Build the Secret with the kubeconfig for administrators."""
    name = kubeconfig_name(cluster.metadata.name)
    secret = build_secret(cluster, name, data, _KUBECONFIG_TYPE)
    secret["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = cluster.metadata.name
    return secret


def build_join_secret(cluster: KubernetesCluster, certificate: str, key: str) -> Manifest:
    """Build the Secret with the credentials with which nodes join."""
    data = {"tls.crt": certificate, "tls.key": key}
    return build_secret(cluster, join_name(cluster.metadata.name), data, _TLS)


def build_user_data(cluster: KubernetesCluster, node: str, user_data: str) -> Manifest:
    """Build the Secret with the initial settings of a node."""
    return build_secret(cluster, user_data_name(node), {"userdata": user_data})


def build_secret(
    cluster: KubernetesCluster, name: str, data: Mapping[str, str], type: str = "Opaque"
) -> Manifest:
    """Build a Secret of the cluster."""
    manifest = build_child(cluster, SECRET, name)
    manifest["type"] = type
    manifest["data"] = {key: encode(value) for key, value in sorted(data.items())}
    return manifest


@dataclass(frozen=True, slots=True)
class Exposure:
    """What an address of the cluster leads to: its API, or a Service of type LoadBalancer in it.

    Attributes:
        name: Name of the IPClaim, the Service and its EndpointSlice.
        ports: Ports of the address, each with the port of the nodes.
        pool: IPPool of the address.
        cidrs: Addresses of clients that can use it; empty for all.
        service: Namespace and name of the Service in the cluster; empty for the API.
    """

    name: str
    ports: Sequence[ExposedPort]
    pool: str = ""
    cidrs: Sequence[str] = ()
    service: str = ""

    @classmethod
    def of_api(cls, cluster: KubernetesCluster) -> Self:
        """Return the address of the API of a cluster."""
        endpoint = cluster.spec.control_plane.endpoint
        ports = [ExposedPort("TCP", endpoint.port, endpoint.port)]
        name = endpoint_name(cluster.metadata.name)
        return cls(name, ports, endpoint.pool_name, endpoint.allowed_cidrs)

    def name_port(self, port: ExposedPort) -> str:
        """Return the name of a port."""
        return f"{port.protocol.lower()}-{port.port}" if self.service else "api"

    def build_child(self, cluster: KubernetesCluster, kind: Kind) -> Manifest:
        """Build the metadata of an object of the address."""
        manifest = build_child(cluster, kind, self.name)
        if self.service:
            manifest["metadata"]["annotations"] = {GUEST_SERVICE: self.service}
        return manifest


def build_service(cluster: KubernetesCluster, exposure: Exposure) -> Manifest:
    """Build the Service of an address; `build_endpoint_slice` builds its endpoints."""
    manifest = exposure.build_child(cluster, SERVICE)
    manifest["spec"] = {
        "type": "ClusterIP",
        "ports": [
            {
                "name": exposure.name_port(each),
                "protocol": each.protocol,
                "port": each.port,
                "targetPort": each.node_port,
            }
            for each in exposure.ports
        ],
    }
    return manifest


def build_endpoint_slice(
    cluster: KubernetesCluster, exposure: Exposure, found: Iterable[str], held: Manifest
) -> Manifest:
    """Build the EndpointSlice of an address."""
    addresses = sorted({each for each in found if each})
    manifest = exposure.build_child(cluster, ENDPOINT_SLICE)
    manifest["metadata"]["labels"][SERVICE_NAME] = exposure.name
    family = "IPv6" if any(":" in each for each in addresses) else "IPv4"
    # The address type of a slice is immutable. A slice without endpoints has no family of its own,
    # so it keeps the existing type.
    manifest["addressType"] = family if addresses else text_at(held, "addressType") or family
    manifest["endpoints"] = [
        {"addresses": [each], "conditions": {"ready": True}} for each in addresses
    ]
    manifest["ports"] = [
        {"name": exposure.name_port(each), "protocol": each.protocol, "port": each.node_port}
        for each in exposure.ports
    ]
    return manifest


def build_claim(cluster: KubernetesCluster, exposure: Exposure, address: str = "") -> Manifest:
    """Build the IPClaim of an address; it requests any address if `address` is empty."""
    manifest = exposure.build_child(cluster, IP_CLAIM)
    manifest["spec"] = {
        "poolRef": {"name": exposure.pool},
        "target": {"kind": "Service", "name": exposure.name},
    }
    if address:
        manifest["spec"]["address"] = address
    if exposure.cidrs:
        manifest["spec"]["allowedCidrs"] = list(exposure.cidrs)
    return manifest


def build_firewall(
    cluster: KubernetesCluster, exposures: Iterable[Exposure], *, control_plane: bool
) -> Manifest:
    """Build the Firewall of the control plane or of all other nodes.

    It allows traffic between nodes, and connections to the ports of addresses; all other ingress is
    denied. Nodes are selected by their Firewalls and not by addresses: network plugins such as
    Cilium do not match addresses of pods, and the rules need no change when a machine moves or
    restarts. The rules of addresses have no cidrs: for most clients a Firewall sees the address of
    a node, so the IPClaim of the address compares the clients.

    Args:
        cluster: The cluster.
        exposures: Addresses that route traffic to these nodes.
        control_plane: Whether to build the Firewall of the control plane.
    """
    name = cluster.metadata.name
    peers = [
        {"firewallRef": {"name": firewall_name(name, control_plane=each)}} for each in (True, False)
    ]
    between: Manifest = {"protocol": "ALL", "cidrs": [_NOBODY], "peers": peers}
    opened = () if control_plane else cluster.spec.ingress_rules
    rules: list[Manifest] = [
        *(rule for each in exposures for rule in _build_rules(each)),
        *({**each.to_manifest(), "name": f"ingress-{each.name}"} for each in opened),
        {"name": "nodes", **between},
        # Needed if an administrator protects the addresses of pods from machines.
        {"name": "to-nodes", "direction": "Egress", **between},
    ]
    manifest = build_child(cluster, FIREWALL, firewall_name(name, control_plane=control_plane))
    manifest["spec"] = {"networkRef": {"name": cluster.spec.network_ref.name}, "rules": rules}
    return manifest


def _build_rules(exposure: Exposure) -> Iterator[Manifest]:
    by_protocol: dict[str, set[int]] = {}
    for each in exposure.ports:
        by_protocol.setdefault(each.protocol, set()).add(each.node_port)
    for protocol, ports in sorted(by_protocol.items()):
        name = f"{exposure.name}-{protocol.lower()}" if exposure.service else "api"
        yield {"name": name, "protocol": protocol, "ports": sorted(ports)}


def build_instance(cluster: KubernetesCluster, node: str, pool: Pool | None) -> Manifest:
    """Build the machine of a node."""
    shape = cluster.spec.control_plane if pool is None else pool
    image = _image_of(cluster, shape)
    pool_name = CONTROL_PLANE if pool is None else pool.name
    firewall = firewall_name(cluster.metadata.name, control_plane=pool is None)
    manifest = build_child(cluster, INSTANCE, node)
    manifest["metadata"]["labels"][POOL_LABEL] = pool_name
    tokens = [each.token for each in cluster.spec.recycle if each.node == node]
    if tokens:
        # A new node has a new disk, so a rebuild that was requested for its predecessor counts as
        # carried out.
        manifest["metadata"]["annotations"] = {RECYCLED: tokens[0]}
    manifest["spec"] = {
        "size": shape.size,
        "image": image,
        "networkRef": {"name": cluster.spec.network_ref.name},
        "firewallRef": {"name": firewall},
        "userDataSecretName": user_data_name(node),
        "evictionStrategy": EVICTION,
        "placement": {"spreadGroup": f"{cluster.metadata.name}-{pool_name}"},
    }
    if shape.root_disk is not None:
        manifest["spec"]["rootDisk"] = shape.root_disk.model_dump(
            by_alias=True, exclude_defaults=True, mode="json"
        )
    return manifest


def build_rebuild(cluster: KubernetesCluster, name: str, instance: InstanceView) -> Manifest:
    """Build the Operation that rebuilds a node with the current image of its pool."""
    manifest = build_child(cluster, OPERATION, name)
    manifest["spec"] = {
        "type": "Rebuild",
        "targetRef": {"name": instance.key.name, "uid": instance.uid},
        "rebuild": {"image": render_image(cluster, instance)},
    }
    return manifest


def build_move(
    cluster: KubernetesCluster, name: str, instance: InstanceView, type: str
) -> Manifest:
    """Build the Operation that moves a machine to another host: a Migrate or a Reboot."""
    manifest = build_child(cluster, OPERATION, name)
    manifest["spec"] = {
        "type": type,
        "targetRef": {"name": instance.key.name, "uid": instance.uid},
    }
    return manifest


def render_image(cluster: KubernetesCluster, instance: InstanceView) -> Manifest:
    """Render the image that a node gets when it is rebuilt."""
    pool = instance.labels.get(POOL_LABEL, "")
    shape = cluster.spec.control_plane if pool == CONTROL_PLANE else cluster.spec.pool(pool)
    return _image_of(cluster, shape)


def _image_of(cluster: KubernetesCluster, shape: ControlPlane | Pool | None) -> Manifest:
    image = (shape.image if shape is not None else None) or cluster.spec.image
    rendered: Manifest = image.model_dump(by_alias=True, exclude_none=True, mode="json")
    return rendered


def build_child(cluster: KubernetesCluster, kind: Kind, name: str) -> Manifest:
    """Build the metadata of an object of the cluster."""
    owner: Mapping[str, Any] = {
        "metadata": {"name": cluster.metadata.name, "uid": cluster.metadata.uid}
    }
    return build_object(
        kind,
        name,
        cluster.key.namespace,
        metadata={
            "labels": {
                MANAGED_BY: OPERATOR_ID,
                INSTANCE_NAME: cluster.metadata.name,
                CLUSTER_LABEL: cluster.metadata.name,
            },
            "ownerReferences": [build_owner_reference(KUBERNETES_CLUSTER, owner)],
        },
    )
