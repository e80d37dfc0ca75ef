"""Services of type LoadBalancer in a cluster get public addresses, whatever its API returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.kinds import (
    ENDPOINT_SLICE,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.plan import Apply, Delete
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.ip_claims import IP_CLAIM
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.certificates import Pair
from operators.clusters.load_balancing import (
    ServicePlan,
    evaluate_services,
    find_admission,
    list_exposures,
    plan_services,
)
from operators.clusters.naming import PUBLISHED
from operators.clusters.observed import Node, Observed, Workload
from operators.clusters.resources import build_firewall
from operators.clusters.samples import NOW, build_node, parse_cluster, view_instance
from operators.clusters.service_client import list_services, write_address
from operators.clusters.services import Admission, GuestService, Publish
from operators.clusters.workload import Access, KubernetesWorkloads

ADDRESS = "203.0.113.9"
WEB = ("edge-web-0", "edge-web-1")
type Objects = dict[tuple[Kind, str], Manifest]


def build_service(name: str = "web", namespace: str = "shop", /, **spec: Any) -> Manifest:
    """Build a Service as the API of a cluster returns it."""
    port = {"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}
    manifest = build_object(SERVICE, name, namespace, metadata={"uid": f"{namespace}-{name}"})
    manifest["spec"] = {"type": "LoadBalancer", "ports": [port], **spec}
    return manifest


def view(name: str = "web", /, *, shown: str = "", message: str = "", **spec: Any) -> GuestService:
    manifest = build_service(name, **spec)
    manifest["status"] = {"loadBalancer": {"ingress": [{"ip": shown}] if shown else []}}
    manifest["status"]["conditions"] = [{"type": PUBLISHED, "message": message}]
    found = GuestService.parse(manifest)
    assert found is not None
    return found


def cluster(limit: int = 2, pool: str = "public") -> KubernetesCluster:
    return parse_cluster(workers=2, loadBalancers={"poolName": pool, "limit": limit})


def observe(
    *services: GuestService,
    objects: Objects | None = None,
    down: tuple[str, ...] = (),
    draining: tuple[str, ...] = (),
    gone: tuple[str, ...] = (),
    reachable: bool = True,
) -> Observed:
    """Show a cluster with two worker nodes, as the operator sees it."""
    pools = {"edge-control-plane-0": CONTROL_PLANE, **dict.fromkeys(WEB, "web")}
    nodes = {
        name: Node.parse(
            build_node(
                name,
                labels={} if pool == CONTROL_PLANE else None,
                ready=name not in down,
                draining=NOW if name in draining else None,
            )
        )
        for name, pool in pools.items()
    }
    workload = Workload(True, True, nodes=nodes, services=services)
    return Observed(
        instances={
            name: view_instance(name, pool) for name, pool in pools.items() if name not in gone
        },
        objects=objects or {},
        workload=workload if reachable else Workload(asked=True, message="no response"),
    )


def carry_out(plan: ServicePlan, objects: Objects, *, bound: bool = True) -> Objects:
    """Return the objects after a plan, with an address for each claim."""
    held = dict(objects)
    for number, action in enumerate(plan.actions):
        match action.step:
            case Apply(kind, manifest):
                at = (kind, key_of(manifest).name)
                status = held.get(at, {}).get("status") or {}
                metadata = {**manifest["metadata"], "uid": f"{at[1]}-{number}"}
                if kind == IP_CLAIM and not status:
                    taken = sum(of == IP_CLAIM for of, _ in held)
                    condition = {"type": "Bound", "status": str(bound), "message": "no endpoint"}
                    status = {"address": f"203.0.113.{9 + taken}", "conditions": [condition]}
                held[at] = {**manifest, "metadata": metadata, "status": status}
            case Delete(kind, key):
                del held[kind, key.name]
            case other:
                raise AssertionError(other)
    return held


def route(*services: GuestService, asked: KubernetesCluster | None = None) -> Objects:
    return carry_out(plan_services(asked or cluster(), observe(*services)), {})


def claims_of(objects: Objects) -> dict[str, Manifest]:
    return {
        each["metadata"]["annotations"]["clusters.slipway.dev/service"]: each
        for (kind, _), each in objects.items()
        if kind == IP_CLAIM
    }


def endpoints_of(objects: Objects) -> list[str]:
    (held,) = [each for (kind, _), each in objects.items() if kind == ENDPOINT_SLICE]
    return [address for each in held["endpoints"] for address in each["addresses"]]


def test_service_gets_a_claim_that_leads_to_the_ready_nodes_of_the_pools() -> None:
    objects = route(view(loadBalancerSourceRanges=["198.51.100.7/24"]))

    (_, name), service = next(item for item in objects.items() if item[0][0] == SERVICE)
    assert service["spec"]["ports"] == [
        {"name": "tcp-80", "protocol": "TCP", "port": 80, "targetPort": 30080}
    ]
    assert endpoints_of(objects) == ["10.0.0.100", "10.0.0.101"]
    assert claims_of(objects)["shop/web"]["spec"] == {
        "poolRef": {"name": "public"},
        "target": {"kind": "Service", "name": name},
        "allowedCidrs": ["198.51.100.0/24"],
    }
    observed = observe(view(), objects=objects)
    rules = build_firewall(cluster(), list_exposures(cluster(), observed), control_plane=False)
    assert rules["spec"]["rules"][0] == {
        "name": f"{name}-tcp",
        "protocol": "TCP",
        "ports": [30080],
    }


def test_address_is_written_when_it_is_routed_and_then_nothing_more() -> None:
    objects = route(view())
    (step,) = plan_services(cluster(), observe(view(), objects=objects)).steps

    assert (step.address, step.is_routed) == (ADDRESS, True)
    shown = view(shown=step.address, message=step.message)
    assert plan_services(cluster(), observe(shown, objects=objects)).steps == ()
    (condition,) = evaluate_services(cluster(), observe(shown, objects=objects))
    assert condition.status == "True"


def test_address_stays_in_the_status_while_no_node_is_ready() -> None:
    """A name in a DNS that follows the status would be removed."""
    objects = route(view())
    shown = view(shown=ADDRESS, message="all is well")
    (step,) = plan_services(cluster(), observe(shown, objects=objects, down=WEB)).steps

    assert step.address == ADDRESS and not step.is_routed
    assert "no ready node" in step.message


def test_limit_is_kept_and_said_and_nobody_who_has_an_address_loses_it() -> None:
    objects = route(view("m"), view("n"))
    services = cluster(2)
    asked = find_admission(services, observe(objects=objects))
    assert asked is not None

    admitted = asked.admit([view("a"), view("b"), view("m"), view("n")])

    assert [(each.key.name, bool(each.problem)) for each in admitted] == [
        ("m", False),
        ("n", False),
        ("a", True),
        ("b", True),
    ]
    plan = plan_services(services, observe(*admitted, objects=objects))
    assert set(claims_of(carry_out(plan, objects))) == {"shop/m", "shop/n"}
    told = {each.service.name: each.message for each in plan.steps}
    assert "spec.loadBalancers.limit of KubernetesCluster edge" in told["a"]
    (condition,) = evaluate_services(services, observe(*admitted, objects=objects))
    assert condition.status == "False" and "Service shop/a of the cluster" in condition.message


def test_lower_limit_takes_no_address_away() -> None:
    objects = route(view("m"), view("n"))
    asked = find_admission(cluster(1), observe(objects=objects))

    assert asked is not None
    assert [each.problem for each in asked.admit([view("m"), view("n")])] == ["", ""]


def test_service_that_keeps_an_address_despite_a_problem_counts() -> None:
    """A tenant could get all addresses of the pool, a few at a time."""
    objects = route(view("m"), view("n"))
    asked = find_admission(cluster(2), observe(objects=objects))
    assert asked is not None

    spoiled = [view(each, loadBalancerIP="203.0.113.1") for each in ("m", "n")]
    admitted = asked.admit([*spoiled, view("a")])
    plan = plan_services(cluster(2), observe(*admitted, objects=objects))

    assert set(claims_of(carry_out(plan, objects))) == {"shop/m", "shop/n"}
    assert "spec.loadBalancers.limit" in admitted[-1].problem


def test_many_waiting_services_are_bounded() -> None:
    admitted = Admission("edge", 5).admit(view(f"s{number}") for number in range(1_000))

    assert len(admitted) == 55
    assert sum(not each.problem for each in admitted) == 5


@pytest.mark.parametrize(
    "change",
    [
        {"type": "ClusterIP"},
        {"type": "NodePort"},
        {"loadBalancerClass": "metallb.io/metallb"},
        {"deleted": True},
    ],
    ids=str,
)
def test_address_of_a_service_that_needs_none_is_released(change: Manifest) -> None:
    objects = route(view())
    manifest = build_service(**change)
    if change.get("deleted"):
        manifest["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert GuestService.parse(manifest) is None

    assert carry_out(plan_services(cluster(), observe(objects=objects)), objects) == {}


def test_service_that_is_created_again_keeps_its_claim() -> None:
    objects = route(view())
    again = replace(view(), uid="another")

    assert carry_out(plan_services(cluster(), observe(again, objects=objects)), objects).keys() == (
        objects.keys()
    )


def test_replaced_nodes_are_followed() -> None:
    objects = route(view())

    drained = observe(view(), objects=objects, draining=WEB[:1])
    assert endpoints_of(carry_out(plan_services(cluster(), drained), objects)) == ["10.0.0.101"]
    lost = observe(view(), objects=objects, down=WEB)
    assert endpoints_of(carry_out(plan_services(cluster(), lost), objects)) == []
    both = observe(view(), objects=objects, draining=WEB)
    assert len(endpoints_of(carry_out(plan_services(cluster(), both), objects))) == 2


def test_nodes_that_serve_no_external_traffic_are_left_out() -> None:
    observed = observe(view())
    label = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    nodes = dict(observed.workload.nodes)
    nodes[WEB[0]] = replace(nodes[WEB[0]], labels=label)
    workload = replace(observed.workload, nodes=nodes)

    plan = plan_services(cluster(), replace(observed, workload=workload))
    assert endpoints_of(carry_out(plan, {})) == ["10.0.0.101"]


def test_addresses_stay_while_the_api_is_down_but_not_those_of_lost_machines() -> None:
    """Another tenant's pod may get the address of a machine that is gone."""
    objects = route(view())
    down = observe(objects=objects, reachable=False)

    assert carry_out(plan_services(cluster(), down), objects).keys() == objects.keys()
    assert endpoints_of(carry_out(plan_services(cluster(), down), objects)) == [
        "10.0.0.100",
        "10.0.0.101",
    ]
    gone = observe(objects=objects, reachable=False, gone=WEB[:1])
    assert endpoints_of(carry_out(plan_services(cluster(), gone), objects)) == ["10.0.0.101"]
    assert [each.ports[0].node_port for each in list_exposures(cluster(), down)] == [30080]
    (condition,) = evaluate_services(cluster(), down)
    assert condition.status == "Unknown"


