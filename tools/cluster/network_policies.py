"""Enforcement of NetworkPolicies on a kind cluster with locally built nodes.

The bridge between the pods of such a node enforces nothing. The firewall of kube-router, which runs
on each node next to the bridge, enforces policies with iptables and ipset. kind's own node image
needs no addition: its network plugin enforces policies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.cluster import debian
from tools.cluster.binaries import ensure_tool
from tools.cluster.cache import Cache, digest_of
from tools.cluster.errors import ToolError
from tools.cluster.image_archive import Entry, write_archive
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kind_config import load_base
from tools.cluster.kubectl import Kubectl, render_list
from tools.cluster.progress import Progress
from tools.cluster.versions import DEBIAN

NAME: Final = "slipway-network-policies"
"""Name of the DaemonSet and of the objects with its permissions."""

_NAMESPACE: Final = "kube-system"
_SCRIPTS: Final = tuple(
    Path(__file__).parent / "kube_router" / name for name in ("check.sh", "clean.sh", "run.sh")
)
_PACKAGES: Final = ("busybox-static", "ipset", "iptables")
"""Packages of the node's Debian release, so that the kubelet runs the same version of iptables."""
_KEPT: Final = (
    "bin/busybox",
    "usr/sbin/xtables-nft-multi",
    "sbin/ipset",
    "usr/sbin/ipset",
    "lib/*-linux-gnu/*.so*",
    "lib64/*.so*",
    "usr/lib/*-linux-gnu/*.so*",
    "usr/lib/*-linux-gnu/xtables/*.so",
)
_APPLETS: Final = ("cat", "echo", "grep", "sed", "sh")
_IPTABLES: Final = ("iptables", "iptables-restore", "iptables-save")
_SIMULATED_NODE: Final = "sim.slipway.dev/node"
"""Label of the nodes that the simulator of KubeVirt plays; no kubelet runs pods there."""
_READY_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.5
_APPLY: Final = ("apply", "--server-side", "--force-conflicts", "--filename", "-")

type Manifest = dict[str, Any]


class NotEnforceable(ToolError):
    """The kernel of this machine lacks something that kube-router needs."""


def install_network_policies(cluster: KindCluster, progress: Progress) -> None:
    """Have NetworkPolicies enforced on every node of a running kind cluster.

    Raises:
        NotEnforceable: The kernel lacks what kube-router needs; nothing remains installed.
        ToolError: The image cannot be built, or a node does not become ready.
    """
    created = cluster.created()
    if created is not None and not created.local_image:
        progress.say("The network plugin of this cluster enforces NetworkPolicies itself.")
        return
    program = ensure_tool("kube-router", progress, cluster.cache)
    # The directory of the program is named by what the program is made from.
    key = digest_of(program.parent.name, Path(__file__), *_SCRIPTS, DEBIAN)
    image = f"docker.io/slipway/kube-router:{key}"
    kubectl = cluster.kubectl()
    if image not in _find_images(kubectl):
        archive = _ensure_archive(program, image, key, progress, cluster.cache)
        cluster.load_archive(archive, "kube-router", "10 s", progress)
    with progress.step("Enforcement of NetworkPolicies", "10 s"):
        kubectl.read(*_APPLY, stdin=render_list(build_manifests(image)))
        try:
            _wait_until_ready(kubectl)
        except NotEnforceable:
            _delete(kubectl)
            raise


def remove_network_policies(cluster: KindCluster, progress: Progress) -> None:
    """Have NetworkPolicies no longer enforced; the nodes keep none of the rules.

    Raises:
        ToolError: The pods do not end.
    """
    with progress.step("Removing the enforcement of NetworkPolicies", "5 s"):
        _delete(cluster.kubectl())


def is_installed(cluster: KindCluster) -> bool:
    """Return whether the addition is installed in a cluster."""
    return bool(_find_images(cluster.kubectl()))


def build_manifests(image: str) -> list[Manifest]:
    """Build the objects that run kube-router on each node.

    Args:
        image: Image with kube-router.
    """
    rules = [
        ("", ["endpoints", "namespaces", "nodes", "pods", "services"]),
        ("discovery.k8s.io", ["endpointslices"]),
        ("networking.k8s.io", ["networkpolicies"]),
    ]
    return [
        _build("v1", "ServiceAccount", {}, namespace=_NAMESPACE),
        _build(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            {
                "rules": [
                    {"apiGroups": [group], "resources": kinds, "verbs": ["get", "list", "watch"]}
                    for group, kinds in rules
                ]
            },
        ),
        _build(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            {
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": NAME,
                },
                "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": _NAMESPACE}],
            },
        ),
        _build("apps/v1", "DaemonSet", {"spec": _build_daemon_set(image)}, namespace=_NAMESPACE),
    ]


