"""A CSI driver with snapshots, clones and growth for a kind cluster, whose own storage has none.

The driver is `csi_driver`, because the drivers for tests that the Kubernetes project publishes are
not on the Go module proxy. The sidecars, the snapshot controller and the CRDs are the ones that
every driver is installed with, built from their Go modules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tools.cluster.binaries import ensure_tool
from tools.cluster.cache import Cache, digest_of
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import Progress
from tools.cluster.versions import SNAPSHOT_CLIENT

DRIVER: Final = "tmpfs.csi.slipway.dev"
NAME: Final = "slipway-csi"
"""Namespace, Deployment, StorageClass and VolumeSnapshotClass of the driver."""
PROGRAMS: Final = (
    "csi-driver",
    "csi-provisioner",
    "csi-resizer",
    "csi-snapshotter",
    "snapshot-controller",
)
"""Programs in the image, by their names as tools; each runs in a container of that name."""

_KUBELET: Final = "/var/lib/kubelet"
_DATA: Final = "/var/lib/slipway-csi"
_SOCKET: Final = f"{_KUBELET}/plugins/{DRIVER}/csi.sock"
_READY_SECONDS: Final = 180
_APPLY: Final = ("apply", "--server-side", "--force-conflicts", "--filename")
_CRDS: Final = ("volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots")

type Manifest = dict[str, Any]


def install_csi(cluster: KindCluster, progress: Progress) -> None:
    """Install the driver into a running kind cluster and wait until it is ready.

    Raises:
        ToolError: A program cannot be built, or the driver does not become ready.
    """
    programs = [ensure_tool(name, progress, cluster.cache) for name in PROGRAMS]
    # The directories of the programs are named by what the programs are made from.
    key = digest_of(*(path.parent.name for path in programs))
    image = f"docker.io/slipway/csi:{key}"
    kubectl = cluster.kubectl()
    if image not in _find_images(kubectl):
        archive = _ensure_archive(programs, image, key, progress, cluster.cache)
        cluster.load_archive(archive, "the CSI driver", "20 s", progress)
    with progress.step("CSI driver with its sidecars", "20 s"):
        for crd in _find_crds(progress, cluster.cache):
            kubectl.read(*_APPLY, crd)
        kubectl.read(
            *("wait", "--for=condition=Established", "--timeout=60s"),
            *(f"crd/{name}.snapshot.storage.k8s.io" for name in _CRDS),
            seconds=70.0,
        )
        listing = {"apiVersion": "v1", "kind": "List", "items": build_manifests(image)}
        kubectl.read(*_APPLY, "-", stdin=json.dumps(listing))
        status = ("rollout", "status", f"deployment/{NAME}", "--namespace", NAME)
        timeout = f"--timeout={_READY_SECONDS}s"
        kubectl.read(*status, timeout, seconds=_READY_SECONDS + 10.0)


def build_manifests(image: str) -> list[Manifest]:
    """Build the objects of the driver, except the CRDs of snapshots.

    Args:
        image: Image with all programs.
    """
    return [
        _build("v1", "Namespace", {}, namespace=""),
        _build("v1", "ServiceAccount", {}),
        # A cluster for tests, and a driver that is root on its node: nothing is won by less.
        _build(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            {
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAME}],
            },
            namespace="",
        ),
        _build(
            "storage.k8s.io/v1",
            "CSIDriver",
            {"spec": {"attachRequired": False, "volumeLifecycleModes": ["Persistent"]}},
            name=DRIVER,
            namespace="",
        ),
        _build(
            "storage.k8s.io/v1",
            "StorageClass",
            {"provisioner": DRIVER, "allowVolumeExpansion": True, "reclaimPolicy": "Delete"},
            namespace="",
        ),
        _build(
            "snapshot.storage.k8s.io/v1",
            "VolumeSnapshotClass",
            {"driver": DRIVER, "deletionPolicy": "Delete"},
            namespace="",
        ),
        _build("apps/v1", "Deployment", {"spec": _build_deployment(image)}),
    ]


def _build_deployment(image: str) -> Manifest:
    labels = {"app.kubernetes.io/name": NAME}
    sidecars = [
        {
            **_build_container(image, name, f"--csi-address={_SOCKET}"),
            "volumeMounts": [{"name": "plugin", "mountPath": str(Path(_SOCKET).parent)}],
        }
        for name in ("csi-provisioner", "csi-resizer", "csi-snapshotter")
    ]
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "containers": [
            _build_driver(image),
            *sidecars,
            # It waits half a minute for CRDs of group snapshots, which the driver does not support.
            _build_container(
                image, "snapshot-controller", "--feature-gates=CSIVolumeGroupSnapshot=false"
            ),
        ],
        "volumes": [
            {"name": "kubelet", "hostPath": {"path": _KUBELET, "type": "Directory"}},
            {"name": "data", "hostPath": {"path": _DATA, "type": "DirectoryOrCreate"}},
            {
                "name": "plugin",
                "hostPath": {"path": str(Path(_SOCKET).parent), "type": "DirectoryOrCreate"},
            },
        ],
    }
    return {
        # Two drivers must not share the socket and the data of one.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }


def _build_driver(image: str) -> Manifest:
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return {
        **_build_container(
            image,
            "csi-driver",
            f"--name={DRIVER}",
            "--node=$(NODE)",
            f"--data={_DATA}",
            f"--endpoint={_SOCKET}",
            f"--registry={_KUBELET}/plugins_registry",
        ),
        "env": [node],
        # Its mounts must be seen by the kubelet, and by the driver after a restart.
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "kubelet", "mountPath": _KUBELET, "mountPropagation": "Bidirectional"},
            {"name": "data", "mountPath": _DATA, "mountPropagation": "Bidirectional"},
        ],
    }


def _build_container(image: str, program: str, *args: str) -> Manifest:
    return {
        "name": program,
        "image": image,
        "imagePullPolicy": "Never",
        "command": [f"/{program}"],
        "args": list(args),
    }


def _build(
    api_version: str,
    kind: str,
    fields: Manifest,
    *,
    name: str = NAME,
    namespace: str = NAME,
) -> Manifest:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _ensure_archive(
    programs: list[Path], image: str, key: str, progress: Progress, cache: Cache
) -> Path:
    def build(directory: Path) -> None:
        entries = [Entry("/tmp", mode=0o1777), *(Entry(f"/{each.name}", each) for each in programs)]
        with progress.step("Image of the CSI driver", "a few seconds"):
            write_archive(directory / "csi.tar", entries, [image])

    return cache.ensure("csi-image", key, build) / "csi.tar"


def _find_images(kubectl: Kubectl) -> set[str]:
    """Return the images of the Deployment, which the nodes then have."""
    found = kubectl.items("deployments", "--namespace", NAME)
    return {
        container["image"]
        for deployment in found
        for container in deployment["spec"]["template"]["spec"]["containers"]
    }


def _find_crds(progress: Progress, cache: Cache) -> list[Path]:
    folder = ensure_go(progress, cache).module_directory(SNAPSHOT_CLIENT) / "config" / "crd"
    return [folder / f"snapshot.storage.k8s.io_{name}.yaml" for name in _CRDS]