def test_removed_field_releases_addresses_after_the_services_no_longer_show_them() -> None:
    objects, off = route(view()), parse_cluster(workers=2)
    shown = view(shown=ADDRESS, message="routes")

    first = plan_services(off, observe(shown, objects=objects))
    second = plan_services(off, observe(view(), objects=objects))

    assert first.actions == () and [(each.address, each.message) for each in first.steps] == [
        ("", "")
    ]
    assert carry_out(second, objects) == {}
    assert find_admission(off, observe()) is None, "no request without need"
    assert evaluate_services(off, observe()) == []


def test_corrected_pool_holds_for_a_service_without_an_address() -> None:
    objects = route(view(), asked=cluster(pool="pubilc"))
    (claim,) = [at for at in objects if at[0] == IP_CLAIM]
    objects[claim] = {**objects[claim], "status": {}}

    corrected = plan_services(cluster(), observe(view(), objects=objects))
    objects = carry_out(corrected, objects)
    assert claim not in objects
    objects = carry_out(plan_services(cluster(), observe(view(), objects=objects)), objects)
    assert objects[claim]["spec"]["poolRef"] == {"name": "public"}


def test_changed_pool_is_for_new_addresses() -> None:
    """The pool of a claim is immutable, and a refused write must stop nothing."""
    objects = route(view("m"))

    plan = plan_services(cluster(pool="other"), observe(view("m"), view("n"), objects=objects))

    pools = {
        name: each["spec"]["poolRef"]["name"]
        for name, each in claims_of(carry_out(plan, objects)).items()
    }
    assert pools == {"shop/m": "public", "shop/n": "other"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"ports": [{"port": 80}]}, "no node ports"),
        ({"ports": [{"port": p, "nodePort": p + 30_000} for p in range(1, 18)]}, "more than 16"),
        ({"loadBalancerIP": "203.0.113.1"}, "loadBalancerIP is not supported"),
        ({"loadBalancerSourceRanges": ["everybody"]}, "no block of addresses"),
        ({"loadBalancerSourceRanges": ["10.0.0.0/8"] * 65}, "more than 64"),
    ],
    ids=str,
)
def test_service_that_cannot_be_served_is_told_and_keeps_what_it_has(
    spec: Manifest, words: str
) -> None:
    objects = route(view())

    plan = plan_services(cluster(), observe(view(**spec), objects=objects))

    assert words in plan.steps[0].message
    assert carry_out(plan, objects).keys() == objects.keys()
    assert claims_of(route(view(**spec))) == {}


