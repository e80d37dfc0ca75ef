"""Workload of the jmxexporter operator: JVMs of running pods get, change and lose an endpoint.

No JVM runs here: a kubelet is played that lets each injector end immediately, with the report of
one for which all went well. The injector itself is tried on real JVMs by the tests of the operator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from lab.sweep.components import Component, delete_live
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.workload import (
    Phase,
    User,
    Workload,
    build_open_crd,
    change,
    is_empty,
    is_observed,
    remove,
)
from libs.common.client import Client
from libs.common.crd import build_crd
from libs.common.kinds import (
    CONFIG_MAP,
    ENDPOINT_SLICE,
    POD,
    SERVICE,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.discovery import POD_MONITOR, SERVICE_MONITOR
from operators.jmxexporter.naming import OWNER, PORT, PREFIX
from operators.jmxexporter.pods import Pod
from operators.jmxexporter.samples import (
    answer_well,
    build_config_map,
    build_exporter,
    build_pod,
    build_pod_status,
    build_run_status,
)

_INJECTOR: Final = re.compile(rf"{PREFIX}[0-9a-f]+")
_LIMIT: Final = re.compile(r'(not_after\\*": ?)\d+')


def check_pods(history: Sequence[Version]) -> list[str]:
    """Check that pods only change by added injectors, and that one injector runs at a time."""
    containers: dict[str, Any] = {}
    found = []
    for version in history:
        if version.kind != POD:
            continue
        uid, spec = uid_of(version.manifest), version.manifest["spec"]
        if containers.setdefault(uid, spec["containers"]) != spec["containers"]:
            found.append(f"{version.title} has other containers than before")
        at_work = [run for run in Pod.parse(version.manifest).runs if run.finished is None]
        if len(at_work) > 1:
            found.append(f"{version.title} has {len(at_work)} injectors at work")
    return found


async def _add_pod(user: User, name: str) -> None:
    pod = build_pod(name, nodeName="sweep-node")
    await user.add(POD, {"metadata": {"name": name, "labels": _labels(pod)}, "spec": pod["spec"]})


def _labels(pod: Manifest) -> dict[str, str]:
    return dict(pod["metadata"]["labels"])


async def _create(user: User) -> None:
    config = build_config_map()
    name = config["metadata"]["name"]
    await user.add(CONFIG_MAP, {"metadata": {"name": name}, "data": config["data"]})
    await _add_pod(user, "shop-0")
    spec = build_exporter(service={"monitor": {}}, podMonitor={})["spec"]
    await user.create(PROMETHEUS_JMX_EXPORTER, "jmx", spec)


async def _join(user: User) -> None:
    await _add_pod(user, "shop-1")


async def _change(user: User) -> None:
    spec = {
        "port": 9500,
        "service": {"monitor": {"intervalSeconds": 10}},
        "podMonitor": {"intervalSeconds": 10},
    }
    await user.patch(PROMETHEUS_JMX_EXPORTER, "jmx", {"spec": spec})


_probe = change(PROMETHEUS_JMX_EXPORTER, "jmx", service=None, podMonitor=None)


async def _end(user: User) -> None:
    for pod in await user.list(POD):
        await user.delete(POD, pod["metadata"]["name"])
    await user.delete(CONFIG_MAP, "jmx-config")


def serves(port: int, *names: str, known: bool = True) -> Any:
    """Return a condition: JVMs of these pods serve at a port, and Prometheus can find them.

    Args:
        port: The port.
        names: The pods.
        known: Whether a Service and a ServiceMonitor select them.
    """

    def check(record: NamespaceRecord) -> bool:
        exporter, slices = record.get(PROMETHEUS_JMX_EXPORTER, "jmx"), record.list(ENDPOINT_SLICE)
        addressed = sorted(
            endpoint["targetRef"]["name"] for each in slices for endpoint in each["endpoints"]
        )
        annotations = [pod["metadata"].get("annotations") or {} for pod in record.list(POD)]
        return (
            is_observed(exporter)
            and all(each.get(PORT) == str(port) for each in annotations)
            and addressed == sorted(names if known else ())
            and len(slices)
            == len(record.list(SERVICE))
            == len(record.list(SERVICE_MONITOR))
            == len(record.list(POD_MONITOR))
            == known
        )

    return check


def _is_released(record: NamespaceRecord) -> bool:
    pods = record.list(POD)
    held = [pod for pod in pods if OWNER in (pod["metadata"].get("annotations") or {})]
    return len(pods) == 2 and not held and not record.list(PROMETHEUS_JMX_EXPORTER)


def _needs_kubelet(pod: Manifest, _: NamespaceRecord) -> bool:
    started = (pod.get("status") or {}).get("phase") == "Running"
    waiting = any(run.finished is None for run in Pod.parse(pod).runs)
    return is_deleting(pod) or not started or waiting


async def _tend_pod(client: Client, pod: Manifest, _: NamespaceRecord) -> None:
    if is_deleting(pod):
        await delete_live(client, POD, pod)
        return
    key = key_of(pod)
    status = build_pod_status(key.name, "app")
    status["ephemeralContainerStatuses"] = [
        build_run_status(run, answer_well(run.request, run)) for run in Pod.parse(pod).runs
    ]
    await client.patch(POD, key, {"status": status}, subresource="status")


def _blur(text: str) -> str:
    """Replace what depends on UIDs and on time in the names and requests of injectors."""
    return _LIMIT.sub(r"\g<1>0", _INJECTOR.sub(f"{PREFIX}hash", text))


WORKLOADS: Final = (
    Workload(
        id="serve",
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=(
            build_crd(PrometheusJmxExporter),
            build_open_crd(SERVICE_MONITOR),
            build_open_crd(POD_MONITOR),
        ),
        primary=PROMETHEUS_JMX_EXPORTER,
        children=(POD, CONFIG_MAP, SERVICE, ENDPOINT_SLICE, SERVICE_MONITOR, POD_MONITOR),
        phases=(
            Phase("create", _create, serves(9400, "shop-0")),
            Phase("join", _join, serves(9400, "shop-0", "shop-1")),
            Phase("change", _change, serves(9500, "shop-0", "shop-1")),
            Phase("probe", _probe, serves(9500, "shop-0", "shop-1", known=False), quiet=True),
            Phase("delete", remove(PROMETHEUS_JMX_EXPORTER, "jmx"), _is_released),
            Phase("end", _end, is_empty),
        ),
        invariants=(check_pods,),
        components=(Component(POD, _needs_kubelet, _tend_pod),),
        rewrite=_blur,
        scaled={"operators.jmxexporter.controller": {"_POLL_SECONDS": 0.3}},
    ),
)
