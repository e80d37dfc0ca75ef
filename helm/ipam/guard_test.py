"""The admission policy of the chart on a real API server: what a tenant can put into Services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.errors import AlreadyExists, Forbidden, Invalid
from libs.common.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    SERVICE,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.helm import render_chart
from libs.common.testing.serving import serve
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.naming import OPERATOR_ID
from operators.ipam.samples import build_pool

pytestmark = pytest.mark.apiserver

_GROUP = "admissionregistration.k8s.io"
POLICY = Kind(
    _GROUP,
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
BINDING = Kind(
    _GROUP,
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
TAKEN = "203.0.113.77"
"""An address of the pool; 198.51.100.7 is none."""
RELEASE, OTHER_RELEASE = "ipam-system", "ipam-other"


@dataclass(frozen=True)
class Guarded:
    """A cluster with the policy, and the clients of those who write Services.

    Attributes:
        admin: A client with all rights, as many GitOps controllers have them.
        tenant: A client that can write Services and their status in all namespaces.
        operator: The operator of the release with the policy.
        other: The operator of another release.
    """

    admin: Client
    tenant: Client
    operator: Client
    other: Client


@pytest.fixture
async def guarded(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> AsyncIterator[Guarded]:
    """Install the policy, a pool, and the identities."""
    await serve(kube_client, *RESOURCES)
    rendered = render_chart("ipam", namespace=RELEASE, show_only=(POLICY.kind, BINDING.kind))
    pool = build_pool(f"guard-{kube_namespace}", addresses=["203.0.113.64/26"])
    created: list[tuple[Kind, Manifest]] = []
    async with AsyncExitStack() as stack:

        async def log_in(namespace: str, account: str, *rules: Manifest) -> Client:
            name = f"{namespace}-{account}"
            subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
            reference = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": name}
            for kind, manifest in (
                (NAMESPACE, build_object(NAMESPACE, namespace)),
                (SERVICE_ACCOUNT, build_object(SERVICE_ACCOUNT, account, namespace)),
                (CLUSTER_ROLE, build_object(CLUSTER_ROLE, name, rules=list(rules))),
                (
                    CLUSTER_ROLE_BINDING,
                    build_object(CLUSTER_ROLE_BINDING, name, subjects=[subject], roleRef=reference),
                ),
            ):
                with suppress(AlreadyExists):
                    await kube_client.create(kind, manifest)
            token = await kube_client.raw(
                "POST",
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
            )
            config = kube_apiserver.config_for(token["status"]["token"])
            return await stack.enter_async_context(Client(config, user_agent=account))

        services = {
            "apiGroups": [""],
            "resources": ["services", "services/status"],
            "verbs": ["*"],
        }
        announce = {
            "apiGroups": [IP_POOL.group],
            "resources": ["ippools"],
            "verbs": ["announce"],
        }
        cluster = Guarded(
            kube_client,
            await log_in(kube_namespace, "tenant", services),
            await log_in(RELEASE, "ipam", services),
            await log_in(OTHER_RELEASE, "ipam", services, announce),
        )
        for manifest in (pool, *rendered):
            kind = {IP_POOL.kind: IP_POOL, POLICY.kind: POLICY, BINDING.kind: BINDING}[
                manifest["kind"]
            ]
            created.append((kind, await kube_client.create(kind, manifest)))
        blocks = {"capacity": {}, "conditions": [], "blocks": ["203.0.113.64/26"]}
        await kube_client.apply(
            IP_POOL, {**_bare(pool), "status": blocks}, field_manager="x", subresource="status"
        )
        await _wait_enforced(cluster, kube_namespace)
        try:
            yield cluster
        finally:
            for kind, manifest in reversed(created):
                await delete(kube_client, kind, manifest)


def _bare(manifest: Manifest) -> Manifest:
    return {name: manifest[name] for name in ("apiVersion", "kind", "metadata")}


async def _wait_enforced(cluster: Guarded, namespace: str) -> None:
    """Wait until the API server refuses what the policy forbids, and nothing else."""
    async with asyncio.timeout(120):
        while True:
            try:
                service = build_service(namespace, externalIPs=[TAKEN])
                created = await cluster.tenant.create(SERVICE, service)
                await delete(cluster.admin, SERVICE, created)
            except (Forbidden, Invalid) as err:
                if "only claims can have" in str(err):
                    return
            await asyncio.sleep(0.2)


def build_service(
    namespace: str, *, annotations: Any = None, labels: Any = None, **spec: Any
) -> Manifest:
    metadata = {"annotations": annotations or {}, "labels": labels or {}}
    fields = {"ports": [{"port": 80}], **spec}
    return build_object(SERVICE, "thief", namespace, metadata=metadata, spec=fields)


LOAD_BALANCER = {"type": "LoadBalancer"}
THEFTS: dict[str, dict[str, Any]] = {
    "externalIPs": {"externalIPs": ["198.51.100.7", TAKEN]},
    "loadBalancerIP": {**LOAD_BALANCER, "loadBalancerIP": TAKEN},
    "sloppy": {"externalIPs": ["203.0.113.077"]},
    "mapped": {"externalIPs": [f"::ffff:{TAKEN}"]},
    "many": {"externalIPs": [f"198.51.100.{each}" for each in range(1, 34)]},
    "label": {"labels": {"app.kubernetes.io/managed-by": OPERATOR_ID}},
    **{
        name: {**LOAD_BALANCER, "annotations": {name: f"198.51.100.7, {TAKEN}"}}
        for name in (
            "metallb.io/loadBalancerIPs",
            "metallb.universe.tf/loadBalancerIPs",
            "lbipam.cilium.io/ips",
            "io.cilium/lb-ipam-ips",
            "kube-vip.io/loadbalancerIPs",
            "loadbalancer.openstack.org/load-balancer-address",
            "service.beta.kubernetes.io/azure-load-balancer-ipv4",
        )
    },
    "Calico": {
        **LOAD_BALANCER,
        "annotations": {"projectcalico.org/loadBalancerIPs": f'["198.51.100.7", "{TAKEN}"]'},
    },
}


async def test_nobody_but_the_operator_takes_an_address_of_a_pool(
    guarded: Guarded, kube_namespace: str
) -> None:
    """CVE-2020-8554: kubernetes/kubernetes#97076."""
    key = Key(kube_namespace, "thief")
    allowed = [name for name, each in THEFTS.items() if await try_create(guarded.tenant, key, each)]
    assert allowed == []
    deputies = [name for name, each in THEFTS.items() if await try_create(guarded.admin, key, each)]
    assert deputies == [], "a GitOps controller with all rights applies what tenants write"
    for client in (guarded.operator, guarded.other):
        refused = [
            name
            for name, each in THEFTS.items()
            if name not in ("sloppy", "mapped") and not await try_create(client, key, each)
        ]
        assert refused == []