@pytest.mark.parametrize(
    "name", ["../../kube-system/x", "A", "a" * 64, "", "a.b", "a/b", "x\n"], ids=repr
)
def test_service_with_an_impossible_name_does_not_count(name: str) -> None:
    assert GuestService.parse(build_service(name)) is None
    assert GuestService.parse(build_service("web", name)) is None


def test_ports_of_both_protocols_are_routed() -> None:
    ports = [
        {"name": "a", "protocol": protocol, "port": 53, "nodePort": number}
        for protocol, number in (("UDP", 30053), ("TCP", 30054))
    ]
    objects = route(view(ports=ports))
    observed = observe(view(ports=ports), objects=objects)
    rules = build_firewall(cluster(), list_exposures(cluster(), observed), control_plane=False)

    found = [(each["protocol"], each["ports"]) for each in rules["spec"]["rules"][:2]]
    assert found == [("TCP", [30054]), ("UDP", [30053])]


def test_traffic_policy_local_leads_to_the_nodes_with_endpoints_only() -> None:
    """The other nodes drop such traffic."""
    local = replace(view(externalTrafficPolicy="Local"), nodes=frozenset(WEB[1:]))

    assert endpoints_of(route(local)) == ["10.0.0.101"]
    nowhere = replace(local, nodes=frozenset())
    objects = route(nowhere)
    (step,) = plan_services(cluster(), observe(nowhere, objects=objects)).steps
    assert "and an endpoint of it" in step.message


