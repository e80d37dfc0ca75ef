"""From the previous release to this one and back, on a real API server with real processes.

Operators run from two checkouts: the previous release from the history of the repository, and this
one. The standby of the other version starts before the leader ends, as with a Deployment. Nothing
that belongs to a user may be deleted or created again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, Self

import pytest

from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from libs.common.testing.helm import REGISTRY, HelmMissing, find_helm, run_helm
from tools.cluster.binaries import find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.kubectl import render_list
from tools.dev.operators import ROOT

PREVIOUS: Final = "ed5126bfe4a275e3f6691e222060ba676010e0d4"
"""Commit of the previous release, 0.1.0."""
_SECONDS: Final = 300.0
"""Time-out of each wait: a busy machine may need minutes to start an operator."""
_GRACE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.3
_STANDBY: Final = "Standing by"
"""What both versions log once they wait for the Lease of another replica."""
_KINDS: Final = (
    "pods",
    "persistentvolumeclaims",
    "services",
    "networkpolicies",
    "deployments",
    "secrets",
)
"""Kinds of Kubernetes that the operators create for users."""
_RELEASE_KINDS: Final = (
    "deployments",
    "services",
    "serviceaccounts",
    "secrets",
    "leases",
    "customresourcedefinitions",
)
"""Kinds of a release whose objects a new version of the chart must not replace."""
_IP_CLAIMS: Final = "ipclaims.ipam.slipway.dev"

type Manifest = dict[str, Any]


def build(api_version: str, kind: str, object_name: str, /, **spec: Any) -> Manifest:
    metadata = {"name": object_name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def build_podset(name: str) -> Manifest:
    return build("batch.tutorial.kubebuilder.io/v1", "PodSet", name, replicas=2)


def build_volume(name: str) -> Manifest:
    return build("storage.slipway.dev/v1alpha1", "DemoVolume", name, name=name, size=1)


def build_claim(name: str) -> Manifest:
    return build("ipam.slipway.dev/v1alpha1", "IPClaim", name, poolRef={"name": "demo"})


def build_firewall(name: str) -> Manifest:
    rule = {"name": "ssh", "protocol": "TCP", "ports": [22], "cidrs": ["192.0.2.0/24"]}
    return build(
        "network.slipway.dev/v1alpha1",
        "Firewall",
        name,
        networkRef={"name": "lan"},
        rules=[rule],
    )


def build_consumer(name: str) -> Manifest:
    return build(
        "consumer.pulsarconsumer.krvarma.com/v1",
        "PulsarConsumer",
        name,
        serverAddress="pulsar://pulsar:6650",
        topic=name,
        subscriptionName="test",
        replicas=1,
    )


def build_instance(name: str) -> Manifest:
    image = {"url": "https://images.example.com/debian-13.qcow2"}
    return build("compute.slipway.dev/v1alpha1", "Instance", name, size="small", image=image)


def build_kubernetes(name: str) -> Manifest:
    return build(
        "clusters.slipway.dev/v1alpha1",
        "KubernetesCluster",
        name,
        version="v1.34.2",
        image={"registry": "docker://registry.example.com/kubernetes-node:v1.34.2"},
        networkRef={"name": "lan"},
        controlPlane={"count": 1, "size": "small", "endpoint": {"poolName": "demo"}},
        pools=[],
    )


def build_exporter(name: str) -> Manifest:
    return build(
        "banzaicloud.com/v1alpha1",
        "PrometheusJmxExporter",
        name,
        labelSelector={"app": name},
        config={"configMapName": "rules", "configMapKey": "config.yaml"},
        port=9400,
        minReadySeconds=0,
    )


POOL: Final = build(
    "ipam.slipway.dev/v1alpha1", "IPPool", "demo", family="IPv4", addresses=["203.0.113.0/24"]
)
NETWORK: Final = build("network.slipway.dev/v1alpha1", "Network", "lan", cidrs=["10.10.0.0/16"])
ROUTED: Final = build(
    "network.slipway.dev/v1alpha1",
    "Network",
    "lan",
    cidrs=["10.10.0.0/16"],
    backend="Multus",
    providerNetworkRef={"name": "office"},
    poolRef={"name": "private"},
)
"""A network on which nodes of clusters can run."""
SIZE: Final = build(
    "compute.slipway.dev/v1alpha1", "InstanceSize", "small", cpus=2, memory="4Gi", disk="10Gi"
)
RULES: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "rules"},
    "data": {"config.yaml": "rules:\n- pattern: .*\n"},
}


def run_jvms(cluster: Cluster) -> None:
    """Run a pod with a JVM for each object that a test creates first, as a kubelet does."""
    started = "2026-01-01T00:00:00Z"
    for number in range(3):
        name = f"first-{number}"
        container = {"name": "app", "image": "example.com/shop:1"}
        pod = build("v1", "Pod", name, containers=[container], nodeName="node")
        pod["metadata"]["labels"] = {"app": name}
        cluster.apply(pod)
        running = {
            **container,
            "containerID": f"containerd://{name}",
            "imageID": "shop",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": started}},
        }
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": started}
        status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [ready]}
        cluster.set_status("pod", name, {**status, "containerStatuses": [running]})


def give_addresses(cluster: Cluster) -> None:
    """Give each IPClaim an address, as the ipam operator does."""
    claims = cluster.items(_IP_CLAIMS)
    taken = {claim.get("status", {}).get("address") for claim in claims}
    free = (f"203.0.113.{number}" for number in range(1, 255))
    free = (address for address in free if address not in taken)
    for claim in claims:
        if not claim.get("status", {}).get("address"):
            cluster.set_status(_IP_CLAIMS, claim["metadata"]["name"], {"address": next(free)})


@dataclass(frozen=True)
class Case:
    """An operator, what it needs, and the objects of its users.

    Attributes:
        build: Build an object of a user.
        creates: What exists for each object of a user before the upgrade, as Kind/prefix of a name.
        needs: Operators whose kinds it uses; they do not run.
        objects: Objects that exist before.
        prepare: Create more of them.
        respond: Do the part of another operator.
        kinds: Kinds that it creates, other than kinds of Kubernetes.
        simulator: Whether the simulator of KubeVirt runs, and serves these kinds.
    """

    build: Callable[[str], Manifest]
    creates: Sequence[str] = ()
    needs: Sequence[str] = ()
    objects: Sequence[Manifest] = ()
    prepare: Callable[[Cluster], None] | None = None
    respond: Callable[[Cluster], None] | None = None
    kinds: Sequence[str] = ()
    simulator: bool = False


CASES: Final[dict[str, Case]] = {
    "podset": Case(build_podset, ["Pod/{}-pod-0", "Pod/{}-pod-1"]),
    "volumes": Case(build_volume, ["PersistentVolumeClaim/{}"]),
    "ipam": Case(build_claim, objects=[POOL]),
    "network": Case(build_firewall, ["NetworkPolicy/"], objects=[NETWORK]),
    "pulsarconsumer": Case(build_consumer, ["Deployment/{}"]),
    "jmxexporter": Case(build_exporter, ["Injector/{}/"], objects=[RULES], prepare=run_jvms),
    "compute": Case(
        build_instance,
        ["VirtualMachineInstance/{}"],
        objects=[SIZE],
        kinds=[
            "virtualmachines.kubevirt.io",
            "virtualmachineinstances.kubevirt.io",
            "datavolumes.cdi.kubevirt.io",
        ],
        simulator=True,
    ),
    "clusters": Case(
        build_kubernetes,
        ["Instance/{}-"],
        needs=("compute", "ipam", "network"),
        objects=[ROUTED],
        respond=give_addresses,
        kinds=[
            "instances.compute.slipway.dev",
            "operations.compute.slipway.dev",
            _IP_CLAIMS,
            "firewalls.network.slipway.dev",
        ],
    ),
}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the previous release, or skip the tests in a clone without history."""
    folder = tmp_path_factory.mktemp("previous")
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", PREVIOUS, "libs", "operators", "helm"],
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"the history lacks {PREVIOUS}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