async def test_ordinary_services_are_not_touched(guarded: Guarded, kube_namespace: str) -> None:
    key = Key(kube_namespace, "thief")
    ordinary: list[dict[str, Any]] = [
        {},
        {"externalIPs": ["198.51.100.7"]},
        {**LOAD_BALANCER, "loadBalancerIP": "198.51.100.7"},
        {**LOAD_BALANCER, "annotations": {"metallb.io/loadBalancerIPs": "198.51.100.7"}},
        {
            **LOAD_BALANCER,
            "annotations": {"projectcalico.org/loadBalancerIPs": '["198.51.100.7"]'},
        },
        {**LOAD_BALANCER, "loadBalancerClass": "slipway.dev/ipam", "loadBalancerIP": TAKEN},
        {"labels": {"app.kubernetes.io/managed-by": "Helm"}},
    ]

    assert [each for each in ordinary if not await try_create(guarded.tenant, key, each)] == []


async def test_change_and_status_cannot_take_an_address_either(
    guarded: Guarded, kube_namespace: str
) -> None:
    key, tenant = Key(kube_namespace, "thief"), guarded.tenant
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": TAKEN, "ipMode": "VIP"}]}}}
    await tenant.create(SERVICE, build_service(kube_namespace, **LOAD_BALANCER))
    for patch, subresource in (
        ({"spec": {"externalIPs": [TAKEN]}}, ""),
        ({"metadata": {"annotations": {"lbipam.cilium.io/ips": TAKEN}}}, ""),
        ({"metadata": {"labels": {"app.kubernetes.io/managed-by": OPERATOR_ID}}}, ""),
        (ingress, "status"),
    ):
        with pytest.raises((Forbidden, Invalid)):
            await tenant.patch(SERVICE, key, patch, subresource=subresource)
    await guarded.operator.patch(SERVICE, key, ingress, subresource="status")

    # The load balancer reports the address of a Service that belongs to a claim.
    await guarded.operator.patch(SERVICE, key, {"metadata": {"labels": _ours()}})
    await guarded.operator.patch(SERVICE, key, {"spec": {"externalIPs": [TAKEN]}})
    await tenant.patch(SERVICE, key, ingress, subresource="status")
    changed = await tenant.patch(SERVICE, key, {"metadata": {"labels": {"x": "y"}}})
    assert changed["metadata"]["labels"]["x"] == "y", "it keeps what the operator has put there"
    await delete(guarded.admin, SERVICE, changed)


