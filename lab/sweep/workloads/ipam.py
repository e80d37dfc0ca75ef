"""Workload of the ipam operator: an address is given, follows a machine, and goes to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from lab.sweep.components import Component
from lab.sweep.faults import is_foreign
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.workload import (
    Phase,
    State,
    User,
    Workload,
    build_open_crd,
    change,
    is_empty,
    is_observed,
    remove,
)
from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import (
    ENDPOINT_SLICE,
    ENDPOINTS,
    POD,
    SERVICE,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.labels import SERVICE_PROXY
from libs.common.ownership import build_owner_reference
from libs.common.reading import map_at, text_at
from libs.common.testing.blurring import TIMES, UIDS, blur
from libs.contracts.cluster_api import CLUSTER, IP_ADDRESS, IP_ADDRESS_CLAIM
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from operators.ipam.naming import FINALIZER, LOAD_BALANCER_CLASS, POOL
from operators.ipam.settings import Settings

_RULES: Final = OPERATOR.rules(Settings(load_balancer=True, cozy_proxy=True, cluster_api=True))
"""All workloads share a service account, so each has what the settings of the others need."""
_ADDRESS: Final = "203.0.113.7"
_PORTS: Final = [{"name": "https", "port": 443, "targetPort": 8443}]
_TARGET: Final = {"kind": "Instance", "name": "web"}
_REPLACEMENTS: Final = (
    (re.compile(r"\btrial\d+\b"), "trial"),
    TIMES,
    # How often the places were counted is a matter of timing.
    (re.compile(r'"(ipam\.slipway\.dev/)?epoch": ("\d+"|\d+)'), '"epoch": 0'),
    UIDS,
)


def check_addresses(history: Sequence[Version]) -> list[str]:
    """Check that no two claims have an address at a time, and that none changes its own."""
    holders: dict[str, str] = {}
    held: dict[str, str] = {}
    found = []
    for version in history:
        if version.kind != IP_CLAIM or is_foreign(version):
            continue
        uid = uid_of(version.manifest)
        if version.action == "DELETED":
            holders = {address: owner for address, owner in holders.items() if owner != uid}
            continue
        address = (version.manifest.get("status") or {}).get("address")
        if not address:
            continue
        if held.setdefault(uid, address) != address:
            found.append(f"{version.title} had {held[uid]} and has {address}")
        if holders.setdefault(address, uid) != uid:
            found.append(f"{version.title} has {address}, which another claim has too")
    return found


def check_entries(history: Sequence[Version]) -> list[str]:
    """Check that no address is shown that the ledger does not have for that claim."""
    entries: dict[str, str] = {}
    found = []
    for version in history:
        if version.kind == IP_ALLOCATION and not is_foreign(version):
            spec = version.manifest["spec"]
            entries[spec["address"]] = spec["claimRef"]["uid"]
            if version.action == "DELETED":
                del entries[spec["address"]]
        if version.kind != IP_CLAIM or version.action == "DELETED":
            continue
        address = (version.manifest.get("status") or {}).get("address")
        if address and entries.get(address) != uid_of(version.manifest):
            found.append(f"{version.title} shows {address} without an entry of the ledger")
    return found


def check_places(history: Sequence[Version]) -> list[str]:
    """Check that an address is never routed to two endpoints."""
    return [
        f"{version.title} has {len(version.manifest['endpoints'])} places"
        for version in history
        if version.kind == ENDPOINT_SLICE and len(version.manifest.get("endpoints") or ()) > 1
    ]


def build_launcher(run: Manifest, name: str, node: str) -> Manifest:
    """Build a launcher pod of a run, as KubeVirt makes it."""
    return {
        "metadata": {
            "name": name,
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid_of(run)},
            "ownerReferences": [build_owner_reference(VIRTUAL_MACHINE_INSTANCE, run)],
        },
        "spec": {"nodeName": node, "containers": [{"name": "compute", "image": "launcher"}]},
    }


async def _run_machine(user: User, number: int) -> None:
    """Let the machine run in a launcher pod of that number, on a node of its own."""
    (run,) = await user.list(VIRTUAL_MACHINE_INSTANCE)
    node, name = f"node-{number}", f"launcher-{number}"
    await user.add(POD, build_launcher(run, name, node))
    address = f"10.0.0.{number}"
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    await user.patch(POD, name, {"status": status}, subresource="status")
    pods = {uid_of(each): each["spec"]["nodeName"] for each in await user.list(POD)}
    seen = {"phase": "Running", "nodeName": node, "activePods": pods}
    await user.patch(VIRTUAL_MACHINE_INSTANCE, "web", {"status": seen})


async def _claim(user: User, name: str) -> None:
    await user.create(IP_CLAIM, name, {"poolRef": {"name": user.scoped("pool")}})


async def _create(user: User) -> None:
    await user.create(INSTANCE, "web", {"size": "small"})
    (instance,) = await user.list(INSTANCE)
    labels = {INSTANCE_UID_LABEL: uid_of(instance)}
    await user.add(VIRTUAL_MACHINE_INSTANCE, {"metadata": {"name": "web", "labels": labels}})
    await _run_machine(user, 1)
    pool = {
        "realm": user.short_name,
        "family": "IPv4",
        "addresses": [_ADDRESS],
        "reuseGraceSeconds": 0,
    }
    await user.create(IP_POOL, user.scoped("pool"), pool)
    await _claim(user, "web")


async def _move(user: User) -> None:
    await _run_machine(user, 2)
    # Somebody deletes the entry of an address that is in use: it stays until that is released.
    (entry,) = await user.list(IP_ALLOCATION)
    await user.delete(IP_ALLOCATION, entry["metadata"]["name"])


async def _narrow(user: User) -> None:
    ports = [*_PORTS, {"name": "http", "port": 80, "targetPort": 8080}]
    await user.patch(IP_CLAIM, "web", {"spec": {"traffic": "Ports", "ports": ports}})


async def _queue(user: User) -> None:
    await _claim(user, "late")


_probe = change(IP_CLAIM, "late", target=_TARGET, ports=_PORTS)


async def _delete(user: User) -> None:
    await user.delete(IP_CLAIM, "late")
    await user.delete(IP_POOL, user.scoped("pool"))
    await user.delete(INSTANCE, "web")
    for name in ("launcher-1", "launcher-2"):
        await user.delete(POD, name)
    await user.delete(VIRTUAL_MACHINE_INSTANCE, "web")


def _counts(record: NamespaceRecord, *, waiting: int) -> bool:
    pools = record.list(IP_POOL)
    capacity = (pools[0].get("status") or {}).get("capacity") or {} if pools else {}
    counted = capacity.get("allocated") == 1 and capacity.get("waiting", 0) == waiting
    return counted and is_observed(pools[0])


def _has_address(record: NamespaceRecord, name: str) -> bool:
    claim = record.get(IP_CLAIM, name)
    if claim is None or not is_observed(claim):
        return False
    return bool(claim["status"].get("address") == _ADDRESS)


def _is_given(record: NamespaceRecord) -> bool:
    return _has_address(record, "web") and _counts(record, waiting=0)


def leads(name: str, number: int) -> Any:
    """Return a condition: the address of a claim is routed to the launcher pod with this number.

    The claim must name the pod too: the routes are written before the status.
    """
    place = f"10.0.0.{number}"

    def check(record: NamespaceRecord) -> bool:
        held = record.get(ENDPOINT_SLICE, f"{name}-ip-v4")
        places = [each["addresses"] for each in (held or {}).get("endpoints") or ()]
        claim = record.get(IP_CLAIM, name) or {}
        bound = find_condition(claim, "Bound")
        return (
            _has_address(record, name)
            and places == [[place]]
            and map_at(claim, "status", "binding").get("podIP") == place
            and bound is not None
            and bound["status"] == "True"
            and record.get(SERVICE, f"{name}-ip") is not None
        )

    return check


def _leads_whole(number: int) -> Any:
    """Return a condition: cozy-proxy is told to route the whole address to a launcher pod."""

    def check(record: NamespaceRecord) -> bool:
        service = record.get(SERVICE, "web-ip") or {}
        subsets = (record.get(ENDPOINTS, "web-ip") or {}).get("subsets") or ()
        backends = [each["ip"] for subset in subsets for each in subset["addresses"]]
        proxy = text_at(service, "metadata", "labels", SERVICE_PROXY)
        routed = leads("web", number)(record) and backends == [f"10.0.0.{number}"]
        return routed and proxy == "cozy-proxy"

    return check


def _is_moved(record: NamespaceRecord) -> bool:
    kept = [find_condition(each, "Terminating") for each in record.list(IP_ALLOCATION)]
    return bool(_leads_whole(2)(record) and all(kept))


def _is_narrowed(record: NamespaceRecord) -> bool:
    served = (record.get(SERVICE, "web-ip") or {}).get("spec") or {}
    gone = record.get(ENDPOINTS, "web-ip") is None
    return leads("web", 2)(record) and len(served.get("ports") or ()) == 2 and gone


def _is_queued(record: NamespaceRecord) -> bool:
    claim = record.get(IP_CLAIM, "late")
    position = ((claim or {}).get("status") or {}).get("queuePosition")
    return position == 1 and is_observed(claim, ready=False) and _counts(record, waiting=1)


def _is_passed_on(record: NamespaceRecord) -> bool:
    gone = record.get(IP_CLAIM, "web") is None and not record.list(SERVICE)
    return gone and _has_address(record, "late") and _counts(record, waiting=0)


def _needs_announcement(service: Manifest, _: NamespaceRecord) -> bool:
    shown = map_at(service, "status", "loadBalancer").get("ingress")
    return bool(_list_wanted(service)) and not shown and not is_deleting(service)


async def _announce(client: Client, service: Manifest, _: NamespaceRecord) -> None:
    ingress = [{"ip": address} for address in _list_wanted(service)]
    status = {"status": {"loadBalancer": {"ingress": ingress}}}
    await client.patch(SERVICE, key_of(service), status, subresource="status")


def _list_wanted(service: Manifest) -> list[str]:
    wanted = text_at(service, "metadata", "annotations", "metallb.io/loadBalancerIPs")
    return wanted.split(",") if wanted else []


def check_given(history: Sequence[Version]) -> list[str]:
    """Check that no two IPAddresses have an address at a time, and that none changes its own."""
    holders: dict[str, str] = {}
    found = []
    for version in history:
        if version.kind != IP_ADDRESS or is_foreign(version):
            continue
        address, uid = version.manifest["spec"]["address"], uid_of(version.manifest)
        if version.action == "DELETED":
            holders.pop(address, None)
        elif holders.setdefault(address, uid) != uid:
            found.append(f"{version.title} has {address}, which another one has too")
    return found


async def _create_pool(user: User, **spec: Any) -> None:
    pool = {
        "realm": user.short_name,
        "family": "IPv4",
        "addresses": [_ADDRESS],
        "reuseGraceSeconds": 0,
        **spec,
    }
    await user.create(IP_POOL, user.scoped("pool"), pool)


async def _request(user: User, name: str) -> None:
    reference = {"apiGroup": IP_POOL.group, "kind": IP_POOL.kind, "name": user.scoped("pool")}
    spec = {"clusterName": "tenant", "poolRef": reference}
    await user.create(IP_ADDRESS_CLAIM, name, spec)


async def _create_request(user: User) -> None:
    await _create_pool(user, prefix=24)
    await user.create(CLUSTER, "tenant", {})
    await _request(user, "node")


async def _queue_request(user: User) -> None:
    await _request(user, "late")


async def _probe_request(user: User) -> None:
    await user.delete(IP_ADDRESS_CLAIM, "late")
    await _request(user, "last")


async def _delete_request(user: User) -> None:
    await user.delete(IP_ADDRESS_CLAIM, "last")
    await user.delete(IP_POOL, user.scoped("pool"))
    await user.delete(CLUSTER, "tenant")


def _says(claim: Manifest | None) -> tuple[str, str]:
    found = find_condition(claim or {}, "Ready") or {}
    return str(found.get("status", "")), str(found.get("reason", ""))


def _is_given_to(name: str) -> Any:
    """Return a condition: the claim of Cluster API has the address, and no other claim is left."""

    def check(record: NamespaceRecord) -> bool:
        claim, address = record.get(IP_ADDRESS_CLAIM, name), record.get(IP_ADDRESS, name)
        return (
            _says(claim) == ("True", "Ready")
            and address is not None
            and address["spec"]["address"] == _ADDRESS
            and _counts(record, waiting=0)
            and len(record.list(IP_ADDRESS)) == len(record.list(IP_ADDRESS_CLAIM)) == 1
        )

    return check


def _is_request_queued(record: NamespaceRecord) -> bool:
    queued = _says(record.get(IP_ADDRESS_CLAIM, "late")) == ("False", "PoolExhausted")
    return queued and _counts(record, waiting=1)


_NODE_PORTS: Final = "allocateLoadBalancerNodePorts"
_BALANCED: Final = {
    "type": "LoadBalancer",
    "loadBalancerClass": LOAD_BALANCER_CLASS,
    # The API server draws node ports at random.
    _NODE_PORTS: False,
}
"""Part of the spec of a Service of the class of ipam."""


def _build_service(user: User) -> Manifest:
    return {
        "metadata": {"name": "shop", "annotations": {POOL: user.scoped("pool")}},
        "spec": {**_BALANCED, "ports": [{"port": 80}]},
    }


async def _create_service(user: User) -> None:
    await _create_pool(user)
    await user.add(SERVICE, _build_service(user))


async def _switch_off_service(user: User) -> None:
    change = {"type": "ClusterIP", **dict.fromkeys(("loadBalancerClass", _NODE_PORTS))}
    await user.patch(SERVICE, "shop", {"spec": change})


async def _delete_service(user: User) -> None:
    await user.delete(SERVICE, "shop")
    await user.delete(IP_POOL, user.scoped("pool"))


def _is_service_served(record: NamespaceRecord) -> bool:
    shown = map_at(record.get(SERVICE, "shop") or {}, "status", "loadBalancer").get("ingress") or ()
    return [each["ip"] for each in shown] == [_ADDRESS] and _counts(record, waiting=0)


def _is_service_unserved(record: NamespaceRecord) -> bool:
    pools = record.list(IP_POOL)
    capacity = (pools[0].get("status") or {}).get("capacity") or {} if pools else {}
    return not record.list(IP_CLAIM) and capacity.get("allocated", 0) == 0 and is_observed(pools[0])


_LOAD_BALANCER: Final = Component(SERVICE, _needs_announcement, _announce)
"""Announces what a Service asks for, as MetalLB does."""


def _hand_to_foreigner(manifest: Manifest) -> Manifest:
    """Turn a copy of an object of the operator into one that takes no address from the pool.

    An entry of the ledger is given to a claim of a namespace that another operator watches; a claim
    names a pool that does not exist.
    """
    spec = manifest.get("spec") or {}
    if manifest.get("kind") == IP_CLAIM.kind:
        return {**manifest, "spec": {**spec, "poolRef": {"name": "other"}}}
    if manifest.get("kind") != IP_ALLOCATION.kind:
        return manifest
    claim = {"namespace": "default", "name": "other", "uid": "11111111-1111-4111-8111-111111111111"}
    metadata = {**manifest["metadata"], "finalizers": [FINALIZER]}
    return {**manifest, "metadata": metadata, "spec": {**spec, "claimRef": claim}}


def _fold(state: State) -> State:
    """Leave out where RoundRobin continues: a hint, which a process that dies takes with it."""
    for value in state.values():
        (value.get("status") or {}).pop("lastAddress", None)
    return state


def _fold_lost(state: State) -> State:
    """Leave out what is different after somebody deleted an IPClaim or an IPAddress, and right.

    A new IPClaim requests the address that the IPAddress has. A deleted IPAddress stays until its
    IPAddressClaim is deleted.
    """
    for title, value in _fold(state).items():
        if title.startswith(f"{IP_CLAIM.plural} "):
            value["spec"].pop("address", None)
        elif title.startswith(f"{IP_ADDRESS.plural} "):
            value["metadata"].pop("deletionGracePeriodSeconds", None)
    return state


WORKLOADS: Final = (
    Workload(
        id="claim",
        operator=OPERATOR,
        arguments=("--cozy-proxy=true",),
        rules=_RULES,
        crds=(
            *(build_crd(model) for model in RESOURCES),
            build_open_crd(INSTANCE),
            build_open_crd(VIRTUAL_MACHINE_INSTANCE, subresources={}),
        ),
        primary=IP_CLAIM,
        children=(
            *(IP_POOL, IP_ALLOCATION, SERVICE, ENDPOINT_SLICE, ENDPOINTS),
            *(INSTANCE, VIRTUAL_MACHINE_INSTANCE, POD),
        ),
        phases=(
            Phase("create", _create, _is_given),
            Phase("lead", change(IP_CLAIM, "web", target=_TARGET, ports=_PORTS), leads("web", 1)),
            Phase("widen", change(IP_CLAIM, "web", traffic="All", ports=[]), _leads_whole(1)),
            Phase("move", _move, _is_moved),
            Phase("narrow", _narrow, _is_narrowed),
            Phase("queue", _queue, _is_queued),
            Phase("release", remove(IP_CLAIM, "web"), _is_passed_on),
            Phase("probe", _probe, leads("late", 2), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
        invariants=(check_addresses, check_entries, check_places),
        components=(_LOAD_BALANCER,),
        rewrite=partial(blur, replacements=_REPLACEMENTS),
        hand_to_foreigner=_hand_to_foreigner,
        fold=_fold,
    ),
    Workload(
        id="capi",
        operator=OPERATOR,
        arguments=("--cluster-api=true",),
        rules=_RULES,
        crds=(
            *(build_crd(model) for model in RESOURCES),
            build_open_crd(IP_ADDRESS_CLAIM),
            build_open_crd(IP_ADDRESS, subresources={}),
            build_open_crd(CLUSTER),
        ),
        primary=IP_ADDRESS_CLAIM,
        children=(IP_ADDRESS, IP_CLAIM, IP_POOL, IP_ALLOCATION, CLUSTER),
        phases=(
            Phase("create", _create_request, _is_given_to("node")),
            Phase("queue", _queue_request, _is_request_queued),
            Phase("release", remove(IP_ADDRESS_CLAIM, "node"), _is_given_to("late")),
            Phase("probe", _probe_request, _is_given_to("last"), quiet=True),
            Phase("delete", _delete_request, is_empty),
        ),
        invariants=(check_addresses, check_entries, check_given),
        rewrite=partial(blur, replacements=_REPLACEMENTS),
        hand_to_foreigner=_hand_to_foreigner,
        fold=_fold_lost,
    ),
    Workload(
        id="services",
        operator=OPERATOR,
        arguments=("--load-balancer=true",),
        rules=_RULES,
        crds=tuple(build_crd(model) for model in RESOURCES),
        primary=SERVICE,
        children=(IP_CLAIM, IP_POOL, IP_ALLOCATION),
        phases=(
            Phase("create", _create_service, _is_service_served),
            Phase("close", _switch_off_service, _is_service_unserved),
            Phase("probe", change(SERVICE, "shop", **_BALANCED), _is_service_served, quiet=True),
            Phase("delete", _delete_service, is_empty),
        ),
        invariants=(check_addresses, check_entries),
        rewrite=partial(blur, replacements=_REPLACEMENTS),
        hand_to_foreigner=_hand_to_foreigner,
        fold=_fold,
    ),
)
