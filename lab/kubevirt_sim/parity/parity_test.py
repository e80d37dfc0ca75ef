"""The simulator does what the real KubeVirt and CDI do, as far as the cases go.

With `SLIPWAY_KUBEVIRT_KUBECONFIG` the same cases run against the cluster of that kubeconfig. It
needs the provisioner of kind (`rancher.io/local-path`), and images served at
`SLIPWAY_KUBEVIRT_IMAGES`: `guest.img` with an agent, `empty.img`.
"""

from __future__ import annotations

import itertools
import os
import uuid
from typing import Final

import pytest

from lab.kubevirt_sim.parity import (
    cases_actions,
    cases_cluster,
    cases_disks,
    cases_instancetypes,
    cases_machines,
)
from lab.kubevirt_sim.parity.case import CASES
from lab.kubevirt_sim.parity.site import (
    Images,
    Site,
    list_nodes,
    open_real,
    open_simulated,
)
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.config import load_config
from libs.common.kinds import STORAGE_CLASS
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi

KUBECONFIG: Final = os.environ.get("SLIPWAY_KUBEVIRT_KUBECONFIG", "")
SERVER: Final = os.environ.get(
    "SLIPWAY_KUBEVIRT_IMAGES", "http://guest-image.slipway-guest.svc"
).rstrip("/")
MODULES: Final = (cases_actions, cases_cluster, cases_disks, cases_instancetypes, cases_machines)
_RUN: Final = uuid.uuid4().hex[:5]
_numbers = itertools.count()


@pytest.mark.parametrize("name", sorted(name for name in CASES if not CASES[name].webhooks))
async def test_case_holds_for_the_simulator(name: str, fake_api: FakeApi) -> None:
    async with open_simulated(fake_api) as site:
        await CASES[name].check(site)

    assert fake_api.objects(STORAGE_CLASS), "the case ran on the simulator"


@pytest.mark.apiserver
@pytest.mark.parametrize("name", sorted(name for name in CASES if CASES[name].webhooks))
async def test_case_of_webhooks_holds_for_the_simulator(
    name: str,
    real_sim: KubeVirtSim,
    kube_apiserver: ControlPlane,
    kube_namespace: str,
) -> None:
    site = Site(real_sim.client, kube_apiserver.config, kube_namespace)
    await CASES[name].check(site)

    assert not site.real


@pytest.mark.parametrize("name", sorted(CASES))
async def test_case_holds_for_the_real_kubevirt(name: str) -> None:
    if not KUBECONFIG:
        pytest.skip("SLIPWAY_KUBEVIRT_KUBECONFIG names no cluster with the real KubeVirt")
    images = Images(*(f"{SERVER}/{each}.img" for each in ("guest", "empty", "missing")))
    namespace = f"parity-{_RUN}-{next(_numbers)}"
    async with open_real(await load_config(KUBECONFIG), namespace, images) as site:
        if (found := len(await list_nodes(site.client))) < CASES[name].nodes:
            pytest.skip(f"needs {CASES[name].nodes} nodes that run machines, and there are {found}")
        await CASES[name].check(site)

    assert site.real


def test_every_case_names_what_it_shows() -> None:
    assert len(CASES) >= 20
    assert all(case.row and case.check.__doc__ for case in CASES.values())
