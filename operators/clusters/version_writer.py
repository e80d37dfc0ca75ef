"""Reads and writes the versions of kubeadm and kube-proxy in a managed cluster.

`kubeadm join` reads the version of static pods from the ConfigMap `kubeadm-config`, so the operator
changes it before the first node is rebuilt, as Cluster API does. The operator changes the image of
kube-proxy itself, because no guest runs `kubeadm upgrade apply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.errors import Conflict, NotFound
from libs.common.kinds import CONFIG_MAP, Key, Kind, Manifest
from libs.common.reading import maps_at, text_at, text_map_at
from operators.clusters.upgrade import SetProxyVersion, SetVersion

CONFIG: Final = Key("kube-system", "kubeadm-config")
"""ConfigMap with the configuration that kubeadm reads at a join."""
PROXY: Final = Key("kube-system", "kube-proxy")
"""DaemonSet of kube-proxy."""
DAEMON_SET: Final = Kind("apps", "v1", "DaemonSet", "daemonsets")
"""Kind of kube-proxy."""
_FIELD: Final = "ClusterConfiguration"


async def read_version(client: Client) -> str:
    """Return the version with which control plane nodes join; empty if there is none."""
    try:
        return text_at(_parse(await client.get(CONFIG_MAP, CONFIG)), "kubernetesVersion")
    except NotFound:
        return ""


async def read_proxy_version(client: Client) -> str:
    """Return the version of kube-proxy; empty for a cluster without it or with another image."""
    try:
        image = _find_image(await client.get(DAEMON_SET, PROXY))[1]
    except NotFound:
        return ""
    name, _, tag = image.rpartition(":")
    # Custom images and images with a digest are not replaced.
    return tag if name.endswith("/kube-proxy") and "@" not in name else ""


async def write_version(client: Client, step: SetVersion) -> None:
    """Set only the version with which control plane nodes join.

    Raises:
        Conflict: Another client has changed the version.
    """
    held = await client.get(CONFIG_MAP, CONFIG)
    config = _parse(held)
    if text_at(config, "kubernetesVersion") == step.version:
        return
    if text_at(config, "kubernetesVersion") != step.old:
        raise Conflict(409, "Conflict", f"another client changed kubernetesVersion in {CONFIG}")
    text = fastyaml.dump({**config, "kubernetesVersion": step.version})
    version = text_at(held, "metadata", "resourceVersion")
    patch = {"metadata": {"resourceVersion": version}, "data": {_FIELD: text}}
    await client.patch(CONFIG_MAP, CONFIG, patch)


async def write_proxy_version(client: Client, step: SetProxyVersion) -> None:
    """Set the tag of the image of kube-proxy; the DaemonSet replaces its pods one by one."""
    number, image = _find_image(await client.get(DAEMON_SET, PROXY))
    path = f"/spec/template/spec/containers/{number}/image"
    new = f"{image.rpartition(':')[0]}:{step.version}"
    operations = [
        {"op": "test", "path": path, "value": image},
        {"op": "replace", "path": path, "value": new},
    ]
    await client.patch(DAEMON_SET, PROXY, operations)


def _find_image(daemon_set: Manifest) -> tuple[int, str]:
    for number, each in enumerate(maps_at(daemon_set, "spec", "template", "spec", "containers")):
        if each.get("name") == "kube-proxy":
            return number, text_at(each, "image")
    return 0, ""


def _parse(config_map: Manifest) -> Mapping[str, Any]:
    text = text_map_at(config_map, "data").get(_FIELD, "")
    try:
        documents = fastyaml.load_untrusted(text)
    except yaml.YAMLError:
        return {}
    found = documents[0] if documents else {}
    return found if isinstance(found, dict) else {}
