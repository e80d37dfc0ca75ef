"""The pictures of the documentation: `python -m tools.site.pictures` writes docs/images.

They are files, so that they show in the repository, on the site and without a network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tools.site.drawing import Drawing, draw_sequence
from tools.site.graphs import draw_dashboard

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "images"


def draw_slots() -> Drawing:
    """Draw the slots of a PodSet before and after a pod is replaced."""
    picture = Drawing(
        "Slots of a PodSet: a new pod takes the name of the lowest free slot", 940, 300
    )
    rows = (
        (40, "replicas: 3", ("pod-0", "pod-1", "pod-2", "")),
        (130, "pod-1 is being deleted", ("pod-0", "pod-1", "pod-2", "pod-3")),
        (220, "pod-1 has terminated", ("pod-0", "", "pod-2", "pod-3")),
    )
    for column in range(4):
        picture.label(285 + column * 170, 22, f"slot {column}")
    for y, what, pods in rows:
        picture.label(20, y + 34, what, anchor="start")
        for column, pod in enumerate(pods):
            x = 210 + column * 170
            if not pod:
                picture.box(x, y, 150, 56, "free\nnext pod starts here" if column == 1 else "free")
            elif pod == "pod-1" and y > 100:
                picture.box(x, y, 150, 56, "demo-pod-1\nterminating", "gone")
            elif pod == "pod-3":
                picture.box(x, y, 150, 56, "demo-pod-3\nreplaces pod-1", "object")
            else:
                picture.box(x, y, 150, 56, f"demo-{pod}\nready", "object")
    return picture


def draw_address() -> Drawing:
    """Draw how an address follows a virtual machine."""
    picture = Drawing(
        "The address of an IPClaim follows a virtual machine to its new node", 960, 330
    )
    picture.box(20, 130, 150, 60, "Client\n203.0.113.7", "plain")
    picture.box(230, 130, 190, 60, "Service, EndpointSlice\none endpoint", "object")
    picture.box(230, 20, 190, 56, "IPClaim\ntarget: Instance/web", "object")
    picture.box(20, 20, 150, 56, "IPPool\n203.0.113.0/28", "object")
    picture.box(480, 20, 150, 56, "ipam", "operator")
    picture.box(690, 12, 250, 140, "node-1", "group")
    picture.box(715, 46, 200, 80, "launcher pod\nInstance web,\nbefore the migration", "gone")
    picture.box(690, 176, 250, 140, "node-2", "group")
    picture.box(715, 210, 200, 80, "launcher pod\nInstance web,\nafter the migration", "object")
    picture.arrow((170, 48), (226, 48))
    picture.arrow((480, 48), (424, 48))
    picture.arrow((555, 76), (555, 145), (424, 145))
    picture.label(545, 128, "writes the endpoint", anchor="end")
    picture.arrow((170, 160), (226, 160))
    picture.arrow((420, 172), (650, 172), (650, 90), (711, 90), dashed=True)
    picture.arrow((420, 182), (650, 182), (650, 250), (711, 250))
    picture.label(
        20, 250, "ipam follows the VirtualMachineInstance, not the readiness of pods:", "start"
    )
    picture.label(
        20, 270, "traffic stays on the source until the migration has completed,", "start"
    )
    picture.label(20, 290, "then the operator writes the new endpoint once.", "start")
    return picture


def draw_injection() -> Drawing:
    """Draw how metrics get into a running JVM."""
    picture = Drawing(
        "The injector loads the exporter into a running JVM without a restart", 960, 330
    )
    picture.box(20, 130, 200, 70, "jmxexporter\nPrometheusJmxExporter", "operator")
    picture.box(300, 20, 430, 290, "Pod of your application", "group")
    picture.box(
        325, 60, 170, 80, "Injector\nephemeral container,\nends after the injection", "operator"
    )
    picture.box(325, 190, 380, 100, "JVM of your application", "group")
    picture.box(520, 226, 170, 50, "Guard\nexporter, own thread", "object")
    picture.box(800, 226, 140, 50, "Prometheus", "plain")
    picture.arrow((220, 150), (270, 150), (270, 100), (321, 100))
    picture.label(132, 114, "1. adds the injector", anchor="start")
    picture.arrow((410, 140), (410, 186))
    picture.label(420, 168, "2. attach protocol: loads the guard", anchor="start")
    picture.arrow((495, 84), (770, 84), (770, 12), (120, 12), (120, 126), dashed=True)
    picture.label(745, 76, "3. report", anchor="end")
    picture.arrow((800, 251), (694, 251))
    picture.label(865, 216, "4. scrapes")
    picture.arrow((120, 200), (120, 251), (516, 251), dashed=True)
    picture.label(130, 270, "signed rules", anchor="start")
    return picture


def draw_scaling() -> Drawing:
    """Draw how the backlog of a subscription sets the number of consumers."""
    picture = Drawing("The backlog of a Pulsar subscription sets the number of consumers", 960, 300)
    picture.box(20, 30, 200, 70, "Pulsar broker\nbacklog: 2,300 messages", "plain")
    picture.box(330, 30, 220, 70, "pulsarconsumer\npolls the admin API", "operator")
    picture.box(660, 30, 280, 70, "Deployment\nreplicas: 5", "object")
    picture.arrow((220, 65), (326, 65))
    picture.label(273, 55, "backlog, rates")
    picture.arrow((550, 65), (656, 65))
    picture.label(603, 55, "scales")
    needs = ("backlogPerReplica: 500", "maxBacklogAgeSeconds: 60", "drainTimeSeconds: 300")
    for number, need in enumerate(needs):
        picture.box(20 + number * 215, 150, 200, 56, f"{need}\nneeds {(5, 1, 3)[number]}")
        picture.arrow((120 + number * 215, 150), (440, 104))
    picture.label(
        20,
        240,
        "Each target computes the number of consumers that it needs; the highest wins.",
        "start",
    )
    picture.label(
        20,
        260,
        "The result stays between minReplicas and maxReplicas. With minReplicas 0 the last",
        "start",
    )
    picture.label(
        20, 280, "consumer stops when the backlog has been empty for cooldownSeconds.", "start"
    )
    for number in range(5):
        picture.box(660 + number * 57, 150, 50, 40, str(number + 1), "object")
    picture.label(800, 212, "consumers of one subscription")
    picture.arrow((800, 100), (800, 146))
    return picture


def draw_writers() -> Drawing:
    """Draw which operator of the cloud writes which kinds."""
    picture = Drawing("Who writes which kind: below each operator stands what it writes", 960, 470)
    picture.box(20, 20, 440, 50, "People and pipelines\nwrite every kind of the second row")
    picture.box(500, 20, 440, 50, "Administrators\nwrite IPPool, ProviderNetwork, InstanceSize")
    picture.arrow((240, 70), (240, 106))
    columns = (
        (20, "clusters", "KubernetesCluster"),
        (260, "compute", "Instance, Operation"),
        (500, "ipam", "IPClaim"),
        (740, "network", "Network, Firewall"),
    )
    written = (
        "Instance, Operation,\nIPClaim, Firewall",
        "VirtualMachine, DataVolume,\nIPClaim, Instance directives",
        "IPAllocation, Service,\nEndpointSlice",
        "NetworkPolicy, Network-\nAttachmentDefinition",
    )
    for (x, operator, kinds), children in zip(columns, written, strict=True):
        picture.box(x, 110, 200, 50, kinds, "api")
        picture.box(x + 30, 206, 140, 40, operator, "operator")
        picture.box(x, 292, 200, 60, children, "object")
        picture.arrow((x + 100, 160), (x + 100, 202))
        picture.arrow((x + 100, 246), (x + 100, 288))
    picture.box(260, 400, 200, 50, "launcher pod\nstarted by KubeVirt")
    picture.arrow((360, 352), (360, 396))
    picture.arrow((600, 352), (600, 418), (464, 418), dashed=True)
    picture.label(612, 412, "routes to", anchor="start")
    picture.arrow((840, 352), (840, 436), (464, 436), dashed=True)
    picture.label(852, 430, "restricts", anchor="start")
    return picture


def draw_runtime() -> Drawing:
    """Draw the way of a change through the runtime."""
    picture = Drawing("How a change passes through the runtime of an operator", 960, 360)
    picture.box(20, 20, 130, 320, "API server", "api")
    picture.box(200, 8, 745, 344, "one process of one operator", "group")
    for y, text, how in (
        (40, "kopf\nown thread, read-only", "watch"),
        (116, "reflector\nlist and watch", "list, watch"),
        (192, "sweep\nfinds missed changes", "lists"),
    ):
        picture.box(290, y, 160, 56, text)
        picture.arrow((150, y + 28), (286, y + 28))
        picture.label(246, y + 20, how)
    picture.box(520, 116, 160, 56, "informers\nand stores", "object")
    picture.arrow((450, 68), (600, 68), (600, 112))
    picture.arrow((450, 144), (516, 144))
    picture.arrow((450, 220), (560, 220), (560, 176))
    picture.box(760, 40, 160, 56, "work queue\nkeys of objects", "object")
    picture.arrow((680, 130), (720, 130), (720, 68), (756, 68))
    picture.box(760, 150, 160, 70, "reconcile\nobserve, plan,\nexecute, report", "operator")
    picture.arrow((840, 96), (840, 146))
    picture.arrow((680, 160), (756, 180), dashed=True)
    picture.label(722, 158, "reads")
    picture.box(760, 276, 160, 56, "writer")
    picture.arrow((840, 220), (840, 272))
    picture.arrow((760, 320), (154, 320))
    picture.label(650, 314, "create, apply, patch, delete")
    picture.arrow((760, 290), (640, 290), (640, 176), dashed=True)
    picture.label(648, 240, "responses", anchor="start")
    picture.box(290, 262, 160, 46, "elector\nown thread")
    picture.arrow((290, 285), (154, 285))
    picture.label(246, 277, "Lease")
    return picture


def draw_start() -> Drawing:
    """Draw the writes from an Instance to its running machine."""
    return draw_sequence(
        "Start of a virtual machine",
        ("compute", "Kubernetes API", "network and ipam"),
        (
            "0>1 creates the root disk and the IPClaim",
            "2>1 network: NetworkPolicy, Firewall status",
            "2>1 ipam: IPAllocation, the address",
            "0>1 creates the VirtualMachine",
            "1>1 KubeVirt starts the launcher pod",
            "2>1 ipam: EndpointSlice of the pod",
        ),
    )


def draw_rebuild() -> Drawing:
    """Draw the directives of a Rebuild."""
    return draw_sequence(
        "Rebuild of a virtual machine",
        ("Operation controller", "Instance", "Instance controller"),
        (
            "0>1 directive: prepare a new disk",
            "2>1 status: the disk is filled",
            "0>1 directive: boot from the new disk",
            "2>2 stops, swaps, starts",
            "2>1 status: the machine is ready",
            "0>1 withdraws the directive",
        ),
    )


def draw_operators() -> Drawing:
    """Draw panels of the dashboard about all operators, while a demo changes objects."""
    return draw_dashboard(
        "Dashboard Slipway / Operators: replicas, reconciles, queues, requests, memory",
        "slipway-operators.json",
        (
            *("Replicas up", "Leaders", "Failing reconciles"),
            *("Rate by result", "Duration", "Objects that are not ready"),
            *("Requests by status code", "API request latency", "Memory"),
        ),
    )


def draw_objects(operator: str, *panels: str) -> Drawing:
    """Draw the dashboard of an operator, while its objects change.

    Args:
        operator: Id of the operator.
        panels: Titles of the panels that only this dashboard has.
    """
    return draw_dashboard(
        f"Dashboard Slipway / {operator}: objects, the reasons why some are not ready, reconciles",
        f"{operator}.json",
        (
            *("Replicas up", "Objects", "Objects that are not ready"),
            *("Objects by Ready condition", "Objects that are not ready, by reason"),
            *("Reconciles by result", *panels),
        ),
    )


_OWN_PANELS: Final = {
    "clusters": (
        *("Changes to objects of clusters, by reason", "Steps on Nodes"),
        *("Addons applied", "API response time, 99th percentile"),
    ),
    "compute": (
        "Finished Operations",
        "Operation duration, 95th percentile",
        "Changes to machines, disks and claims",
    ),
    "ipam": (
        "Addresses by pool and state",
        "Waiting claims",
        "Addresses allocated and released",
    ),
    "jmxexporter": ("Injectors started", "Selected pods"),
    "network": (
        "Changes to policies and attachments",
        "Reverted changes by others",
        "Firewall compile time, 99th percentile",
    ),
    "podset": (),
    "pulsarconsumer": (
        *("Backlog", "Age of the oldest message", "Desired consumers"),
        *("Connected consumers", "Broker queries", "Duration of broker queries"),
    ),
    "volumes": ("Changes to claims and snapshots",),
}
"""Panels of the recorded dashboards about the objects of one operator."""

PICTURES: Final[dict[str, Callable[[], Drawing]]] = {
    "slots.svg": draw_slots,
    "address.svg": draw_address,
    "injection.svg": draw_injection,
    "scaling.svg": draw_scaling,
    "writers.svg": draw_writers,
    "runtime.svg": draw_runtime,
    "start.svg": draw_start,
    "rebuild.svg": draw_rebuild,
    "monitoring-operators.svg": draw_operators,
    **{
        f"monitoring-{operator}.svg": partial(draw_objects, operator, *panels)
        for operator, panels in _OWN_PANELS.items()
    },
}


def main() -> int:
    """Write every picture."""
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw().render())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
