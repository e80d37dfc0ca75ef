"""From the previous release to this one and back, on a real API server with real processes.

Operators run from two checkouts: the previous release from the history of the repository, and this
one. The standby of the other version starts before the leader ends, as with a Deployment. Nothing
that belongs to a user may be deleted or created again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from libs.common.testing.helm import REGISTRY, HelmMissing, find_helm, run_helm
from tests.upgrade.cases import CASES, Case
from tests.upgrade.cluster import POLL_SECONDS, SECONDS, Cluster, Load, Process
from tests.upgrade.release import unpack_previous
from tools.cluster.binaries import find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.dev.operators import ROOT

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


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_previous(tmp_path_factory.mktemp("previous"))


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
        deadline = time.monotonic() + SECONDS
        while True:
            replica.assert_running()
            if self.case.respond:
                self.case.respond(self.cluster)
            found = find()
            if not found:
                return
            assert time.monotonic() < deadline, f"{found}: {replica.log[-3000:]}"
            time.sleep(POLL_SECONDS)

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
            simulator = Process(ROOT, "lab.kubevirt_sim", "simulator", cluster, tmp_path)
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
