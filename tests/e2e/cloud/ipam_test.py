"""The ipam operator on a real cluster: a pool, its queue, a release, and where addresses lead."""

from __future__ import annotations

import pytest

from libs.common.conditions import find_condition
from libs.common.errors import Invalid, NotFound
from libs.common.kinds import (
    DEPLOYMENT,
    ENDPOINT_SLICE,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
    uid_of,
)
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from tests.e2e.cluster import Cluster, Serve, build_busybox, eventually


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve) -> None:
    """Install the operator for all tests here."""
    # The cluster of the tests has no load balancer.
    serve("ipam", settings__announcement="ExternalIPs")


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Make a namespace for one test; its pool has the same name."""
    return await cluster.make_namespace("ipam")


async def make_pool(cluster: Cluster, name: str, **spec: object) -> None:
    """Make a pool of two addresses in a realm of its own."""
    realm = name.replace("-", "")[-20:]
    await cluster.client.create(
        IP_POOL,
        build_object(
            IP_POOL,
            name,
            spec={
                "realm": realm,
                "family": "IPv4",
                "addresses": ["203.0.113.10-203.0.113.11"],
                "strategy": "LowestFree",
                "reuseGraceSeconds": 0,
                **spec,
            },
        ),
    )


def build_claim(namespace: str, name: str, **spec: object) -> Manifest:
    return build_object(IP_CLAIM, name, namespace, spec={"poolRef": {"name": namespace}, **spec})


async def status(cluster: Cluster, namespace: str, name: str) -> Manifest:
    claim = await cluster.client.get(IP_CLAIM, Key(namespace, name))
    found: Manifest = claim.get("status") or {}
    return found


async def has_address(cluster: Cluster, namespace: str, name: str, address: str) -> None:
    async def shown() -> bool:
        return (await status(cluster, namespace, name)).get("address") == address

    await eventually(shown, f"{name} has {address}")


async def delete(cluster: Cluster, kind: Kind, key: Key) -> None:
    """Delete an object."""
    live = await cluster.client.get(kind, key)
    await cluster.client.delete(kind, key, uid=uid_of(live))


async def is_gone(cluster: Cluster, name: str) -> bool:
    try:
        await cluster.client.get(IP_POOL, Key("", name))
    except NotFound:
        return True
    return False


async def test_exhausted_pool_serves_the_head_of_its_queue_at_a_release(
    cluster: Cluster, namespace: str
) -> None:
    await make_pool(cluster, namespace, maxPriority=5)
    for number in range(2):
        await cluster.client.create(IP_CLAIM, build_claim(namespace, f"c{number}"))
        await has_address(cluster, namespace, f"c{number}", f"203.0.113.{10 + number}")
    for name, priority in (("late", 0), ("urgent", 5)):
        await cluster.client.create(IP_CLAIM, build_claim(namespace, name, priority=priority))

    async def queued() -> bool:
        places = [(await status(cluster, namespace, each)) for each in ("urgent", "late")]
        return [each.get("queuePosition") for each in places] == [1, 2]

    await eventually(queued, "both know their place")
    await delete(cluster, IP_CLAIM, Key(namespace, "c0"))
    await has_address(cluster, namespace, "urgent", "203.0.113.10")
    await has_address(cluster, namespace, "c1", "203.0.113.11")

    pool = await cluster.client.get(IP_POOL, Key("", namespace))
    assert pool["status"]["capacity"] | {"waiting": 1} == pool["status"]["capacity"]
    for name in ("c1", "late", "urgent"):
        await delete(cluster, IP_CLAIM, Key(namespace, name))
    await delete(cluster, IP_POOL, Key("", namespace))
    await eventually(lambda: is_gone(cluster, namespace), "the pool has all addresses back")


async def test_address_leads_to_a_service_and_moves_to_another(
    cluster: Cluster, namespace: str
) -> None:
    await make_pool(cluster, namespace)
    for name in ("one", "two"):
        await make_backend(cluster, namespace, name)
    target = {"kind": "Service", "name": "one"}
    await cluster.client.create(IP_CLAIM, build_claim(namespace, "web", target=target))
    await leads_to(cluster, namespace, "one")

    service = await cluster.client.get(SERVICE, Key(namespace, "web-ip"))
    assert service["spec"]["externalIPs"] == ["203.0.113.10"]
    await cluster.client.patch(
        IP_CLAIM, Key(namespace, "web"), {"spec": {"target": {"kind": "Service", "name": "two"}}}
    )
    await leads_to(cluster, namespace, "two")

    await delete(cluster, IP_CLAIM, Key(namespace, "web"))
    await delete(cluster, IP_POOL, Key("", namespace))
    await eventually(lambda: is_gone(cluster, namespace), "the pool has its address back")
    with pytest.raises(NotFound):
        await cluster.client.get(SERVICE, Key(namespace, "web-ip"))


async def test_api_server_refuses_a_second_entry_for_an_address(
    cluster: Cluster, namespace: str
) -> None:
    spec = {
        "realm": "other",
        "address": "203.0.113.10",
        "poolRef": {"name": namespace, "uid": "u"},
        "claimRef": {"namespace": namespace, "name": "c", "uid": "u"},
    }
    manifest = build_object(IP_ALLOCATION, "second-name-for-it", spec=spec)
    with pytest.raises(Invalid, match=r"metadata\.name must be made of"):
        await cluster.client.create(IP_ALLOCATION, manifest)


async def make_backend(cluster: Cluster, namespace: str, name: str) -> None:
    """Run a pod behind a Service."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": build_busybox("sleep", "3600")}
    pods = {"selector": {"matchLabels": labels}, "template": template}
    await cluster.client.create(DEPLOYMENT, build_object(DEPLOYMENT, name, namespace, spec=pods))
    ports = {"selector": labels, "ports": [{"name": "http", "port": 80}]}
    await cluster.client.create(SERVICE, build_object(SERVICE, name, namespace, spec=ports))


async def leads_to(cluster: Cluster, namespace: str, service: str) -> None:
    """Wait until the slice of the claim has the endpoint of a Service."""

    async def same() -> bool:
        listing = await cluster.client.list(
            ENDPOINT_SLICE, namespace, label_selector=f"kubernetes.io/service-name={service}"
        )
        wanted = [
            address
            for each in listing.items
            for endpoint in each.get("endpoints") or ()
            for address in endpoint["addresses"]
        ]
        try:
            held = await cluster.client.get(ENDPOINT_SLICE, Key(namespace, "web-ip-v4"))
        except NotFound:
            return False
        shown = [each["addresses"][0] for each in held.get("endpoints") or ()]
        claim = await cluster.client.get(IP_CLAIM, Key(namespace, "web"))
        reported = find_condition(claim, "Bound") or {"status": ""}
        return bool(wanted) and shown == wanted and reported["status"] == "True"

    await eventually(same, f"the address leads to {service}")