def find_refusal(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return what the kernel of a node lacks, or an empty string."""
    for pod in pods:
        for status in pod.get("status", {}).get("initContainerStatuses") or ():
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                ended = state.get("terminated") or {}
                if ended.get("exitCode"):
                    # What follows the first line is advice on the usage of the program.
                    return str(ended.get("message") or ended.get("reason")).strip().splitlines()[0]
    return ""


def _build_daemon_set(image: str) -> Manifest:
    labels = {"app.kubernetes.io/name": NAME}
    real = {"matchExpressions": [{"key": _SIMULATED_NODE, "operator": "DoesNotExist"}]}
    common = {
        "image": image,
        "imagePullPolicy": "Never",
        # It changes the rules of the kernel, for the network of its node.
        "securityContext": {"privileged": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    check = {**common, "name": "check", "command": ["/check.sh"]}
    firewall = {
        **common,
        "name": "kube-router",
        "command": ["/run.sh"],
        "args": [
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--enable-ipv4=true",
            "--enable-ipv6=false",
            f"--service-cluster-ip-range={load_base()['networking']['serviceSubnet']}",
            "--hostname-override=$(NODE)",
            "--metrics-port=0",
            "--health-port=0",
        ],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        # The first synchronization writes this rule, together with the rules of all policies.
        "startupProbe": {
            "exec": {"command": ["sh", "-c", "iptables -S KUBE-ROUTER-FORWARD | grep 0x20000"]},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [real]}
            }
        },
        "initContainers": [check],
        "containers": [firewall],
    }
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }


def _build(api_version: str, kind: str, fields: Manifest, *, namespace: str = "") -> Manifest:
    metadata = {"name": NAME} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _ensure_archive(program: Path, image: str, key: str, progress: Progress, cache: Cache) -> Path:
    def build(directory: Path) -> None:
        with progress.step("Image of kube-router from Debian packages", "15 s, once"):
            debian.install_packages(["mmdebstrap"], progress)
            root = directory / "root"
            command = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"]
            command += [f"--include={','.join(_PACKAGES)}", DEBIAN, str(root)]
            progress.run([*command, *debian.list_sources(DEBIAN)])
            entries = [*_list_entries(root), Entry("/kube-router", program)]
            write_archive(directory / "kube-router.tar", entries, [image])
            progress.run(["rm", "-rf", str(root)])

    return cache.ensure("kube-router-image", key, build) / "kube-router.tar"


def _list_entries(root: Path) -> list[Entry]:
    """Return what the image holds of extracted packages, with the links that they expect."""
    entries = [
        Entry("/tmp", mode=0o1777),
        Entry("/run", mode=0o755),
        *(Entry(f"/{script.name}", script) for script in _SCRIPTS),
        *(Entry(f"/bin/{name}", link="busybox") for name in _APPLETS),
        *(Entry(f"/usr/sbin/{name}", link="xtables-nft-multi") for name in _IPTABLES),
    ]
    for path in sorted({path for pattern in _KEPT for path in root.glob(pattern)}):
        name = f"/{path.relative_to(root)}"
        if path.is_symlink():
            entries.append(Entry(name, link=str(path.readlink())))
        elif path.is_file():
            entries.append(Entry(name, path))
    return entries


def _find_images(kubectl: Kubectl) -> set[str]:
    """Return the images of the DaemonSet, which the nodes then have."""
    found = kubectl.items(
        *("daemonsets", "--namespace", _NAMESPACE, "--field-selector", f"metadata.name={NAME}")
    )
    return {
        container["image"]
        for daemon_set in found
        for container in daemon_set["spec"]["template"]["spec"]["containers"]
    }


def _wait_until_ready(kubectl: Kubectl) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    selector = ("--namespace", _NAMESPACE, "--selector", f"app.kubernetes.io/name={NAME}")
    while True:
        if reason := find_refusal(kubectl.items("pods", *selector)):
            raise NotEnforceable(f"The kernel cannot enforce NetworkPolicies: {reason}")
        found = kubectl.get("daemonset", NAME, "--namespace", _NAMESPACE)
        if _is_rolled_out(found):
            return
        if time.monotonic() > deadline:
            raise ToolError(
                f"NetworkPolicies are not enforced after {_READY_SECONDS:g} s: see the pods of"
                f" DaemonSet {NAME} in namespace {_NAMESPACE}"
            )
        time.sleep(_POLL_SECONDS)


def _is_rolled_out(daemon_set: Mapping[str, Any]) -> bool:
    status = daemon_set.get("status") or {}
    if status.get("observedGeneration") != daemon_set["metadata"]["generation"]:
        return False
    wanted: int = status.get("desiredNumberScheduled", 0)
    return 0 < wanted == status.get("updatedNumberScheduled") == status.get("numberReady")


def _delete(kubectl: Kubectl) -> None:
    # The pods remove their rules before they end, and need no permissions for it.
    what = ("delete", "--ignore-not-found", "--timeout=60s")
    daemon_set = ("daemonset", NAME, "--namespace", _NAMESPACE, "--cascade=foreground")
    kubectl.read(*what, *daemon_set, seconds=70.0)
    kubectl.read(*what, f"clusterrole/{NAME}", f"clusterrolebinding/{NAME}", seconds=70.0)
    kubectl.read(*what, "serviceaccount", NAME, "--namespace", _NAMESPACE, seconds=70.0)
