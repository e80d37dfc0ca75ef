"""The rest of the cluster, for tests that need immediate responses: KubeVirt, CDI, ipam, network.

KubeVirt and CDI are the controllers of `lab/kubevirt_sim` without HTTP and delays. ipam and
network are modeled here: the fields of their statuses that compute reads.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Final
from weakref import WeakValueDictionary

from lab.kubevirt_sim import crds
from lab.kubevirt_sim.direct import DirectKubeVirt
from lab.kubevirt_sim.timing import INSTANT
from libs.common.crd import build_crd
from libs.common.kinds import Key, Kind, Manifest, key_of, uid_of
from libs.common.reading import text_at
from libs.common.testing.blurring import TIMES, UIDS, blur, blur_hashes
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.outcome import Run
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from libs.contracts.network import FIREWALL, NETWORK
from libs.contracts.volumes import DEMO_VOLUME
from operators.compute.api import RESOURCES
from operators.compute.api.instance import INSTANCE

_TIMING: Final = INSTANT.model_copy(update={"import_disk": 1, "migration_pending": 10})
"""Disks are filled one run of the cluster after their creation, so that the operator waits."""
_KUBEVIRTS: Final = WeakValueDictionary[int, DirectKubeVirt]()
"""The KubeVirt of each API server by its identity. The API server keeps it alive: it listens."""
RUN_DEPENDENT: Final = (
    UIDS,
    TIMES,
    (re.compile(r"02(:[0-9a-f]{2}){5}"), "mac"),
    (re.compile(r'"duration": "\w+"'), '"duration": "some"'),
)
"""Replacements of values that differ between runs, except of the hashes in names."""
_REPLACEMENTS: Final = (*RUN_DEPENDENT, blur_hashes("web-root", "op"))


@cache
def build_crds() -> tuple[Manifest, ...]:
    """Build the CRDs of the operator, and of all other kinds that it uses."""
    others: tuple[Kind, ...] = (IP_CLAIM, NETWORK, FIREWALL, DEMO_VOLUME)
    return (
        *(build_crd(model) for model in RESOURCES),
        *(build_loose_crd(kind, None, ("status",)) for kind in others),
        *crds.build_crds(),
    )


def find_kubevirt(api: FakeApi) -> DirectKubeVirt:
    """Return the KubeVirt of an API server; the first call starts it."""
    found = _KUBEVIRTS.get(id(api))
    if found is None:
        found = _KUBEVIRTS[id(api)] = DirectKubeVirt(api, _TIMING)
    return found


def run_cluster(api: FakeApi) -> None:
    """Perform the next actions of KubeVirt, CDI, ipam and network; safe to repeat."""
    find_kubevirt(api).run()
    for claim in api.objects(IP_CLAIM):
        _bind(api, claim)
    for firewall in api.objects(FIREWALL):
        _protect(api, firewall)


def _bind(api: FakeApi, claim: Manifest) -> None:
    target = text_at(claim, "spec", "target", "name")
    run = api.find(VIRTUAL_MACHINE_INSTANCE, Key(key_of(claim).namespace, target or "none"))
    if not target:
        ready = {"type": "Ready", "status": "True"}
        _publish_status(api, IP_CLAIM, claim, {"address": "10.10.0.9", "conditions": [ready]})
        return
    bound = {"binding": {"state": "Bound", "vmiUID": uid_of(run)}} if run is not None else {}
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "Bound", "status": str(run is not None)},
    ]
    status = {"address": "203.0.113.7", "conditions": conditions, **bound}
    _publish_status(api, IP_CLAIM, claim, status)


def _protect(api: FakeApi, firewall: Manifest) -> None:
    name, namespace = key_of(firewall).name, key_of(firewall).namespace
    covered = [
        {"name": key_of(instance).name, "uid": uid_of(instance)}
        for instance in api.objects(INSTANCE, namespace)
        if text_at(instance, "spec", "firewallRef", "name") == name
    ]
    _publish_status(api, FIREWALL, firewall, {"instances": covered})


def _publish_status(api: FakeApi, kind: Kind, held: Manifest, status: Manifest) -> None:
    if held.get("status") != status:
        change = [{"op": "add", "path": "/status", "value": status}]
        api.patch(kind, key_of(held), change, subresource="status")


def blur_run(run: Run) -> Run:
    """Replace values that depend on UIDs, which differ between runs, in an outcome."""
    return replace(
        run,
        state=_blur(run.state),
        creates=Counter({_blur(name): count for name, count in run.creates.items()}),
        deletes=Counter({_blur(name): count for name, count in run.deletes.items()}),
    )


def _blur[T](value: T) -> T:
    blurred: T = json.loads(blur(json.dumps(value), _REPLACEMENTS))
    return blurred
