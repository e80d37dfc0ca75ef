"""The peer of ipam: the in-cluster IPAM provider of Cluster API, built from its Go module."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from libs.common.client import Client
from libs.common.kinds import Kind, Manifest, build_object
from libs.common.reading import text_at
from libs.common.testing.serving import serve
from tools.cluster.binaries import ensure_tool
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress

NAME: Final = "Cluster API in-cluster IPAM v1.1.0"
"""What the peer is called in tables."""
CLAIM: Final = Kind("ipam.cluster.x-k8s.io", "v1beta2", "IPAddressClaim", "ipaddressclaims")
"""What the peer gives addresses to."""
POOL: Final = Kind(
    "ipam.cluster.x-k8s.io",
    "v1alpha2",
    "GlobalInClusterIPPool",
    "globalinclusterippools",
    namespaced=False,
)
"""Where its addresses come from."""
_MODULES: Final = (
    ("sigs.k8s.io/cluster-api@v1.11.2", ("ipam.*.yaml", "cluster.x-k8s.io_clusters.yaml")),
    ("sigs.k8s.io/cluster-api-ipam-provider-in-cluster@v1.1.0", ("ipam.*.yaml",)),
)
"""Modules that carry the CRDs which the provider reads, and which of theirs those are."""
_STOP_SECONDS: Final = 15.0


def build_claim(name: str, namespace: str, pool: str) -> Manifest:
    """Build a claim of a pool."""
    reference = {"apiGroup": POOL.group, "kind": POOL.kind, "name": pool}
    return build_object(CLAIM, name, namespace, spec={"poolRef": reference})


def is_served(claim: Manifest) -> bool:
    """Return whether a claim has an address."""
    return bool(text_at(claim, "status", "addressRef", "name"))


async def install(client: Client) -> None:
    """Serve the kinds of the provider."""
    go = ensure_go(open_progress("cluster-api-ipam"))
    for module, patterns in _MODULES:
        folder = go.module_directory(module) / "config/crd/bases"
        paths = sorted({path for pattern in patterns for path in folder.glob(pattern)})
        await serve(client, *(yaml.safe_load(path.read_text()) for path in paths))


def build_pool(name: str, block: str) -> Manifest:
    """Build a pool of one block, such as 10.96.0.0/17."""
    network, _, prefix = block.partition("/")
    return build_object(
        POOL,
        name,
        spec={
            "addresses": [block],
            "prefix": int(prefix),
            "gateway": f"{network.rpartition('.')[0]}.1",
        },
    )


@contextmanager
def running(kubeconfig: Path, log: Path) -> Iterator[int]:
    """Run the provider as it is released; yields its process id."""
    command = [
        str(ensure_tool("cluster-api-ipam")),
        "--webhook-port=0",
        "--health-probe-bind-address=0",
        "--diagnostics-address=0",
    ]
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command, env=os.environ | {"KUBECONFIG": str(kubeconfig)}, stdout=stream, stderr=stream
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)
