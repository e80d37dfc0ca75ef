"""`kubectl delete --cascade=orphan`: the machine goes on, and the next Instance takes it over."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import PVC, Key, uid_of
from libs.common.ownership import controller_uid
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from operators.compute.api.instance import INSTANCE
from operators.compute.conftest import WEB, Cloud
from operators.compute.naming import FINALIZER
from operators.compute.samples import build_instance

DISK: Final = Key("default", "web-root")


async def orphan(cloud: Cloud) -> None:
    cloud.api.delete(INSTANCE, WEB, propagation="Orphan")
    await cloud.compute.eventually(
        lambda: cloud.api.find(INSTANCE, WEB) is None, "the Instance is deleted"
    )
    await cloud.converged()


async def test_everything_of_an_orphaned_instance_stays_and_runs(cloud: Cloud) -> None:
    assert FINALIZER in cloud.api.get(INSTANCE, WEB)["metadata"]["finalizers"]
    run, disk = cloud.run().uid, uid_of(cloud.api.get(DATA_VOLUME, DISK))

    await orphan(cloud)

    assert cloud.run().uid == run
    assert uid_of(cloud.api.get(DATA_VOLUME, DISK)) == disk
    assert cloud.api.find(PVC, DISK) is not None
    for kind, key in ((VIRTUAL_MACHINE, WEB), (DATA_VOLUME, DISK)):
        assert controller_uid(cloud.api.get(kind, key)) == ""
    assert cloud.deletions() == 0


async def test_next_instance_takes_over_the_disk_of_an_orphaned_one(cloud: Cloud) -> None:
    disk = uid_of(cloud.api.get(DATA_VOLUME, DISK))
    await orphan(cloud)

    created = cloud.api.create(build_instance("web"))
    await cloud.running()

    assert uid_of(cloud.api.get(DATA_VOLUME, DISK)) == disk
    for kind, key in ((VIRTUAL_MACHINE, WEB), (DATA_VOLUME, DISK)):
        assert controller_uid(cloud.api.get(kind, key)) == uid_of(created)
    assert len(cloud.api.objects(DATA_VOLUME)) == 1
