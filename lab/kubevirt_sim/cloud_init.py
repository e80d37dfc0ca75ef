"""What a simulated guest reads in its first settings: which cluster it begins or joins. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import yaml

from libs.common.kinds import Manifest
from libs.common.reading import map_at, maps_at, text_at


@dataclass(frozen=True, slots=True)
class Member:
    """The configuration with which a guest becomes a node of a Kubernetes cluster.

    Attributes:
        begins: Whether it begins the cluster (`kubeadm init`), or joins one (`kubeadm join`).
        ca: Certificate of the authority of the cluster, as PEM.
        ca_key: Its key, where the guest has it: on nodes of the control plane.
        hosts: Names and addresses for the certificate of the API.
        labels: Labels that the node registers with.
        taints: Taints that the node registers with.
        version: Version of the cluster that it begins; empty for one that joins.
    """

    begins: bool
    ca: str
    ca_key: str
    hosts: tuple[str, ...]
    labels: Mapping[str, str]
    taints: tuple[Manifest, ...]
    version: str = ""

    @classmethod
    def parse(cls, user_data: str) -> Self | None:
        """Read user data; None for a guest that should become no node, or that cannot read it."""
        try:
            config = yaml.safe_load(user_data)
            files = {
                text_at(each, "path"): text_at(each, "content")
                for each in maps_at(config if isinstance(config, Mapping) else {}, "write_files")
            }
            return cls._read(files)
        except (yaml.YAMLError, ValueError, binascii.Error):
            return None

    @classmethod
    def _read(cls, files: Mapping[str, str]) -> Self | None:
        documents = [
            document
            for path, content in files.items()
            if path.endswith("/kubeadm.yaml")
            for document in yaml.safe_load_all(content)
            if isinstance(document, Mapping)
        ]
        kinds = {text_at(each, "kind"): each for each in documents}
        first = kinds.get("InitConfiguration") or kinds.get("JoinConfiguration")
        if first is None:
            return None
        begins = "InitConfiguration" in kinds
        ca = _find(files, "/pki/ca.crt") if begins else _read_discovery(files)
        cluster = kinds.get("ClusterConfiguration") or {}
        servers = map_at(cluster, "apiServer").get("certSANs")
        registration = map_at(first, "nodeRegistration")
        return cls(
            begins=begins,
            ca=ca,
            ca_key=_find(files, "/pki/ca.key"),
            hosts=tuple(map(str, servers or ())),
            labels=_read_labels(registration),
            taints=tuple(dict(each) for each in maps_at(registration, "taints")),
            version=text_at(cluster, "kubernetesVersion"),
        )


def _find(files: Mapping[str, str], end: str) -> str:
    return next((content for path, content in files.items() if path.endswith(end)), "")


def _read_discovery(files: Mapping[str, str]) -> str:
    """Read which authority the kubeconfig of a guest that joins trusts."""
    config: Any = yaml.safe_load(_find(files, "/discovery.conf") or "{}")
    clusters = maps_at(config, "clusters")
    data = text_at(clusters[0], "cluster", "certificate-authority-data") if clusters else ""
    return base64.b64decode(data).decode()


def _read_labels(registration: Mapping[str, Any]) -> dict[str, str]:
    for argument in maps_at(registration, "kubeletExtraArgs"):
        if argument.get("name") == "node-labels":
            pairs = (part.partition("=") for part in text_at(argument, "value").split(","))
            return {name: value for name, _, value in pairs if name}
    return {}
