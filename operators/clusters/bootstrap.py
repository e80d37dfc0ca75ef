"""Initial configuration of a guest for cloud-init. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from libs.common import fastyaml
from libs.common.kinds import Key, Manifest
from operators.clusters import scripts, units
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster, Pool
from operators.clusters.certificates import Authorities, Pair
from operators.clusters.naming import ADDRESS_KEY, endpoint_host, node_name
from operators.clusters.node_metadata import build_labels

_KUBEADM: Final = "kubeadm.k8s.io/v1beta4"
_TIMEOUTS: Final = {
    "controlPlaneComponentHealthCheck": "10m0s",
    "kubeletHealthCheck": "10m0s",
    "kubernetesAPICall": "10m0s",
    "tlsBootstrap": "10m0s",
}
"""Time-outs of kubeadm. With its defaults, the shortest of which is 1 minute for an API call, an
attempt on a slow machine fails while etcd and the API server are still starting."""
_HEADER: Final = "#cloud-config\n"
_UNITS: Final = "/etc/systemd/system"


class Role(StrEnum):
    """Role says how a guest becomes a node."""

    INIT = "Init"
    JOIN_CONTROL_PLANE = "JoinControlPlane"
    JOIN = "Join"


_SCRIPTS: Final = {
    Role.INIT: scripts.INIT,
    Role.JOIN_CONTROL_PLANE: scripts.JOIN_CONTROL_PLANE,
    Role.JOIN: scripts.JOIN,
}


@dataclass(frozen=True, slots=True)
class Membership:
    """The data that a guest needs to join a cluster as a node.

    Attributes:
        authorities: Certificate authorities of the cluster.
        keeps_addresses: Whether guests keep their addresses when their machines restart.
    """

    cluster: KubernetesCluster
    address: str
    authorities: Authorities
    join: Pair
    keeps_addresses: bool = False

    @property
    def server(self) -> str:
        """URL of the API."""
        return f"https://{self.endpoint}"

    @property
    def endpoint(self) -> str:
        """Address and port of the API."""
        return render_endpoint(self.cluster, self.address)


def render_endpoint(cluster: KubernetesCluster, address: str) -> str:
    """Render the address of the API: `203.0.113.7:6443`, `[2001:db8::7]:6443`."""
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{cluster.spec.control_plane.endpoint.port}"


def render_user_data(member: Membership, role: Role, pool: Pool | None, slot: int = 0) -> str:
    """Render the user data for cloud-init. It is secret, because it allows a guest to join.

    Args:
        member: Data for joining the cluster.
        role: How the guest becomes a node.
        pool: Pool of the node; None for the control plane.
        slot: Number of the node in its pool.
    """
    started = [scripts.UNIT_NAME]
    family = "6" if ":" in member.cluster.spec.service_cidr else "4"
    files = {
        f"{scripts.DIRECTORY}/kubeadm.yaml": render_kubeadm(member, role, pool, slot),
        f"{scripts.DIRECTORY}/bootstrap.sh": _SCRIPTS[role],
        f"{_UNITS}/{scripts.UNIT_NAME}": scripts.UNIT,
        units.ADDRESS_SCRIPT_PATH: units.ADDRESS_SCRIPT,
        f"{_UNITS}/{units.ADDRESS_SERVICE}": units.ADDRESS_UNIT,
        f"{scripts.DIRECTORY}/family": f"{family}\n",
    }
    if role is not Role.INIT:
        config = fastyaml.dump(build_kubeconfig(member, member.join, "join"))
        files[f"{scripts.DIRECTORY}/discovery.conf"] = config
    if role is not Role.JOIN:
        width = 128 if ":" in member.address else 32
        files[f"{scripts.DIRECTORY}/endpoint"] = f"{member.address}/{width}\n"
        for name, content in sorted(member.authorities.files.items()):
            files[f"{scripts.DIRECTORY}/pki/{name}"] = content
        files[units.RENEW_SCRIPT_PATH] = units.RENEW_SCRIPT
        files[f"{_UNITS}/{units.RENEW_SERVICE}"] = units.RENEW_UNIT
        files[f"{_UNITS}/{units.RENEW_TIMER}"] = units.render_renew_timer(slot)
        started.append(units.RENEW_TIMER)
    written = "".join(_render_file(path, content) for path, content in files.items())
    return f"{_HEADER}write_files:\n{written}{_render_commands(started)}"


def _render_commands(started: Sequence[str]) -> str:
    lines = [f"  - [systemctl, enable, --now, --no-block, {unit}]\n" for unit in started]
    at_boot = f"  - [systemctl, enable, {units.ADDRESS_SERVICE}]\n"
    return f"runcmd:\n  - [systemctl, daemon-reload]\n{at_boot}{''.join(lines)}"


def render_kubeadm(member: Membership, role: Role, pool: Pool | None, slot: int = 0) -> str:
    """Render the configuration of kubeadm for a guest; arguments as `render_user_data`."""
    registration = _build_registration(pool, _identify(member, pool, slot))
    port = member.cluster.spec.control_plane.endpoint.port
    if role is Role.INIT:
        parts = (_build_init(member, registration, port), _build_cluster(member))
        return "---\n".join(fastyaml.dump(part) for part in parts)
    join: Manifest = {
        "apiVersion": _KUBEADM,
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": f"{scripts.DIRECTORY}/discovery.conf"}},
        "nodeRegistration": registration,
        "timeouts": dict(_TIMEOUTS),
    }
    if role is Role.JOIN_CONTROL_PLANE:
        endpoint = {"advertiseAddress": scripts.ADDRESS_MARK, "bindPort": port}
        join["controlPlane"] = {"localAPIEndpoint": endpoint}
    return fastyaml.dump(join)


def build_kubeconfig(member: Membership, user: Pair, name: str, server: str = "") -> Manifest:
    """Build a kubeconfig for the API of the cluster.

    Args:
        member: Data of the cluster.
        user: Credentials of the user.
        name: Name of the user in the kubeconfig.
        server: URL of the API; empty for the address of the cluster.
    """
    return render_config(
        member.cluster.metadata.name, server or member.server, member.authorities.ca, user, name
    )


def build_kubeconfig_data(member: Membership, user: Pair) -> dict[str, str]:
    """Build the values of the Secret with the kubeconfig: `value`, its parts, and the address.

    The address of the API never changes, and the Secret keeps it for a restore from a backup.
    """
    endpoint = member.cluster.spec.control_plane.endpoint
    # A DNS name is preferred, so that existing kubeconfigs remain valid if the address changes.
    server = f"https://{endpoint.dns_names[0]}:{endpoint.port}" if endpoint.dns_names else ""
    return {
        ADDRESS_KEY: member.address,
        "value": fastyaml.dump(build_kubeconfig(member, user, "admin", server)),
        "ca.crt": member.authorities.ca,
        "tls.crt": user.certificate,
        "tls.key": user.key,
    }


def render_config(cluster: str, server: str, ca: str, user: Pair, name: str) -> Manifest:
    """Build a kubeconfig from its parts."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": server, "certificate-authority-data": encode(ca)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": encode(user.certificate),
                    "client-key-data": encode(user.key),
                },
            }
        ],
        "contexts": [{"name": f"{name}@{cluster}", "context": {"cluster": cluster, "user": name}}],
        "current-context": f"{name}@{cluster}",
    }


