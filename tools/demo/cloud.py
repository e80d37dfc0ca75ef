"""The cloud in one run: a Kubernetes cluster of machines, which move, reboot, are rebuilt, and go.

The machines are simulated: no kind cluster on a common machine can run real ones. Everything else
is as it would be, and `kubectl get` shows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from lab.kubevirt_sim.command import deploy_simulator, refuse_real
from lab.kubevirt_sim.deployment import GUEST_PORT, service_name
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import is_condition_true
from tools.cluster.progress import format_seconds, open_progress
from tools.demo.follow import Follower
from tools.dev.images import load_operator
from tools.dev.install import Release, install
from tools.dev.options import Target, find_target, hint_cluster
from tools.images import check_needs

OPERATORS: Final = ("ipam", "network", "compute", "clusters")
"""The operators that make a cloud, in the order in which they need each other."""
_MANIFESTS: Final = Path(__file__).with_name("cloud.yaml")
_POOL: Final = "demo-public"
_CLUSTER: Final = "edge"
_NODE: Final = "edge-web-0"
_OTHER: Final = "edge-web-1"
_VIEW: Final = ("kubernetesclusters,instances",)
_TASKS: Final = ("operations,instances",)


class CloudDemo:
    """The demo of the cloud in chapters, each of which can fail separately.

    Args:
        target: Cluster with the operators.
        namespace: Where everything is made.
        console: Console for the output.
    """

    def __init__(self, target: Target, namespace: str, console: Console) -> None:
        """Keep the arguments."""
        self._kubectl = target.kubectl
        self._namespace = namespace
        self._follower = Follower(target.kubectl, namespace, console)

    def run(self) -> None:
        """Show all chapters, from an empty pool to an empty pool.

        Raises:
            ToolError: Something did not come to be in time.
        """
        self._build()
        self._move()
        self._reboot()
        self._rebuild()
        self._delete()

    def _build(self) -> None:
        self._follower.say("Creating a cluster with one control plane node and two worker nodes")
        self._apply("--filename", str(_MANIFESTS))
        self._follower.follow(_VIEW, self._is_ready, seconds=240)
        self._follower.show("ippools.ipam.slipway.dev,ipclaims")

    def _move(self) -> None:
        self._follower.say(f"Migrating {_NODE} to another node; its address follows")
        before = self._get("ipclaim", "shop")["status"]["binding"]["nodeName"]
        self._operate("move", "Migrate", _NODE)

        def moved() -> bool:
            binding = self._get("ipclaim", "shop")["status"].get("binding") or {}
            there = binding.get("state") == "Bound" and binding.get("nodeName") != before
            return there and self._is_over("move")

        self._follower.follow(("operations,ipclaims", "--output=wide"), moved, seconds=180)

    def _reboot(self) -> None:
        self._follower.say(f"Rebooting {_NODE}, exactly once")
        self._operate("reboot", "Reboot", _NODE)
        self._follower.follow(_TASKS, lambda: self._is_over("reboot"), seconds=180)

    def _rebuild(self) -> None:
        self._follower.say(
            f"Draining {_OTHER} and rebuilding it with a new disk; it joins the cluster again"
        )
        self._patch([{"node": _OTHER, "token": "demo"}])

        def rebuilt() -> bool:
            notes = self._get("instance", _OTHER)["metadata"].get("annotations") or {}
            done = notes.get("clusters.slipway.dev/recycled") == "demo"
            return done and self._is_ready()

        what = ("kubernetesclusters,operations,instances",)
        self._follower.follow(what, rebuilt, seconds=300)

    def _delete(self) -> None:
        self._follower.say("Deleting the cluster: nodes, control plane, address, Secrets")
        self._kubectl.read(
            "delete",
            "kubernetescluster/edge",
            "ipclaim/shop",
            "--wait=false",
            "--namespace",
            self._namespace,
        )
        self._follower.follow(
            ("kubernetesclusters,instances,ipclaims",), self._is_empty, seconds=240
        )
        self._delete_operations()
        self._follower.say("Every address is free again")
        self._follower.show("ippools.ipam.slipway.dev", _POOL)

    def _is_ready(self) -> bool:
        cluster = self._get("kubernetescluster", _CLUSTER)
        status = cluster.get("status") or {}
        current = status.get("observedGeneration") == cluster["metadata"]["generation"]
        claims = self._kubectl.items("ipclaims", "--namespace", self._namespace)
        bound = all(is_condition_true(claim, "Bound") for claim in claims)
        return is_condition_true(cluster) and current and bound

    def _is_over(self, name: str) -> bool:
        status = self._get("operation", name).get("status") or {}
        return is_condition_true({"status": status}, "Complete")

    def _is_empty(self) -> bool:
        items = self._kubectl.items(
            "kubernetesclusters,instances,ipclaims", "--namespace", self._namespace
        )
        free = self._get("ippool", _POOL)["status"]["capacity"]
        return not items and free["free"] == free["total"]

    def _get(self, kind: str, name: str) -> dict[str, Any]:
        return self._kubectl.get(kind, name, "--namespace", self._namespace)

    def _apply(self, *arguments: str, stdin: str | None = None) -> None:
        self._kubectl.read("apply", "--namespace", self._namespace, *arguments, stdin=stdin)

    def _operate(self, name: str, type_: str, node: str) -> None:
        manifest = {
            "apiVersion": "compute.slipway.dev/v1alpha1",
            "kind": "Operation",
            "metadata": {"name": name},
            "spec": {"type": type_, "targetRef": {"name": node}},
        }
        self._apply("--filename", "-", stdin=json.dumps(manifest))

    def _patch(self, recycle: list[Mapping[str, str]]) -> None:
        patch = json.dumps({"spec": {"recycle": recycle}})
        what = ("patch", f"kubernetescluster/{_CLUSTER}", "--type=merge", f"--patch={patch}")
        self._kubectl.read(*what, "--namespace", self._namespace)

    def _delete_operations(self) -> None:
        what = ("delete", "operations", "--all", "--namespace", self._namespace)
        self._kubectl.read(*what, seconds=120)


def run_cloud_demo(*, namespace: str, name: str, build: bool = True) -> None:
    """Bring up a kind cluster with simulated machines and the operators, and show the cloud.

    `build` False takes the images that were built last.

    Raises:
        ToolError: A step failed.
    """
    started = time.monotonic()
    progress, console = open_progress("demo"), Console(highlight=False)
    if build:
        check_needs(progress)
    KindCluster(name).up(progress)
    target = find_target(None, None, name)
    assert target.kind is not None, "KindCluster.up creates a kind cluster"
    refuse_real(target)
    deploy_simulator(target, progress, speed=2.0, load_balancer="MetalLB", build=build)
    for operator in OPERATORS:
        image = load_operator(operator, target.kind, progress, build=build)
        install(Release(operator, namespace), target, image, progress, list_values(operator))
    CloudDemo(target, namespace, console).run()
    took = format_seconds(time.monotonic() - started)
    console.print(f"\nDone after {took}. Machines were simulated: no packet was sent to one.")
    console.print("Next:")
    hints = (
        *hint_cluster(name),
        (f"./dev kubectl get events -n {namespace}", "Events of the operators"),
        ("ls operators/*/examples", "more manifests to apply"),
        ("./dev kubectl get nodes", "the simulated nodes and the real node"),
        ("./dev kubevirt-sim --remove", "remove the simulator and its nodes"),
        ("./dev down", "remove the cluster"),
    )
    width = max(len(command) for command, _ in hints)
    for command, why in hints:
        console.print(f"  {command:<{width}}  # {why}", markup=False, soft_wrap=True)
    console.print("Pages: docs/tutorial/cloud.md, docs/howto/clusters.md, docs/howto/operations.md")


def list_values(operator: str) -> list[str]:
    """List the values that a chart needs on the cluster of the demo, with simulated machines."""
    if operator != "clusters":
        return []
    # The guests are simulated: their API is where the simulator is, not where their machines are.
    url = f"https://{service_name()}:{GUEST_PORT}"
    return [f"settings.apiUrl={url}", "settings.apiPollSeconds=3"]
