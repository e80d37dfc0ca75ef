"""A small cloud in this process: ipam and compute on the simulator, and who watches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lab.kubevirt_sim.attach import attach
from lab.kubevirt_sim.instant_balancer import attach_load_balancer
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import Timing
from libs.common.conditions import is_true
from libs.common.crd import build_crd
from libs.common.kinds import (
    ENDPOINT_SLICE,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.reading import text_at
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from operators.compute.api import RESOURCES as COMPUTE_RESOURCES
from operators.compute.controller import OPERATOR as COMPUTE
from operators.ipam.api import RESOURCES as IPAM_RESOURCES
from operators.ipam.controller import OPERATOR as IPAM

NAMESPACE: Final = "default"
BRISK: Final = Timing(
    schedule=0.01,
    start_pod=0.02,
    boot=0.05,
    agent=0.02,
    shutdown=0.05,
    grace=0.5,
    import_disk=0.1,
    migrate=0.1,
    snapshot=0.05,
    migration_pending=5,
    node_lost=0.2,
    crash_backoff=0.1,
)
"""Everything takes a moment, so that what is between two states is seen."""


@dataclass(slots=True)
class Watcher:
    """Hold what is promised of addresses against each version of each object.

    Attributes:
        faults: What was broken, one sentence each.
        runs: Machine of each run that there ever was, by UID.
        moves: How often the address of a claim was routed to another node.
    """

    faults: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    moves: Counter[str] = field(default_factory=Counter)
    _claims: dict[str, Manifest] = field(default_factory=dict)

    def notice(self, change: Any) -> None:
        """Take in one version of an object."""
        manifest, name = change.record.obj, change.key.name
        if _is(change, VIRTUAL_MACHINE_INSTANCE):
            self.runs[uid_of(manifest)] = name
        if _is(change, IP_CLAIM):
            if change.type == "DELETED":
                self._claims.pop(name, None)
                return
            self._evaluate(name, manifest)
            self._claims[name] = manifest

    def _evaluate(self, name: str, claim: Manifest) -> None:
        address, target = text_at(claim, "status", "address"), text_at(
            claim, "spec", "target", "name"
        )
        for other, held in self._claims.items():
            if other != name and address and text_at(held, "status", "address") == address:
                self.faults.append(f"{address} is given to {other} and to {name}")
        run = text_at(claim, "status", "binding", "vmiUID")
        if run and self.runs.get(run) != target:
            self.faults.append(f"{address} of {target} leads to a run of {self.runs.get(run)}")
        before = text_at(self._claims.get(name, {}), "status", "binding", "nodeName")
        now = text_at(claim, "status", "binding", "nodeName")
        self.moves[name] += bool(before and now and before != now)


@dataclass(slots=True)
class Cloud:
    """Hold all that runs.

    Attributes:
        api: API server.
        sim: KubeVirt.
        operators: The operators, which may be killed.
        watcher: What has watched since the beginning.
    """

    api: FakeApi
    sim: KubeVirtSim
    operators: Sequence[OperatorHarness]
    watcher: Watcher

    async def eventually(self, probe: Any, what: str, seconds: float = 120.0) -> None:
        """Wait until a probe returns something true."""
        await self.operators[0].eventually(probe, what, timeout=seconds)

    def phases(self, kind: Kind) -> Counter[str]:
        """Count the objects of a kind by phase."""
        held = self.api.objects(kind, NAMESPACE)
        return Counter(text_at(each, "status", "phase") for each in held)

    def is_bound(self, name: str) -> bool:
        """Return whether an Instance runs, and its address is routed to that very run."""
        run = self.api.find(VIRTUAL_MACHINE_INSTANCE, Key(NAMESPACE, name))
        claim = self.api.find(IP_CLAIM, Key(NAMESPACE, f"{name}-public"))
        instance = self.api.find(INSTANCE, Key(NAMESPACE, name))
        if run is None or claim is None or instance is None:
            return False
        ready = text_at(instance, "status", "phase") == "Running"
        status = claim.get("status") or {}
        binding = status.get("binding") or {}
        same = binding.get("vmiUID") == uid_of(run) and binding.get("nodeName") == text_at(
            run, "status", "nodeName"
        )
        slice_ = self.api.find(ENDPOINT_SLICE, Key(NAMESPACE, f"{name}-public-ip-v4")) or {}
        routed = [each["addresses"] for each in slice_.get("endpoints") or ()]
        return ready and same and routed == [[binding.get("podIP")]] and is_true(claim, "Bound")


@asynccontextmanager
async def run_cloud(api: FakeApi) -> AsyncIterator[Cloud]:
    """Run the operators and the simulator against a fake API server."""
    for model in (*IPAM_RESOURCES, *COMPUTE_RESOURCES):
        api.register(build_crd(model))
    attach_load_balancer(api)
    watcher = Watcher()
    api.store.listeners.append(watcher.notice)
    async with KubeVirtSim(api.config, timing=BRISK) as sim:
        attach(sim, api)
        async with (
            OperatorHarness(
                COMPUTE, api.config, look=api.objects, watch_namespaces=("*",)
            ) as first,
            OperatorHarness(IPAM, api.config, look=api.objects, watch_namespaces=("*",)) as second,
        ):
            yield Cloud(api, sim, (first, second), watcher)


def build_operation(type_: str, target: str, **spec: Any) -> Manifest:
    """Build an Operation on an Instance."""
    return build_object(
        OPERATION,
        f"{target}-{type_}".lower(),
        NAMESPACE,
        spec={"type": type_, "targetRef": {"name": target}, **spec},
    )


def _is(change: Any, kind: Kind) -> bool:
    return bool(change.table == (kind.group, kind.plural))


def names_of(manifests: Sequence[Manifest]) -> list[str]:
    """Return the names of objects, in their order."""
    return [key_of(each).name for each in manifests]