class Cluster:
    """An API server, and what tests do with it by kubectl."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        # A cache of its own: by default, servers with the same port would share one.
        cache = kubeconfig.with_name("kubectl-cache")
        self._command = [str(kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]

    def run(self, *arguments: str, stdin: str = "") -> str:
        done = self._try(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def _try(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, check=False
        )

    def apply(self, *manifests: Manifest) -> None:
        self.run("apply", "--filename", "-", stdin=render_list(manifests))

    def items(self, kinds: str, namespace: str = "default") -> list[Manifest]:
        text = self.run("get", kinds, "--output=json", f"--namespace={namespace}")
        found: list[Manifest] = json.loads(text)["items"]
        return found

    def install_crds(self, tree: Path, operator: str) -> None:
        """Create or replace the CRDs of a version, and wait until they are served."""
        crds = tree / "helm" / operator / "files" / "crds"
        self.run("apply", "--server-side", "--force-conflicts", f"--filename={crds}")
        names = (path.stem.split("_") for path in sorted(crds.glob("*.yaml")))
        self.wait_served([f"{plural}.{group}" for group, plural in names])

    def wait_served(self, kinds: Sequence[str]) -> None:
        """List kinds until that succeeds: CRDs are Established before they are served."""
        deadline = time.monotonic() + _SECONDS
        while (done := self._try("get", ",".join(kinds))).returncode:
            assert time.monotonic() < deadline, done.stderr
            time.sleep(_POLL_SECONDS)

    def set_status(self, kind: str, name: str, status: Manifest) -> None:
        patch = json.dumps({"status": status})
        self.run("patch", kind, name, "--subresource=status", "--type=merge", "--patch", patch)

    def uids(self, kinds: str, namespace: str = "default") -> dict[str, str]:
        """Return the UIDs of objects, and of pods into which injectors were added."""
        found = {}
        for item in self.items(kinds, namespace):
            name, uid = item["metadata"]["name"], item["metadata"]["uid"]
            found[f"{item['kind']}/{name}"] = uid
            for injector in item.get("spec", {}).get("ephemeralContainers", ()):
                found[f"Injector/{name}/{injector['name']}"] = uid
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Run an API server of its own: CRDs of two versions are applied to it."""
    try:
        plane = ControlPlane()
        kubectl = find_kubectl(Cache())
    except (AssetsMissing, ToolError) as err:
        pytest.skip(str(err))
    with plane:
        yield Cluster(kubectl, plane.write_kubeconfig(tmp_path / "kubeconfig"))