def _build_init(member: Membership, registration: Manifest, port: int) -> Manifest:
    # If the address of a machine changes at each restart, certificates and etcd must not contain
    # it. They contain the address of the cluster instead, which never changes and is on the
    # loopback interface of each control plane node.
    advertised = scripts.ADDRESS_MARK if member.keeps_addresses else member.address
    return {
        "apiVersion": _KUBEADM,
        "kind": "InitConfiguration",
        # Nodes join with certificates; kubeadm requires a token, which expires immediately.
        "bootstrapTokens": [{"ttl": "1m0s"}],
        "localAPIEndpoint": {"advertiseAddress": advertised, "bindPort": port},
        "nodeRegistration": registration,
        "timeouts": dict(_TIMEOUTS),
    }


def _build_cluster(member: Membership) -> Manifest:
    cluster = member.cluster
    return {
        "apiVersion": _KUBEADM,
        "kind": "ClusterConfiguration",
        "clusterName": cluster.metadata.name,
        "kubernetesVersion": cluster.spec.version,
        # The same algorithm as for the authorities: signing is much cheaper than with RSA, which is
        # the default of kubeadm.
        "encryptionAlgorithm": "ECDSA-P256",
        "certificateValidityPeriod": f"{units.CERTIFICATE_HOURS}h0m0s",
        "controlPlaneEndpoint": member.endpoint,
        "networking": {
            "podSubnet": cluster.spec.pod_cidr,
            "serviceSubnet": cluster.spec.service_cidr,
        },
        # The operator connects through the Service of the API, not through its public address.
        "apiServer": {
            "certSANs": [
                member.address,
                endpoint_host(cluster.key),
                *cluster.spec.control_plane.endpoint.dns_names,
            ]
        },
    }


def _identify(member: Membership, pool: Pool | None, slot: int) -> str:
    """Return the ID of a machine, by which other controllers find it; it survives a restore."""
    cluster = member.cluster
    name = node_name(cluster.metadata.name, pool.name if pool else CONTROL_PLANE, slot)
    return f"slipway://{Key(cluster.key.namespace, name)}"


def _build_registration(pool: Pool | None, provider_id: str) -> Manifest:
    arguments = [
        {"name": "node-ip", "value": scripts.ADDRESS_MARK},
        {"name": "provider-id", "value": provider_id},
    ]
    if pool is None:
        return {"kubeletExtraArgs": arguments}
    labels = {key: value for key, value in build_labels(pool).items() if not _is_reserved(key)}
    text = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    taints = [
        {"key": taint.key, "value": taint.value, "effect": str(taint.effect)}
        for taint in pool.taints
    ]
    arguments.append({"name": "node-labels", "value": text})
    return {"kubeletExtraArgs": arguments, "taints": taints}


def _is_reserved(label: str) -> bool:
    """Return whether a kubelet refuses to start with a label, so that the operator must set it."""
    domain = label.rpartition("/")[0]
    return f".{domain}".endswith((".kubernetes.io", ".k8s.io"))


def _render_file(path: str, content: str) -> str:
    # A literal block instead of the output of a YAML dumper, so that the files are readable when
    # debugging a guest.
    lines = "".join(f"      {line}\n" if line else "\n" for line in content.splitlines())
    return f'  - path: {path}\n    permissions: "0600"\n    content: |\n{lines}'


def encode(text: str) -> str:
    """Encode a text in base64, as in Secrets and kubeconfigs."""
    return base64.b64encode(text.encode()).decode()