async def test_address_of_a_claim_moves_to_no_other_field_and_stays_with_the_label(
    guarded: Guarded, kube_namespace: str
) -> None:
    """The operator deletes the Services with its label before another claim gets the address."""
    key, tenant = Key(kube_namespace, "thief"), guarded.tenant
    notes = {"metallb.io/loadBalancerIPs": TAKEN}
    service = build_service(kube_namespace, annotations=notes, labels=_ours(), **LOAD_BALANCER)
    created = await guarded.operator.create(SERVICE, service)
    label: Manifest = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
    for patch in (
        label,
        {"metadata": {"labels": None}},
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}},
        {"spec": {"externalIPs": [TAKEN]}},
        {"spec": {"loadBalancerIP": TAKEN}, **label},
        {"spec": {"externalIPs": [TAKEN]}, "metadata": {"annotations": None, "labels": None}},
    ):
        with pytest.raises((Forbidden, Invalid)):
            await tenant.patch(SERVICE, key, patch)
    released = {"metadata": {"annotations": dict.fromkeys(notes), "labels": None}}
    await tenant.patch(SERVICE, key, released)
    with pytest.raises((Forbidden, Invalid)):
        await tenant.patch(SERVICE, key, {"metadata": {"annotations": notes}})
    await delete(guarded.admin, SERVICE, created)


async def test_service_from_before_the_policy_keeps_its_addresses(
    guarded: Guarded, kube_namespace: str
) -> None:
    key, tenant = Key(kube_namespace, "thief"), guarded.tenant
    notes = {"metallb.io/loadBalancerIPs": TAKEN}
    service = build_service(kube_namespace, annotations=notes, **LOAD_BALANCER)
    created = await guarded.operator.create(SERVICE, service)
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": TAKEN, "ipMode": "VIP"}]}}}
    await tenant.patch(SERVICE, key, ingress, subresource="status")
    await tenant.patch(SERVICE, key, {"spec": {"selector": {"app": "web"}}})
    with pytest.raises((Forbidden, Invalid)):
        await tenant.patch(SERVICE, key, {"spec": {"externalIPs": [TAKEN]}})
    await delete(guarded.admin, SERVICE, created)


def _ours() -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": OPERATOR_ID}


async def try_create(client: Client, key: Key, fields: dict[str, Any]) -> bool:
    """Return whether a client can create a Service; it is deleted again."""
    try:
        created = await client.create(SERVICE, build_service(key.namespace, **fields))
    except (Forbidden, Invalid):
        return False
    await delete(client, SERVICE, created)
    return True


async def delete(client: Client, kind: Kind, manifest: Manifest) -> None:
    await client.delete(kind, key_of(manifest), uid=uid_of(manifest))
