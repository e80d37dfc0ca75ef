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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import pytest

from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from tools.cluster.binaries import find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.dev.operators import ROOT

PREVIOUS: Final = "ed5126bfe4a275e3f6691e222060ba676010e0d4"
"""Commit of the previous release, 0.1.0."""
_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 60.0
_KINDS: Final = "pods,persistentvolumeclaims,services,networkpolicies,deployments,secrets"
"""Kinds of Kubernetes that the operators create for users."""

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


POOL: Final = build(
    "ipam.slipway.dev/v1alpha1", "IPPool", "demo", family="IPv4", addresses=["203.0.113.0/24"]
)
CASES: Final[dict[str, Callable[[str], Manifest]]] = {
    "podset": build_podset,
    "volumes": build_volume,
    "ipam": build_claim,
    "network": build_firewall,
    "pulsarconsumer": build_consumer,
}
"""Operators that need nothing but Kubernetes, and the objects of their users."""
NETWORK: Final = build("network.slipway.dev/v1alpha1", "Network", "lan", cidrs=["10.10.0.0/16"])
_INITIAL_OBJECTS: Final[dict[str, list[Manifest]]] = {"ipam": [POOL], "network": [NETWORK]}


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
        self._command = [str(kubectl), "--kubeconfig", str(kubeconfig)]

    def run(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *manifests: Manifest) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.run("apply", "--filename", "-", stdin=json.dumps(items))

    def items(self, kinds: str) -> list[Manifest]:
        found: list[Manifest] = json.loads(self.run("get", kinds, "--output", "json"))["items"]
        return found

    def install_crds(self, tree: Path, operator: str) -> None:
        crds = str(tree / "helm" / operator / "files" / "crds")
        self.run("apply", "--server-side", "--force-conflicts", "--filename", crds)
        self.run("wait", "--for=condition=Established", "--timeout=60s", "--filename", crds)

    def uids(self, kinds: str) -> dict[str, str]:
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["uid"]
            for item in self.items(kinds)
        }


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


class Replica:
    """One process of an operator."""

    def __init__(self, tree: Path, operator: str, name: str, cluster: Cluster, log: Path) -> None:
        prefix = operator.upper()
        settings = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "WATCH_NAMESPACES": "default",
            "METRICS_BIND_ADDRESS": "0",
            "HEALTH_PROBE_BIND_ADDRESS": "0",
            "RETRY_PERIOD_SECONDS": "0.5",
        }
        environment = {
            **os.environ,
            **{f"{prefix}_{key}": value for key, value in settings.items()},
            "POD_NAMESPACE": "default",
            "POD_NAME": name,
            "PYTHONPATH": str(tree),
        }
        if operator == "pulsarconsumer":
            environment["PULSARCONSUMER_CONSUMER_IMAGE"] = "example.com/app:1"
        self.log = log
        self._output = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"operators.{operator}"],
            cwd=tree,
            env=environment,
            stdout=self._output,
            stderr=self._output,
        )

    def assert_running(self) -> None:
        assert self._process.poll() is None, self.log.read_text()[-3000:]

    def stop(self) -> None:
        """End it in order, so that it releases the Lease."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._output.close()


class Load:
    """Create objects all the time, as a busy cluster does."""

    def __init__(self, cluster: Cluster, build: Callable[[str], Manifest]) -> None:
        self.names: list[str] = []
        self._cluster, self._build = cluster, build
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            name = f"load-{len(self.names)}"
            self._cluster.apply(self._build(name))
            self.names.append(name)


@pytest.mark.apiserver
@pytest.mark.parametrize("loaded", [False, True], ids=["at rest", "under load"])
@pytest.mark.parametrize("operator", CASES)
def test_upgrade_and_rollback_lose_nothing(
    operator: str, loaded: bool, previous: Path, cluster: Cluster, tmp_path: Path
) -> None:
    build_object, log = CASES[operator], tmp_path / "operator.log"
    kind = f"{build_object('x')['kind']}.{build_object('x')['apiVersion'].partition('/')[0]}"
    with ExitStack() as stack:
        cluster.install_crds(previous, operator)
        cluster.apply(
            *_INITIAL_OBJECTS.get(operator, ()), *(build_object(f"first-{n}") for n in range(3))
        )
        leader = Replica(previous, operator, "previous", cluster, log)
        stack.callback(leader.stop)
        wait_observed(cluster, kind, leader, ["first-0", "first-1", "first-2"])

        for number, tree in enumerate((ROOT, previous)):
            before = cluster.uids(f"{kind},{_KINDS}")
            assert len(before) > 3, "the operator has created something"
            with Load(cluster, build_object) if loaded else ExitStack() as load:
                cluster.install_crds(tree, operator)
                standby = Replica(tree, operator, f"replica-{number}", cluster, log)
                stack.callback(standby.stop)
                # The other version is ready before the leader ends, as in a rolling update.
                leader.stop()
                cluster.apply(build_object(f"after-{number}"))
                wait_observed(cluster, kind, standby, [f"after-{number}"])
            names = load.names if isinstance(load, Load) else []
            wait_observed(cluster, kind, standby, names)
            after = cluster.uids(f"{kind},{_KINDS}")
            leader = standby

            lost = {name: uid for name, uid in before.items() if after.get(name) != uid}
            assert not lost, f"deleted or created again: {lost}"
            # Each object in itself: what it created is as many as before.
            assert {name for name in after if "first-" in name} == {
                name for name in before if "first-" in name
            }


def wait_observed(cluster: Cluster, kind: str, replica: Replica, names: list[str]) -> None:
    """Wait until the operator has reported on the current spec of objects."""
    deadline = time.monotonic() + _SECONDS
    while True:
        replica.assert_running()
        open_names = set(names) - {
            item["metadata"]["name"]
            for item in cluster.items(kind)
            if item.get("status", {}).get("conditions")
            and item["status"].get("observedGeneration") == item["metadata"]["generation"]
        }
        if not open_names:
            return
        assert time.monotonic() < deadline, f"{open_names}: {replica.log.read_text()[-3000:]}"
        time.sleep(0.2)
