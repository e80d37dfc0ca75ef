"""An address that was moved to another target: the first Instance neither takes nor shows it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from libs.common.kinds import Key, Manifest, is_deleting
from libs.common.ownership import controller_uid
from libs.common.plan import escape_pointer
from libs.common.reading import condition_at, text_at
from libs.contracts.compute import INSTANCE_LABEL
from libs.contracts.ip_claims import IP_CLAIM
from operators.compute.api.instance import INSTANCE
from operators.compute.naming import FINALIZER
from operators.compute.samples import build_instance, build_size
from operators.compute.simulation import Simulation

AUTO: Final = {"mode": "Auto", "poolName": "public", "ports": [{"name": "ssh", "port": 22}]}
CLAIM: Final = Key("default", "web-public")


async def move(*, released: bool) -> Simulation:
    """Move the address of an Instance to another one, as ipam sees it before or after."""
    simulation = Simulation()
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web", publicIP=AUTO))
    await simulation.settle()
    changes: list[dict[str, Any]] = [{"op": "replace", "path": "/spec/target/name", "value": "new"}]
    if released:
        changes.append({"op": "remove", "path": "/metadata/ownerReferences"})
        for label in ("app.kubernetes.io/managed-by", INSTANCE_LABEL):
            path = f"/metadata/labels/{escape_pointer(label)}"
            changes.append({"op": "remove", "path": path})
    simulation.api.patch(IP_CLAIM, CLAIM, changes)
    claim = {"mode": "Claim", "claimName": CLAIM.name}
    simulation.api.create(build_instance("new", publicIP=claim))
    await simulation.settle()
    return simulation


def show(simulation: Simulation, name: str) -> tuple[str, str, str]:
    held = simulation.api.get(INSTANCE, Key("default", name))
    address = condition_at(held, "AddressReady")
    reason = text_at(condition_at(held, "Ready"), "reason")
    return text_at(held, "status", "publicIP"), reason, text_at(address, "message")


@pytest.mark.parametrize("released", [False, True])
async def test_moved_address_is_shown_where_it_leads(released: bool) -> None:
    simulation = await move(released=released)

    assert show(simulation, "new")[:2] == ("203.0.113.7", "Running")
    address, reason, message = show(simulation, "web")
    assert (address, reason) == ("", "ClaimElsewhere")
    assert "is Instance/new; set it to Instance web, or set spec.publicIP.mode to None" in message


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("ends", ["deleted", "None", "Claim"])
async def test_moved_address_stays_with_its_new_machine(released: bool, ends: str) -> None:
    simulation = await move(released=released)

    if ends == "deleted":
        finalizers = {"metadata": {"finalizers": [FINALIZER]}}
        simulation.api.patch(INSTANCE, Key("default", "web"), finalizers)
        simulation.api.delete(INSTANCE, Key("default", "web"))
    else:
        public = {"mode": ends, "poolName": None, "ports": None, "claimName": None}
        public["claimName"] = "another" if ends == "Claim" else None
        simulation.api.patch(INSTANCE, Key("default", "web"), {"spec": {"publicIP": public}})
    await simulation.settle()

    claim = simulation.api.get(IP_CLAIM, CLAIM)
    assert not is_deleting(claim)
    assert controller_uid(claim) == ""
    assert show(simulation, "new")[:2] == ("203.0.113.7", "Running")


@pytest.mark.parametrize(
    "target", [{"kind": "Service", "name": "shop"}, {"kind": "Address", "address": "10.0.0.7"}]
)
async def test_address_that_was_moved_to_something_else_stays_there(target: Manifest) -> None:
    simulation = Simulation()
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web", publicIP=AUTO))
    await simulation.settle()
    change = {"op": "replace", "path": "/spec/target", "value": target}
    simulation.api.patch(IP_CLAIM, CLAIM, [change])
    await simulation.settle()
    assert show(simulation, "web")[:2] == ("", "ClaimElsewhere")

    finalizers = {"metadata": {"finalizers": [FINALIZER]}}
    simulation.api.patch(INSTANCE, Key("default", "web"), finalizers)
    simulation.api.delete(INSTANCE, Key("default", "web"))
    await simulation.settle()

    claim = simulation.api.get(IP_CLAIM, CLAIM)
    assert not is_deleting(claim)
    assert controller_uid(claim) == ""


@pytest.mark.parametrize("released", [False, True])
async def test_address_that_is_moved_back_leads_to_the_first_machine_again(released: bool) -> None:
    """The message of ClaimElsewhere advises it."""
    simulation = await move(released=released)

    back = {"op": "replace", "path": "/spec/target/name", "value": "web"}
    simulation.api.patch(IP_CLAIM, CLAIM, [back])
    await simulation.settle()

    assert show(simulation, "web")[:2] == ("203.0.113.7", "Running")
    assert show(simulation, "new")[:2] == ("", "ClaimElsewhere")
