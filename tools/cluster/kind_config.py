"""The configuration that kind gets, and the network of nodes that we built ourselves."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

type Document = dict[str, Any]

BASE_FILE: Final = Path(__file__).with_name("kind.yaml")
CNI_FILE: Final = "/etc/cni/net.d/10-slipway.conflist"
_CGROUP_V1_PATCH: Final = "kind: KubeletConfiguration\nfailCgroupV1: false\n"


def load_base() -> Document:
    """Return the committed configuration."""
    base: Document = yaml.safe_load(BASE_FILE.read_text())
    return base


def render_kind_config(
    base: Mapping[str, Any], *, workers: int, local_image: bool, cgroup_v1: bool
) -> str:
    """Return kind's configuration file.

    Args:
        local_image: The nodes run our own image: no kindnet in it, and kube-proxy with nft alone.
        cgroup_v1: The machine has the old cgroups, which the kubelet refuses unless told otherwise.
    """
    config: Document = copy.deepcopy(dict(base))
    config["nodes"] = [*config["nodes"], *({"role": "worker"} for _ in range(workers))]
    if local_image:
        config["networking"] |= {"disableDefaultCNI": True, "kubeProxyMode": "nftables"}
    if cgroup_v1:
        config.setdefault("kubeadmConfigPatches", []).append(_CGROUP_V1_PATCH)
    text: str = yaml.safe_dump(config, sort_keys=False)
    return text


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The network configuration of one node."""

    name: str
    address: str
    pod_cidr: str


def parse_node_networks(nodes: Mapping[str, Any]) -> list[NodeNetwork]:
    """Return the networks of a NodeList; nodes that have no pod range yet are left out."""
    return [
        NodeNetwork(
            node["metadata"]["name"],
            next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"),
            node["spec"]["podCIDR"],
        )
        for node in nodes["items"]
        if node["spec"].get("podCIDR")
    ]


def render_cni_config(node: NodeNetwork) -> str:
    """Return the CNI configuration of one node: a bridge with addresses of its own pod range."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        # isDefaultGateway would replace the default route that comes from `routes`.
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": node.pod_cidr}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge, ports]
    return json.dumps({"cniVersion": "0.4.0", "name": "slipway", "plugins": plugins}, indent=1)


def render_network_script(node: NodeNetwork, nodes: list[NodeNetwork], pod_subnet: str) -> str:
    """Return the shell script that connects one node to the others; safe to run again."""
    lines = ["set -eu"]
    lines += [
        f"ip route replace {other.pod_cidr} via {other.address}"
        for other in nodes
        if other.name != node.name
    ]
    # Pods keep their address among each other and take the node's towards everything else.
    rule = f"POSTROUTING -s {node.pod_cidr} ! -d {pod_subnet} -j MASQUERADE"
    lines.append(f"iptables -t nat -C {rule} 2>/dev/null || iptables -t nat -A {rule}")
    # Renamed into place, since containerd reads the directory while the file is written.
    lines.append(f"cat > {CNI_FILE}.new && mv {CNI_FILE}.new {CNI_FILE}")
    return "\n".join(lines)