class Process:
    """A process that connects to the API server."""

    def __init__(
        self, tree: Path, module: str, name: str, cluster: Cluster, folder: Path, **settings: str
    ) -> None:
        prefix = module.rpartition(".")[2].upper()
        common = {"KUBECONFIG": str(cluster.kubeconfig), "METRICS_BIND_ADDRESS": "0"}
        named = {**common, "HEALTH_PROBE_BIND_ADDRESS": "0", **settings}
        environment = {
            **os.environ,
            **{f"{prefix}_{key}": value for key, value in named.items()},
            "POD_NAMESPACE": "default",
            "POD_NAME": name,
            "PYTHONPATH": str(tree),
        }
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=tree,
                env=environment,
                stdout=output,
                stderr=output,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def assert_running(self) -> None:
        assert self._process.poll() is None, f"it ended: {self.log[-3000:]}"

    def stop(self) -> None:
        """End it as a kubelet does: in order, so that it releases the Lease, or by force."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Load:
    """Create objects all the time, as a busy cluster does."""

    def __init__(self, cluster: Cluster, build: Callable[[str], Manifest], prefix: str) -> None:
        self.names: list[str] = []
        self._cluster, self._build, self._prefix = cluster, build, prefix
        self._ended = threading.Event()
        self._executor = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._done = self._executor.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._executor.shutdown()
        self._done.result()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            name = f"{self._prefix}-{len(self.names)}"
            self._cluster.apply(self._build(name))
            self.names.append(name)


@dataclass(frozen=True)
class Upgrade:
    """The upgrades and rollbacks of one operator in one cluster.

    Attributes:
        operator: Name of the operator.
        case: What it needs.
        cluster: The cluster.
        folder: Directory for the logs of its processes.
    """

    operator: str
    case: Case
    cluster: Cluster
    folder: Path

    @property
    def kind(self) -> str:
        """Kind of the objects of its users, as kubectl takes it."""
        example = self.case.build("x")
        return f"{example['kind']}.{example['apiVersion'].partition('/')[0]}"

    def start(self, tree: Path, replica: str) -> Process:
        """Start a replica of a version."""
        settings = {
            "WATCH_NAMESPACES": "default",
            "RETRY_PERIOD_SECONDS": "0.5",
            # No leader loses its Lease because the machine is busy; it releases it at its end.
            "LEASE_DURATION_SECONDS": "120",
            "RENEW_DEADLINE_SECONDS": "90",
        }
        if self.operator == "pulsarconsumer":
            settings["CONSUMER_IMAGE"] = "example.com/app:1"
        module = f"operators.{self.operator}"
        return Process(tree, module, replica, self.cluster, self.folder, **settings)

    def uids(self) -> dict[str, str]:
        """Return the UIDs of the objects of users, and of what is created for them."""
        return self.cluster.uids(",".join([self.kind, *_KINDS, *self.case.kinds]))

    def find_unobserved(self, names: Iterable[str]) -> set[str]:
        """Return the objects on whose current spec no operator has reported."""
        return set(names) - {
            item["metadata"]["name"]
            for item in self.cluster.items(self.kind)
            if item.get("status", {}).get("conditions")
            and item["status"].get("observedGeneration") == item["metadata"]["generation"]
        }

    def find_missing(self, names: Iterable[str]) -> set[str]:
        """Return what does not exist yet of what is created for objects."""
        found = self.uids()
        wanted = {one.format(name) for name in names for one in self.case.creates}
        return {one for one in wanted if not any(name.startswith(one) for name in found)}

    def wait_until_none(self, find: Callable[[], set[str]], replica: Process) -> None:
        """Wait until nothing is found any more, and do the part of another operator meanwhile."""
        deadline = time.monotonic() + _SECONDS
        while True:
            replica.assert_running()
            if self.case.respond:
                self.case.respond(self.cluster)
            found = find()
            if not found:
                return
            assert time.monotonic() < deadline, f"{found}: {replica.log[-3000:]}"
            time.sleep(_POLL_SECONDS)

    def replace(self, leader: Process, tree: Path, number: int, stack: ExitStack) -> Process:
        """Replace the leader by a replica of another version, as a rolling update does."""
        self.cluster.install_crds(tree, self.operator)
        standby = self.start(tree, f"replica-{number}")
        stack.callback(standby.stop)
        self.wait_until_none(lambda: set() if _STANDBY in standby.log else {_STANDBY}, standby)
        leader.stop()
        self.cluster.apply(self.case.build(f"after-{number}"))
        self.wait_until_none(partial(self.find_unobserved, [f"after-{number}"]), standby)
        return standby


@pytest.mark.apiserver
@pytest.mark.parametrize("operator", CASES)
def test_upgrade_and_rollback_lose_nothing(
    operator: str, previous: Path, cluster: Cluster, tmp_path: Path
) -> None:
    """At rest, and again while a user creates objects all the time."""
    case, first = CASES[operator], [f"first-{number}" for number in range(3)]
    upgrade = Upgrade(operator, case, cluster, tmp_path)
    with ExitStack() as stack:
        cluster.install_crds(previous, operator)
        for needed in case.needs:
            cluster.install_crds(ROOT, needed)
        if case.simulator:
            simulator = Process(ROOT, "tools.kubevirt_sim", "simulator", cluster, tmp_path)
            stack.callback(simulator.stop)
            cluster.wait_served(case.kinds)
        cluster.apply(*case.objects, *(case.build(name) for name in first))
        if case.prepare:
            case.prepare(cluster)
        leader = upgrade.start(previous, "first")
        stack.callback(leader.stop)
        upgrade.wait_until_none(partial(upgrade.find_unobserved, first), leader)
        upgrade.wait_until_none(partial(upgrade.find_missing, first), leader)

        for number, (loaded, tree) in enumerate(product((False, True), (ROOT, previous))):
            stage = f"{'upgrade' if tree == ROOT else 'rollback'}, {loaded=}"
            before, load = upgrade.uids(), Load(cluster, case.build, f"load-{number}")
            with load if loaded else nullcontext():
                leader = upgrade.replace(leader, tree, number, stack)
            upgrade.wait_until_none(partial(upgrade.find_unobserved, [*first, *load.names]), leader)
            after = upgrade.uids()

            lost = {name for name, uid in before.items() if after.get(name) != uid}
            assert not lost, f"deleted or created again at the {stage}: {lost}"
            # Each object in itself: what it created is as many as before.
            more = {name for name in after.keys() - before.keys() if "first-" in name}
            assert not more, f"created for an object that had everything at the {stage}: {more}"


@pytest.mark.apiserver
def test_charts_upgrade_with_the_values_of_the_previous_release_and_roll_back(
    previous: Path, cluster: Cluster
) -> None:
    """No object of a release is replaced, and Helm sends no change that the API server refuses."""
    try:
        find_helm()
    except HelmMissing as err:
        pytest.skip(str(err))
    values = {"image": {"registry": REGISTRY}, "replicas": 2, "networkPolicy": {"enabled": True}}
    for chart in CASES:
        where = ("--namespace", chart, "--kubeconfig", str(cluster.kubeconfig))
        old, new = (str(tree / "helm" / chart) for tree in (previous, ROOT))
        install = ("install", chart, old, *where, "--create-namespace", "--values", "-")
        run_helm(*install, stdin=json.dumps(values))
        before = cluster.uids(",".join(_RELEASE_KINDS), chart)
        for command in (("upgrade", chart, new, "--reset-then-reuse-values"), ("rollback", chart)):
            run_helm(*command, *where)
            after = cluster.uids(",".join(_RELEASE_KINDS), chart)

            lost = {name for name, uid in before.items() if after.get(name) != uid}
            assert f"Deployment/{chart}" in before
            assert not lost, f"helm {command[0]} {chart} deleted or replaced {lost}"
