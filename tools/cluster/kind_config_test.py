"""kind's configuration, and the network of nodes that we built."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml

from tools.cluster.kind_config import (
    NodeNetwork,
    load_base,
    parse_node_networks,
    render_cni_config,
    render_kind_config,
    render_network_script,
)

NODES = [
    NodeNetwork("a", "10.0.0.2", "10.245.0.0/24"),
    NodeNetwork("b", "10.0.0.3", "10.245.1.0/24"),
]


def render(workers: int = 0, local_image: bool = True, cgroup_v1: bool = True) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(
        render_kind_config(
            load_base(), workers=workers, local_image=local_image, cgroup_v1=cgroup_v1
        )
    )
    return config


def test_workers_are_added_to_the_control_plane() -> None:
    roles = [node["role"] for node in render(workers=2)["nodes"]]

    assert roles == ["control-plane", "worker", "worker"]


@pytest.mark.parametrize("cgroup_v1", [True, False])
def test_kubelet_is_patched_for_old_cgroups_only(cgroup_v1: bool) -> None:
    patches = render(cgroup_v1=cgroup_v1).get("kubeadmConfigPatches", [])

    assert [yaml.safe_load(patch).get("failCgroupV1") for patch in patches] == [False] * cgroup_v1


def test_own_image_brings_its_own_network() -> None:
    assert render(local_image=True)["networking"]["disableDefaultCNI"] is True
    assert "disableDefaultCNI" not in render(local_image=False)["networking"]


def test_base_is_left_as_it_was() -> None:
    base = load_base()
    render_kind_config(base, workers=3, local_image=True, cgroup_v1=True)

    assert base == load_base()


def test_node_without_pod_range_is_left_out() -> None:
    addresses = [
        {"type": "Hostname", "address": "a"},
        {"type": "InternalIP", "address": "10.0.0.2"},
    ]
    ready = {
        "metadata": {"name": "a"},
        "spec": {"podCIDR": "10.245.0.0/24"},
        "status": {"addresses": addresses},
    }
    early = {"metadata": {"name": "b"}, "spec": {}, "status": {"addresses": []}}

    assert parse_node_networks({"items": [ready, early]}) == [NODES[0]]


def test_bridge_uses_the_range_of_its_node() -> None:
    config = json.loads(render_cni_config(NODES[1]))

    assert config["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.245.1.0/24"}]]
    assert "isDefaultGateway" not in config["plugins"][0]


def test_script_routes_to_the_others_and_is_valid_shell() -> None:
    script = render_network_script(NODES[0], NODES, "10.245.0.0/16")

    assert "ip route replace 10.245.1.0/24 via 10.0.0.3" in script
    assert "10.245.0.0/24 via" not in script
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
