"""A fleet of JVMs near their memory limits: none is harmed, and the pods without room are named.

JVMs of one kind differ by more than 10 MiB. So each pod starts with a high limit, and is resized in
place once its memory does not change any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from libs.common.conditions import is_true
from libs.common.kinds import POD, Key, Manifest
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from tests.e2e.cluster import Cluster, Serve, eventually
from tests.e2e.jmx_pods import build_exporter, build_pod, load_sample, make_namespace
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

MIB: Final = 1 << 20
PAGE: Final = 4096
ROOMS: Final = {
    **{f"tight-{number:02}": 25 * MIB for number in range(20)},
    # Less than the modules of an injector take.
    **{f"narrow-{number}": 12 * MIB for number in range(4)},
    **{f"roomy-{number}": 160 * MIB for number in range(6)},
}
"""What each pod has left below its memory limit; an endpoint and its injector take up to 70."""
ROOMY: Final = [name for name in ROOMS if name.startswith("roomy")]
SHORT: Final = [name for name in ROOMS if name not in ROOMY]
READ_MEMORY: Final = """
for container in "$@"; do
  for group in $(find /sys/fs/cgroup -type d -name "*$container*"); do
    cd "$group"
    if [ -e memory.current ]; then
      set_of="memory.max memory.current"; inactive=inactive_file
    elif [ -e memory.usage_in_bytes ]; then
      set_of="memory.limit_in_bytes memory.usage_in_bytes"; inactive=total_inactive_file
    else
      continue
    fi
    echo "$container" $(cat $set_of) $(sed -n "s/^$inactive //p" memory.stat)
  done
done
"""


@dataclass(frozen=True)
class Memory:
    """The memory of a container.

    Attributes:
        limit: Its limit.
        used: Its usage, without files that nobody has read lately.
    """

    limit: int
    used: int


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve, kind_cluster: KindCluster) -> None:
    """Install the operator, and load an application, for all tests here."""
    load_sample(kind_cluster)
    serve("jmxexporter")


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Make a namespace that takes nothing but restricted pods."""
    return await make_namespace(cluster)


def find_container(pod: Manifest) -> str:
    """Return the id of the running container of a pod; empty if none runs."""
    (status,) = pod["status"]["containerStatuses"]
    return status["containerID"].rpartition("//")[2] if "running" in status["state"] else ""


def read_memory(kind_cluster: KindCluster, pods: Mapping[str, Manifest]) -> dict[str, Memory]:
    """Read on the node what the containers of pods use, by name of the pod."""
    docker = ensure_docker(open_progress("e2e-jmx"), kind_cluster.cache)
    node = kind_cluster.nodes(docker)[0]["Names"]
    names = {find_container(pod): name for name, pod in pods.items()}
    found = {}
    for line in docker.read("exec", node, "sh", "-c", READ_MEMORY, "sh", *names).splitlines():
        container, limit, usage, inactive = line.split()
        found[names[container]] = Memory(int(limit), int(usage) - int(inactive))
    assert found.keys() == pods.keys()
    return found


async def list_pods(cluster: Cluster, namespace: str) -> dict[str, Manifest]:
    """Return the pods of the fleet by name."""
    listing = await cluster.client.list(POD, namespace)
    return {pod["metadata"]["name"]: pod for pod in listing.items}


async def start_fleet(cluster: Cluster, namespace: str) -> dict[str, Manifest]:
    """Start pods whose heap is touched from the start, and wait until all of them serve."""
    options: Manifest = {
        "env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xms64m -XX:+AlwaysPreTouch"}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "resources": {
            "requests": {"cpu": "1m", "memory": "16Mi"},
            "limits": {"memory": "400Mi"},
        },
    }
    await read_files(cluster, namespace, options)
    for name in ROOMS:
        await cluster.client.create(POD, build_pod(namespace, name, **options))
    pods: dict[str, Manifest] = {}

    async def are_ready() -> bool:
        pods.update(await list_pods(cluster, namespace))
        return sum(is_true(pod, "Ready") for pod in pods.values()) == len(ROOMS)

    await eventually(are_ready, "all pods are ready", 300)
    return pods


async def read_files(cluster: Cluster, namespace: str, options: Manifest) -> None:
    """Run a pod that does not belong to the fleet, so that the files of the image are in memory.

    The first container that reads a file is charged for it, and the kubelet never sets a limit
    below what a container is charged for.
    """
    key = Key(namespace, "first")
    await cluster.client.create(POD, build_pod(namespace, key.name, **options))

    async def is_ready() -> bool:
        return is_true(await cluster.client.get(POD, key), "Ready")

    await eventually(is_ready, "the first pod is ready", 300)
    await cluster.delete(POD, key, grace_seconds=0)
    await cluster.wait_gone(POD, key)


async def await_steady_memory(
    kind_cluster: KindCluster, pods: Mapping[str, Manifest]
) -> dict[str, Memory]:
    """Wait until the JVMs have compiled what they compile at their start."""
    readings: list[dict[str, Memory]] = []

    async def is_steady() -> bool:
        readings.append(read_memory(kind_cluster, pods))
        last = [[reading[name].used for reading in readings[-4:]] for name in pods]
        return len(readings) >= 4 and all(max(used) - min(used) < MIB for used in last)

    await eventually(is_steady, "the memory of the JVMs changes no more", 120)
    return readings[-1]


async def resize(
    cluster: Cluster,
    kind_cluster: KindCluster,
    namespace: str,
    pods: Mapping[str, Manifest],
    memory: Mapping[str, Memory],
) -> None:
    """Leave each pod what it is to have below its limit."""
    limits = {name: (memory[name].used + room) // PAGE * PAGE for name, room in ROOMS.items()}
    for name, limit in limits.items():
        operation = {
            "op": "replace",
            "path": "/spec/containers/0/resources/limits/memory",
            "value": str(limit),
        }
        await cluster.client.patch(POD, Key(namespace, name), [operation], subresource="resize")

    async def are_resized() -> bool:
        found = {name: each.limit for name, each in read_memory(kind_cluster, pods).items()}
        assert found == limits
        return True

    await eventually(are_resized, "the node has set the limits")


def describe(pod: Manifest) -> Sequence[object]:
    """Return what shows why a container does not run as it did."""
    (status,) = pod["status"]["containerStatuses"]
    return status["restartCount"], status["state"], status.get("lastState")


async def test_fleet_near_its_memory_limits_is_not_harmed_and_says_so(
    cluster: Cluster, namespace: str, kind_cluster: KindCluster
) -> None:
    pods = await start_fleet(cluster, namespace)
    memory = await await_steady_memory(kind_cluster, pods)
    await resize(cluster, kind_cluster, namespace, pods, memory)
    free = {name: each.limit - each.used for name, each in read_memory(kind_cluster, pods).items()}
    assert all(abs(free[name] - room) < 3 * MIB for name, room in ROOMS.items()), free
    exporter = build_exporter(namespace, maxConcurrent=6)

    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, exporter)

    async def is_decided() -> bool:
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, Key(namespace, "shop"))
        status = held.get("status") or {}
        served = [each["pod"] for each in status.get("metricsEndpoints") or []]
        failures = {each["pod"]: each["reason"] for each in status.get("failures") or []}
        assert sorted(served) == ROOMY, (served, failures)
        assert failures == dict.fromkeys(SHORT, "TooLittleMemory"), failures
        return True

    await eventually(is_decided, "each pod is served, or reports that its memory is too small", 300)
    found = await list_pods(cluster, namespace)
    killed = {
        name: describe(found[name])
        for name, pod in pods.items()
        if find_container(found[name]) != find_container(pod)
    }
    assert killed == {}