def test_service_of_another_family_than_the_nodes_is_not_called_routed() -> None:
    six = view(ipFamilies=["IPv6"])
    objects = route(six)

    (step,) = plan_services(cluster(), observe(six, objects=objects)).steps
    assert (step.address, step.is_routed) == ("", False)
    assert endpoints_of(objects) == [] and "with an IPv6 address" in step.message
    assert len(endpoints_of(route(view(ipFamilies=["IPv6", "IPv4"])))) == 2


@pytest.mark.parametrize("writer", ["controller", "", "x" * 1_000, "clusters"])
def test_address_of_another_controller_in_the_status_is_neither_replaced_nor_removed(
    writer: str,
) -> None:
    objects = route(view())
    manifest = build_service()
    fields: Manifest = {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}
    manifest["metadata"]["managedFields"] = [{"manager": writer, "fieldsV1": fields}, {}]
    manifest["status"] = {"loadBalancer": {"ingress": [{"ip": "192.168.7.7"}]}}
    other = GuestService.parse(manifest)
    assert other is not None and len(other.problem) < 300

    plan = plan_services(cluster(), observe(other, objects=objects))
    assert carry_out(plan, objects).keys() == objects.keys()
    ours = writer == "clusters"
    assert [each.address for each in plan.steps] == [ADDRESS if ours else ""]
    assert ("loadBalancer" in plan.steps[0].render("now")) is ours


