"""Addresses of an Instance: what routes to it, its own addresses, and what its guest gets."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.kinds import SECRET, Key, Manifest
from libs.common.plan import Apply, Create, Patch
from libs.common.testing.fakeapi.patches import apply_json_patch
from libs.contracts.ip_claims import IP_CLAIM, IpClaimView
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from libs.contracts.network import NetworkView, RouteView
from operators.compute.api.instance import Instance
from operators.compute.instance.facts import evaluate_address, evaluate_network
from operators.compute.instance.observed import Observed
from operators.compute.instance.reconcile import plan_instance
from operators.compute.instance.resources import build_public_claim, hash_cloud_init
from operators.compute.instance.status import build_status
from operators.compute.naming import mac_address
from operators.compute.samples import (
    UID,
    build_observation,
    parse_instance,
    show_disk,
    show_machine,
    show_run,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HTTP = {"name": "http", "port": 80}
DNS = {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353}
AUTO = {"mode": "Auto", "poolName": "public"}


def steps(instance: Instance, observed: Observed, kind: type) -> list[Any]:
    actions = plan_instance(instance, observed, NOW)
    return [action.step for action in actions if type(action.step) is kind]


# The public address.


def build_claim(
    *ports: Manifest, run: str = "run-1", bound: bool = True, why: str = ""
) -> IpClaimView:
    state = {"type": "Bound", "status": "True" if bound else "False", "message": why}
    return IpClaimView.parse(
        {
            "metadata": {"name": "web-public", "namespace": "default"},
            "spec": {"target": {"kind": "Instance", "name": "web"}, "ports": list(ports)},
            "status": {
                "address": "203.0.113.1",
                "binding": {"vmiUID": run},
                "conditions": [{"type": "Ready", "status": "True"}, state],
            },
        }
    )


@pytest.mark.parametrize(
    ("claim", "expected", "message"),
    [
        (
            build_claim(HTTP, DNS),
            "True/Bound",
            "203.0.113.1 routes TCP 80, UDP 53 to the machine",
        ),
        (
            build_claim(),
            "False/NoPorts",
            (
                "203.0.113.1 is allocated, and no port is routed to the machine; set "
                "spec.publicIP.ports"
            ),
        ),
        (
            build_claim(HTTP, run="run-0"),
            "False/AddressUnbound",
            "203.0.113.1 is not routed to the current run of the machine yet",
        ),
        (
            build_claim(HTTP, bound=False, why="nothing announces it"),
            "False/AddressNotRouted",
            "203.0.113.1 is not routed to the machine; IPClaim web-public: nothing announces it",
        ),
        (
            build_claim(HTTP, run="run-0", bound=False, why="moving"),
            "False/AddressUnbound",
            "203.0.113.1 is not routed to the machine; IPClaim web-public: moving",
        ),
    ],
    ids=["routed", "no ports", "run before", "not announced", "moving"],
)
def test_address_is_ready_only_if_something_routes_it(
    claim: IpClaimView, expected: str, message: str
) -> None:
    shown = evaluate_address(
        parse_instance(publicIP=AUTO), build_observation(claim=claim, run=show_run())
    )

    assert (f"{shown.status}/{shown.reason}", shown.message) == (expected, message)


def test_address_at_a_node_that_does_not_report_is_not_called_ready() -> None:
    observed = build_observation(claim=build_claim(HTTP, DNS), run=show_run(), silent_node="node-1")

    shown = evaluate_address(parse_instance(publicIP=AUTO), observed)

    assert (shown.status, shown.reason) == ("Unknown", "NodeSilent")
    assert "node node-1 does not report" in shown.message


def test_claim_of_the_user_without_ports_names_the_field_of_the_claim() -> None:
    instance = parse_instance(publicIP={"mode": "Claim", "claimName": "web-public"})

    shown = evaluate_address(instance, build_observation(claim=build_claim(), run=show_run()))

    assert shown.reason == "NoPorts"
    assert "spec.ports of IPClaim web-public" in shown.message


def test_ports_are_handed_to_the_claim_and_follow_the_spec() -> None:
    instance = parse_instance(publicIP={**AUTO, "ports": [HTTP, DNS]})
    wanted = [{"name": "http", "protocol": "TCP", "port": 80}, DNS]

    (create,) = [s for s in steps(instance, build_observation(), Create) if s.kind == IP_CLAIM]
    assert create.manifest["spec"]["ports"] == wanted

    held = create.manifest | {"metadata": {**create.manifest["metadata"], "uid": "c"}}
    assert _patched(instance, held) is None
    # The API server fills the protocol in, or does not.
    bare = {**held, "spec": {**held["spec"], "ports": [HTTP, DNS]}}
    assert _patched(instance, bare) is None
    fewer = parse_instance(publicIP={**AUTO, "ports": [HTTP]})
    assert _patched(fewer, held) == wanted[:1]
    assert _patched(parse_instance(publicIP={**AUTO, "ports": []}), held) == []
    assert _patched(parse_instance(publicIP=AUTO), held) is None, "unset: left as they are"


def test_whole_address_is_handed_to_the_claim_and_replaces_its_ports() -> None:
    whole = parse_instance(publicIP={**AUTO, "traffic": "All"})
    assert build_public_claim(whole)["spec"]["traffic"] == "All"

    before = {**build_public_claim(parse_instance(publicIP={**AUTO, "ports": [HTTP]}))}
    held = before | {"metadata": {**before["metadata"], "uid": "c"}}
    after = _change(whole, held)
    assert (after["spec"]["traffic"], after["spec"]["ports"]) == ("All", [])
    assert _patched(whole, after) is None
    assert _patched(parse_instance(publicIP=AUTO), after) is None, "unset: left as they are"

    back = _change(parse_instance(publicIP={**AUTO, "ports": [HTTP]}), after)
    assert (back["spec"]["traffic"], len(back["spec"]["ports"])) == ("Ports", 1)


def test_whole_address_is_said_to_route_all_ports() -> None:
    claim = IpClaimView.parse(
        {
            "metadata": {"name": "web-public", "namespace": "default"},
            "spec": {"target": {"kind": "Instance", "name": "web"}, "traffic": "All"},
            "status": {
                "address": "203.0.113.1",
                "binding": {"vmiUID": "run-1"},
                "conditions": [{"type": "Bound", "status": "True"}],
            },
        }
    )
    instance = parse_instance(publicIP={**AUTO, "traffic": "All"})

    shown = evaluate_address(instance, build_observation(claim=claim, run=show_run()))

    assert (shown.status, shown.message) == ("True", "203.0.113.1 routes all ports to the machine")


def _change(instance: Instance, held: Manifest) -> Manifest:
    observation = build_observation(disks=[show_disk()], claim_manifest=held)
    (step,) = [each for each in steps(instance, observation, Patch) if each.kind == IP_CLAIM]
    changed: Manifest = apply_json_patch(held, step.operations)
    return changed


def _patched(instance: Instance, held: Manifest) -> Any:
    observation = build_observation(disks=[show_disk()], claim_manifest=held)
    patches = [step for step in steps(instance, observation, Patch) if step.kind == IP_CLAIM]
    if not patches:
        return None
    (step,) = patches
    return apply_json_patch(held, step.operations)["spec"]["ports"]


def test_claim_without_ports_is_created_without_any() -> None:
    claim = build_public_claim(parse_instance(publicIP=AUTO))

    assert "ports" not in claim["spec"]


# The private address.

LAN = NetworkView(
    Key("default", "lan"),
    "n",
    False,
    "Multus",
    True,
    "lan",
    (RouteView("10.20.0.0/16", "10.10.0.2", True), RouteView("10.30.0.0/16", "", False)),
    binding="Bridge",
    cidrs=("10.10.0.0/24", "2001:db8::/64"),
    pool="lan-pool",
    gateway="10.10.0.1",
    nameservers=("10.10.0.53",),
    mtu=1400,
)


def give(address: str = "10.10.0.9") -> IpClaimView:
    return IpClaimView.parse(
        {
            "metadata": {"name": "web-private", "namespace": "default"},
            "spec": {"poolRef": {"name": "lan-pool"}},
            "status": {"address": address},
        }
    )


def on_lan(**spec: Any) -> Instance:
    return parse_instance(networkRef={"name": "lan"}, **spec)


def read_secret(instance: Instance, observed: Observed) -> dict[str, Any]:
    (step,) = [step for step in steps(instance, observed, Apply) if step.kind == SECRET]
    found = {}
    for name, data in step.manifest["data"].items():
        text = base64.b64decode(data).decode()
        found[name] = json.loads(text.removeprefix("#cloud-config\n"))
    return found


def volume_of(instance: Instance, observed: Observed) -> Any:
    (step,) = [step for step in steps(instance, observed, Apply) if step.kind == VIRTUAL_MACHINE]
    return step.manifest["spec"]["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]


def test_private_address_is_claimed_from_the_pool_of_the_network() -> None:
    asked = on_lan(privateIP="10.10.0.99")

    (any_address,) = [
        s for s in steps(on_lan(), build_observation(network=LAN), Create) if s.kind == IP_CLAIM
    ]
    (one,) = [s for s in steps(asked, build_observation(network=LAN), Create) if s.kind == IP_CLAIM]

    assert any_address.key.name == "web-private"
    assert any_address.manifest["spec"] == {"poolRef": {"name": "lan-pool"}}
    assert one.manifest["spec"]["address"] == "10.10.0.99"
    held = build_observation(network=LAN, private_claim=give())
    assert [s for s in steps(on_lan(), held, Create) if s.kind == IP_CLAIM] == []


def test_guest_is_told_its_address_routes_and_name_servers() -> None:
    observation = build_observation(disks=[show_disk()], network=LAN, private_claim=give())

    secret = read_secret(on_lan(), observation)

    assert secret["networkdata"] == {
        "version": 2,
        "ethernets": {
            "default": {
                "match": {"macaddress": mac_address(UID)},
                "addresses": ["10.10.0.9/24"],
                "mtu": 1400,
                "nameservers": {"addresses": ["10.10.0.53"]},
                "routes": [
                    {"to": "0.0.0.0/0", "via": "10.10.0.1"},
                    {"to": "10.20.0.0/16", "via": "10.10.0.2"},
                ],
            }
        },
    }
    assert secret["userdata"]["updates"] == {"network": {"when": ["boot"]}}
    assert volume_of(on_lan(), observation) == {
        "secretRef": {"name": "web-cloud-init"},
        "networkDataSecretRef": {"name": "web-cloud-init"},
    }


def test_user_data_of_the_user_goes_with_network_data_of_the_operator() -> None:
    observation = build_observation(disks=[show_disk()], network=LAN, private_claim=give())
    instance = on_lan(userDataSecretName="mine")

    assert list(read_secret(instance, observation)) == ["networkdata"]
    assert volume_of(instance, observation) == {
        "secretRef": {"name": "mine"},
        "networkDataSecretRef": {"name": "web-cloud-init"},
    }


def test_machine_waits_for_its_private_address() -> None:
    waiting = build_observation(disks=[show_disk()], network=LAN)
    outside = build_observation(disks=[show_disk()], network=LAN, private_claim=give(""))

    for observation in (waiting, outside):
        assert [s.kind for s in steps(on_lan(), observation, Apply)] == [SECRET]
        assert evaluate_network(on_lan(), observation).reason == "NetworkNotReady"
    assert "IPPool lan-pool" in evaluate_network(on_lan(), waiting).message


def test_guest_on_the_pod_network_gets_no_network_data() -> None:
    observation = build_observation(disks=[show_disk()])

    assert list(read_secret(parse_instance(), observation)) == ["userdata"]
    assert volume_of(parse_instance(), observation) == {"secretRef": {"name": "web-cloud-init"}}
    assert (
        steps(parse_instance(userDataSecretName="mine"), observation, Apply)[0].kind
        == VIRTUAL_MACHINE
    )


def test_private_address_is_what_was_allocated_and_never_what_the_guest_says() -> None:
    liar = show_run(interfaces=[{"name": "default", "ipAddress": "10.10.0.1"}])

    def private_ip(instance: Instance, **observation: Any) -> Any:
        observed = build_observation(
            disks=[show_disk()], machine=show_machine(), run=liar, **observation
        )
        return build_status(instance, observed, {}, now=NOW).get("privateIP")

    assert private_ip(on_lan(), network=LAN, private_claim=give()) == "10.10.0.9"
    assert private_ip(on_lan(), network=LAN) is None
    assert private_ip(parse_instance(), pod_address="10.244.0.7") == "10.244.0.7"
    assert private_ip(parse_instance()) is None
    held = parse_instance(status={"vmiUID": "run-1", "privateIP": "10.244.0.7"})
    assert private_ip(held) == "10.244.0.7", "unknown for a moment after a migration"


def test_private_ip_on_the_pod_network_is_not_promised() -> None:
    instance = parse_instance(privateIP="10.10.0.99")

    shown = evaluate_network(instance, build_observation())

    assert (shown.status, shown.reason) == ("False", "PrivateIPUnsupported")


# The Secret.


def test_secret_is_written_only_for_a_change_or_a_start() -> None:
    """Secrets are not watched: each look at one is a request."""
    (step,) = [s for s in steps(parse_instance(), build_observation(), Apply) if s.kind == SECRET]
    written = {"cloudInitHash": hash_cloud_init(step.manifest)}

    def writes(instance: Instance, run: Any) -> bool:
        observation = build_observation(disks=[show_disk()], machine=show_machine(), run=run)
        return SECRET in [step.kind for step in steps(instance, observation, Apply)]

    assert not writes(parse_instance(status=written), show_run())
    assert not writes(parse_instance(status=written), None)
    assert writes(parse_instance(status=written), show_run(phase="Scheduling"))
    assert writes(parse_instance(status=written, hostname="other"), show_run())
    assert writes(parse_instance(), show_run())
