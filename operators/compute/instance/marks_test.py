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
    observation = Simulation()
    observation.api.create(build_size())
    ports = [{"name": "ssh", "port": 22}]
    public = {"mode": "Auto", "poolName": "public", "ports": ports}
    observation.api.create(build_instance("web", publicIP=public))
    await observation.settle()
    return observation


def owners(observation: Simulation, kind: Kind, key: Key) -> list[str]:
    held = observation.api.get(kind, key)["metadata"].get("ownerReferences") or []
    return [reference["uid"] for reference in held]


def kept_for(observation: Simulation, kind: Kind, key: Key) -> str | None:
    notes: Manifest = observation.api.get(kind, key)["metadata"].get("annotations") or {}
    return notes.get(KEPT_FOR)


async def test_policy_of_a_living_instance_reaches_its_children_and_is_taken_back() -> None:
    """A disk to keep must have no owner: the garbage collector ignores finalizers."""
    observation = await begin()
    uid = observation.api.get(INSTANCE, WEB)["metadata"]["uid"]
    children = ((DATA_VOLUME, DISK), (IP_CLAIM, ADDRESS))
    for kind, key in children:
        assert (owners(observation, kind, key), kept_for(observation, kind, key)) == ([uid], None)

    policy = {"rootDisk": "Retain", "publicIP": "Retain"}
    observation.api.patch(INSTANCE, WEB, {"spec": {"deletionPolicy": policy}})
    await observation.settle()
    for kind, key in children:
        assert (owners(observation, kind, key), kept_for(observation, kind, key)) == ([], uid)

    observation.api.patch(INSTANCE, WEB, {"spec": {"deletionPolicy": None}})
    await observation.settle()
    for kind, key in children:
        assert (owners(observation, kind, key), kept_for(observation, kind, key)) == ([uid], None)


async def test_children_are_not_marked_by_what_may_be_of_before() -> None:
    """An owner reference of an Instance that is gone hands the disk to the garbage collector."""
    observation = await begin()
    observation.api.patch(INSTANCE, WEB, {"spec": {"deletionPolicy": {"rootDisk": "Retain"}}})
    observation.current = False
    await observation.settle()
    assert owners(observation, DATA_VOLUME, DISK) != []

    observation.current = True
    await observation.settle()
    assert owners(observation, DATA_VOLUME, DISK) == []