async def test_hostile_api_hides_no_node(fake_api: FakeApi) -> None:
    """Whoever is root in the cluster chooses what its API returns."""
    for number in range(2_001):
        fake_api.create(build_service(f"s{number}", "default"))
    access = Access(fake_api.url, "", "", Pair("", ""), admission=Admission("edge", 2))

    found = await KubernetesWorkloads(60).look(access)

    assert found.reachable and found.services is None
    assert "more than 2000 Services" in found.services_problem


async def test_failed_list_of_services_hides_no_node(fake_api: FakeApi) -> None:
    fake_api.fail("list", SERVICE, status=403, times=None)
    access = Access(fake_api.url, "", "", Pair("", ""), admission=Admission("edge", 2))

    found = await KubernetesWorkloads(60).look(access)

    assert found.reachable and found.services is None and "403" in found.services_problem


@pytest.mark.apiserver
async def test_real_api_server_keeps_and_drops_what_is_written(
    kube_client: Client, kube_namespace: str
) -> None:
    def find(held: tuple[GuestService, ...]) -> GuestService:
        return next(each for each in held if each.key.namespace == kube_namespace)

    asked = Admission("edge", 50)
    manifest = build_service("web", kube_namespace, externalTrafficPolicy="Local")
    del manifest["metadata"]["uid"], manifest["spec"]["ports"][0]["nodePort"]
    made = await kube_client.create(SERVICE, manifest)
    slice_ = build_object(ENDPOINT_SLICE, "web-1", kube_namespace, addressType="IPv4")
    slice_["metadata"]["labels"] = {"kubernetes.io/service-name": "web"}
    slice_["endpoints"] = [
        {"addresses": ["10.1.0.1"], "nodeName": "edge-web-0", "conditions": {"ready": True}},
        {"addresses": ["10.1.0.2"], "nodeName": "edge-web-1", "conditions": {"ready": False}},
    ]
    await kube_client.create(ENDPOINT_SLICE, slice_)
    others = {"conditions": [{**CONDITION, "type": "example.com/Other"}]}
    key = Key(kube_namespace, "web")
    await kube_client.patch(SERVICE, key, {"status": others}, subresource="status")

    found = find(await list_services(kube_client, asked))
    assert found.nodes == {"edge-web-0"} and found.ports[0].node_port >= 30_000
    step = Publish(key, uid_of(made), ADDRESS, "routes TCP 80", is_routed=True)
    await write_address(kube_client, step, NOW)
    found = find(await list_services(kube_client, asked))
    assert (found.published, found.message) == ((ADDRESS,), "routes TCP 80")

    await write_address(kube_client, Publish(key, uid_of(made)), NOW)
    found = find(await list_services(kube_client, asked))
    assert (found.published, found.message) == ((), "")
    held = await kube_client.get(SERVICE, key)
    assert find_condition(held, "example.com/Other") is not None

    await write_address(kube_client, step, NOW)
    await kube_client.patch(SERVICE, key, {"spec": {"type": "ClusterIP"}})
    held = await kube_client.get(SERVICE, key)
    assert held["status"]["loadBalancer"] == {}, "the API server itself removes the address"
    assert not [each for each in await list_services(kube_client, asked) if each.key == key]


CONDITION = {
    "status": "True",
    "reason": "Any",
    "message": "",
    "lastTransitionTime": "2026-03-01T12:00:00Z",
}


def test_ports_of_nodes_are_open_by_rule_only() -> None:
    held = parse_cluster(
        ingressRules=[{"name": "web", "ports": [30080], "cidrs": ["192.0.2.0/24"]}]
    )

    def list_names(*, control_plane: bool) -> list[str]:
        rules = build_firewall(held, [], control_plane=control_plane)["spec"]["rules"]
        return [each["name"] for each in rules]

    rule, *_ = build_firewall(held, [], control_plane=False)["spec"]["rules"]
    assert rule == {
        "name": "ingress-web",
        "protocol": "TCP",
        "ports": [30080],
        "cidrs": ["192.0.2.0/24"],
    }
    assert list_names(control_plane=True) == ["nodes", "to-nodes"]
