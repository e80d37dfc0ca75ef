"""One machine on the real KubeVirt: it boots, answers at its address, reboots, gets a new disk."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from lab.guest.serve import deploy
from lab.kubevirt.install import KubeVirtInstaller
from tools.cluster.docker import ensure_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl, is_condition_true
from tools.cluster.progress import format_seconds, open_progress
from tools.demo.follow import Follower
from tools.dev.images import load_operator
from tools.dev.install import Release, install
from tools.dev.options import find_target
from tools.images import check_needs

OPERATORS: Final = ("ipam", "compute")
_MANIFESTS: Final = Path(__file__).with_name("kubevirt.yaml")
_NAME: Final = "guest"
_VALUES: Final = {"ipam": ["settings.announcement=ExternalIPs"]}
"""The nodes of a kind cluster route the addresses, so no load balancer is needed."""
_SECONDS: Final = 600.0
"""Software emulation on a busy machine is slow."""
_VIEW: Final = ("instances,ipclaims",)
_TASKS: Final = ("operations,instances",)


class KubeVirtDemo:
    """The demo of one machine in chapters.

    Args:
        cluster: Cluster with KubeVirt, the operators and the guest image.
        namespace: Where the objects are created.
        console: Console for the output.
    """

    def __init__(self, cluster: KindCluster, namespace: str, console: Console) -> None:
        """Keep the arguments."""
        self._cluster = cluster
        self._kubectl: Kubectl = cluster.kubectl()
        self._where = ("--namespace", namespace)
        self._console = console
        self._follower = Follower(self._kubectl, namespace, console)

    def run(self) -> None:
        """Show all chapters.

        Raises:
            ToolError: A chapter did not complete in time.
        """
        self._follower.say(
            "Creating a machine: CDI fills its disk from an image, then the machine boots"
        )
        self._kubectl.read("apply", *self._where, "--filename", _MANIFESTS)
        self._follower.follow(_VIEW, self._answers, seconds=_SECONDS)
        self._show_page("Opening the page of the guest at its public address")
        self._operate("reboot", "Reboot", "Rebooting the machine")
        self._show_page("The page counts two boots of the disk")
        self._operate(
            "rebuild",
            "Rebuild",
            "Rebuilding the machine: CDI fills a new disk while the machine runs",
        )
        self._show_page("The page counts one boot of the new disk")
        self._delete()

    def _operate(self, name: str, type_: str, title: str) -> None:
        self._follower.say(title)
        manifest = {
            "apiVersion": "compute.slipway.dev/v1alpha1",
            "kind": "Operation",
            "metadata": {"name": name},
            "spec": {"type": type_, "targetRef": {"name": _NAME}},
        }
        self._kubectl.read("apply", *self._where, "--filename", "-", stdin=json.dumps(manifest))

        def is_over() -> bool:
            return self._is_over(name) and self._answers()

        self._follower.follow(_TASKS, is_over, seconds=_SECONDS)

    def _delete(self) -> None:
        self._follower.say("Deleting the machine, its disk and its address")
        what = ("delete", "--wait=false", "--ignore-not-found", "--filename", _MANIFESTS)
        self._kubectl.read(*what, *self._where)
        self._follower.follow(_VIEW, self._is_empty, seconds=_SECONDS)
        self._kubectl.read("delete", "operations", "--all", *self._where, seconds=120.0)

    def _show_page(self, title: str) -> None:
        self._follower.say(title)
        address = self._address()
        self._console.print(f"[dim]$ curl http://{address}/[/dim]")
        self._console.print(self._fetch(address).rstrip(), highlight=False)

    def _is_over(self, name: str) -> bool:
        operation = self._get("operation", name)
        if is_condition_true(operation, "Complete"):
            if operation["status"]["phase"] != "Succeeded":
                raise ToolError(f"Operation {name}: {operation['status'].get('message')}")
            return True
        return False

    def _answers(self) -> bool:
        """Return whether the machine is Ready and its page is served at its address."""
        ready = is_condition_true(self._get("instance", _NAME))
        return ready and "boots" in self._fetch(self._address())

    def _is_empty(self) -> bool:
        return not self._kubectl.items(_VIEW[0], *self._where)

    def _address(self) -> str:
        status: dict[str, Any] = self._get("ipclaim", _NAME).get("status") or {}
        return str(status.get("address", ""))

    def _get(self, kind: str, name: str) -> dict[str, Any]:
        return self._kubectl.get(kind, name, *self._where)

    def _fetch(self, address: str) -> str:
        """Fetch the page of the guest from the node; empty while it does not answer."""
        docker = ensure_docker(open_progress("demo"), self._cluster.cache)
        command = ("exec", f"{self._cluster.name}-control-plane", "curl", "--silent", "--max-time")
        try:
            return docker.read(*command, "3", f"http://{address}/", seconds=20.0)
        except ToolError:
            return ""


def run_kubevirt_demo(
    *, namespace: str, name: str, folder: Path | None = None, build: bool = True
) -> None:
    """Bring up a kind cluster with KubeVirt and the operators, and show one machine.

    Args:
        namespace: Where the objects are created.
        name: Name of the kind cluster.
        folder: Images and manifests of KubeVirt and CDI; None takes the published releases.
        build: Build the images of the operators; otherwise take those that were built last.

    Raises:
        ToolError: A step failed.
    """
    started = time.monotonic()
    progress, console = open_progress("demo"), Console(highlight=False)
    if build:
        check_needs(progress)
    cluster = KindCluster(name)
    cluster.up(progress)
    KubeVirtInstaller(cluster, progress).install(folder)
    deploy(cluster, progress)
    target = find_target(None, None, name)
    for operator in OPERATORS:
        image = load_operator(operator, cluster, progress, build=build)
        install(Release(operator, namespace), target, image, progress, _VALUES.get(operator, []))
    KubeVirtDemo(cluster, namespace, console).run()
    took = format_seconds(time.monotonic() - started)
    console.print(f"\nDone after {took}. The machine ran on the real KubeVirt.")
    console.print("Next: docs/howto/kubevirt.md, docs/howto/instances.md, docs/howto/operations.md")
