"""Whose the disk of a living Instance is, as its deletion policy says."""

from __future__ import annotations

from libs.common.kinds import Key, Kind, Manifest
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.ip_claims import IP_CLAIM
from operators.compute.api.instance import INSTANCE
from operators.compute.naming import KEPT_FOR
from operators.compute.samples import build_instance, build_size
from operators.compute.scenario import WEB
from operators.compute.simulation import Simulation

DISK = Key("default", "web-root")
ADDRESS = Key("default", "web-public")


async def begin() -> Simulation:
    """Run an Instance whose disk and address are deleted with it."""
    world = Simulation()
    world.api.create(build_size())
    ports = [{"name": "ssh", "port": 22}]
    public = {"mode": "Auto", "poolName": "public", "ports": ports}
    world.api.create(build_instance("web", publicIP=public))
    await world.settle()
    return world


def owners(world: Simulation, kind: Kind, key: Key) -> list[str]:
    held = world.api.get(kind, key)["metadata"].get("ownerReferences") or []
    return [reference["uid"] for reference in held]


def kept_for(world: Simulation, kind: Kind, key: Key) -> str | None:
    notes: Manifest = world.api.get(kind, key)["metadata"].get("annotations") or {}
    return notes.get(KEPT_FOR)


async def test_policy_of_a_living_instance_reaches_its_children_and_is_taken_back() -> None:
    """A disk that is to be kept must have no owner: the garbage collector asks no finalizer."""
    world = await begin()
    uid = world.api.get(INSTANCE, WEB)["metadata"]["uid"]
    children = ((DATA_VOLUME, DISK), (IP_CLAIM, ADDRESS))
    for kind, key in children:
        assert (owners(world, kind, key), kept_for(world, kind, key)) == ([uid], None)

    policy = {"rootDisk": "Retain", "publicIP": "Retain"}
    world.api.patch(INSTANCE, WEB, {"spec": {"deletionPolicy": policy}})
    await world.settle()
    for kind, key in children:
        assert (owners(world, kind, key), kept_for(world, kind, key)) == ([], uid)

    world.api.patch(INSTANCE, WEB, {"spec": {"deletionPolicy": None}})
    await world.settle()
    for kind, key in children:
        assert (owners(world, kind, key), kept_for(world, kind, key)) == ([uid], None)


async def test_children_are_not_marked_by_what_may_be_of_before() -> None:
    """An owner reference of an Instance that is gone hands the disk to the garbage collector."""
    world = await begin()
    world.api.patch(INSTANCE, WEB, {"spec": {"deletionPolicy": {"rootDisk": "Retain"}}})
    world.current = False
    await world.settle()
    assert owners(world, DATA_VOLUME, DISK) != []

    world.current = True
    await world.settle()
    assert owners(world, DATA_VOLUME, DISK) == []
