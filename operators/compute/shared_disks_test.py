"""No two machines write one disk, unless both say that they share it."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest

from lab.kubevirt_sim.direct import annotate_new
from libs.common.kinds import PVC, Key, Kind, Manifest, build_object, is_deleting, key_of
from libs.common.reading import condition_at, text_at
from libs.common.runtime import Cache
from libs.common.runtime.controller import Mapper
from libs.common.runtime.store import Change, Store
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE, disk_claims_of
from operators.compute.api.instance import INSTANCE
from operators.compute.conftest import Cloud
from operators.compute.fake_cluster import run_cluster
from operators.compute.instance.watches import (
    INSTANCE_INDEXES,
    MACHINE_INDEXES,
    map_mounted,
    map_named,
    mounts_change,
    names_change,
)
from operators.compute.naming import FINALIZER
from operators.compute.samples import build_instance, build_operation, build_size
from operators.compute.scenario import NEW
from operators.compute.simulation import Simulation

DATA: Final = [{"name": "data", "claim": "data"}]
ROOT: Final = [{"name": "stolen", "claim": "web-root"}]
SHARED: Final = [{"name": "data", "claim": "data", "sharing": "Shared"}]


def build_claim(name: str = "data", mode: str = "ReadWriteMany") -> Manifest:
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    return build_object(PVC, name, "default", spec=spec)


def build_foreign(
    name: str = "other", *, strategy: str = "Always", shared: bool = False
) -> Manifest:
    """Build a VirtualMachine that nobody but its author manages."""
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]
    domain = {"cpu": {"sockets": 1}, "memory": {"guest": "1Gi"}}
    devices = {"devices": {"disks": [{"name": "disk", "disk": {}, "shareable": shared}]}}
    template = {"spec": {"domain": {**domain, **devices}, "volumes": volumes}}
    spec = {"runStrategy": strategy, "template": template}
    return build_object(VIRTUAL_MACHINE, name, "default", spec=spec)


class Cluster:
    """A namespace with machines whose guests never use one disk at the same time."""

    def __init__(self) -> None:
        self.shares = False
        self.simulation = Simulation(self.drive)
        self.api = self.simulation.api
        self.api.create(build_size())
        self.api.create(build_claim())
        self.api.patch_status(PVC, Key("default", "data"), {"phase": "Bound"})

    def drive(self, api: Any) -> None:
        run_cluster(api)
        users: dict[str, str] = {}
        for run in api.objects(VIRTUAL_MACHINE_INSTANCE):
            name = run["metadata"]["name"]
            for claim in disk_claims_of(run):
                other = users.setdefault(claim, name)
                assert self.shares or other == name, f"{claim} is used by {other} and {name}"

    async def create(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self.api.create(manifest)
        await self.simulation.settle()

    async def change(self, name: str, **spec: Any) -> None:
        self.api.patch(INSTANCE, Key("default", name), {"spec": spec})
        await self.simulation.settle()

    async def delete(self, name: str, kind: Any = INSTANCE) -> None:
        self.api.delete(kind, Key("default", name))
        await self.simulation.settle()

    def ready(self, name: str) -> tuple[str, str]:
        """Return the reason and the message of the condition Ready."""
        condition = condition_at(self.api.get(INSTANCE, Key("default", name)), "Ready")
        return text_at(condition, "reason"), text_at(condition, "message")

    def runs(self, name: str) -> bool:
        return self.api.find(VIRTUAL_MACHINE_INSTANCE, Key("default", name)) is not None


@pytest.mark.parametrize(("claim", "word"), [("data", "spec.volumes"), ("web-root", "root disk")])
async def test_disk_of_another_instance_is_refused_until_it_is_free(claim: str, word: str) -> None:
    cluster = Cluster()
    retain = {"rootDisk": "Retain"}
    await cluster.create(build_instance("web", volumes=DATA, deletionPolicy=retain))
    await cluster.create(build_instance("thief", volumes=[{"name": "x", "claim": claim}]))

    reason, message = cluster.ready("thief")
    assert (reason, cluster.runs("thief")) == ("DiskInUse", False)
    assert f"PersistentVolumeClaim {claim} of spec.volumes is used by Instance web" in message
    assert cluster.ready("web")[0] == "Running", word

    await cluster.delete("web")

    assert cluster.ready("thief")[0] == "Running"


async def test_disk_is_free_when_its_user_no_longer_names_it_and_was_restarted() -> None:
    cluster = Cluster()
    await cluster.create(build_instance("web", volumes=DATA))
    await cluster.create(build_instance("thief", volumes=DATA))

    await cluster.change("web", volumes=[])

    reason, message = cluster.ready("thief")
    assert reason == "DiskInUse"
    assert "still attached to the running Instance web; reboot it" in message

    await cluster.create(build_operation("Reboot"))

    assert (cluster.ready("web")[0], cluster.ready("thief")[0]) == ("Running", "Running")


@pytest.mark.parametrize("names", [("web", "thief"), ("thief", "web")])
async def test_two_new_machines_never_both_get_the_disk(names: tuple[str, str]) -> None:
    cluster = Cluster()
    await cluster.create(*(build_instance(name, volumes=DATA) for name in names))

    assert sorted(cluster.ready(name)[0] for name in names) == ["DiskInUse", "Running"]


async def test_running_machine_gets_no_disk_that_another_one_uses() -> None:
    cluster = Cluster()
    await cluster.create(build_instance("old"), build_instance("web", volumes=DATA))

    await cluster.change("old", volumes=DATA)
    await cluster.create(build_operation("Reboot", target="old"))

    assert cluster.ready("old")[0] == "DiskInUse"
    assert "data" not in disk_claims_of(cluster.api.get(VIRTUAL_MACHINE, Key("default", "old")))
    assert cluster.ready("web")[0] == "Running"


async def test_machine_waits_for_its_root_disk() -> None:
    cluster = Cluster()
    retain = {"rootDisk": "Retain"}
    await cluster.create(build_instance("web", deletionPolicy=retain))
    await cluster.delete("web")
    await cluster.create(build_instance("thief", volumes=ROOT))
    assert cluster.ready("thief")[0] == "Running"

    await cluster.create(build_instance("web", deletionPolicy=retain))

    reason, message = cluster.ready("web")
    assert (reason, cluster.runs("web")) == ("DiskInUse", False)
    assert "root disk web-root is used by Instance thief" in message

    await cluster.delete("thief")
    assert cluster.ready("web")[0] == "Running"


async def test_disk_that_another_machine_uses_is_not_booted_by_a_directive() -> None:
    cluster = Cluster()
    spare = {"kind": "RootDisk", "token": "t", "disk": "spare"}
    prepare = [{**spare, "use": "Prepare"}]
    await cluster.create(build_instance("web", directives=prepare, power="Stopped"))
    thief = build_instance("thief", volumes=[{"name": "x", "claim": "spare"}])
    await cluster.create(thief)
    assert cluster.ready("thief")[0] == "DiskInUse", "an Operation needs it"
    await cluster.change("web", directives=[])
    assert cluster.ready("thief")[0] == "Running"

    await cluster.change("web", directives=[spare], power="Running")

    assert cluster.ready("web")[0] == "Running"
    (status,) = cluster.api.get(INSTANCE, Key("default", "web"))["status"]["directives"]
    assert (status["state"], status["message"]) == (
        "InProgress",
        "the disk is used by Instance thief; remove it from spec.volumes of Instance thief",
    )
    await cluster.delete("thief")
    run = cluster.api.get(VIRTUAL_MACHINE_INSTANCE, Key("default", "web"))
    assert disk_claims_of(run) == {"spare": False}


@pytest.mark.parametrize("strategy", ["Always", "Halted"])
async def test_disk_of_a_machine_that_is_not_ours_is_refused(strategy: str) -> None:
    cluster = Cluster()
    await cluster.create(build_foreign(strategy=strategy))
    await cluster.create(build_instance("web", volumes=DATA))

    reason, message = cluster.ready("web")
    assert reason == "DiskInUse"
    assert "is used by VirtualMachine other" in message

    await cluster.delete("other", VIRTUAL_MACHINE)
    assert cluster.ready("web")[0] == "Running"


@pytest.mark.parametrize("both", [True, False])
async def test_disk_is_shared_only_if_both_machines_say_so(both: bool) -> None:
    cluster = Cluster()
    cluster.shares = both
    await cluster.create(build_instance("web", volumes=SHARED))
    await cluster.create(build_instance("mate", volumes=SHARED if both else DATA))

    assert cluster.ready("mate")[0] == ("Running" if both else "DiskInUse")
    machine = cluster.api.get(VIRTUAL_MACHINE, Key("default", "web"))
    disks = machine["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    assert [disk["name"] for disk in disks if disk.get("shareable")] == ["data"]


async def test_disk_that_only_one_node_can_write_is_not_shared() -> None:
    cluster = Cluster()
    await cluster.create(build_claim("local", "ReadWriteOnce"))
    cluster.api.patch_status(PVC, Key("default", "local"), {"phase": "Bound"})
    volumes = [{"name": "data", "claim": "local", "sharing": "Shared"}]
    await cluster.create(build_instance("web", volumes=volumes))

    reason, message = cluster.ready("web")
    assert (reason, cluster.runs("web")) == ("VolumeNotReady", False)
    assert "local" in message
    assert "ReadWriteMany" in message


async def test_machine_that_started_in_a_race_stops_before_its_guest_boots() -> None:
    # As with two processes that each see their own Instance only.
    cluster = Cluster()
    await cluster.create(build_instance("old"), build_instance("web", volumes=DATA))
    machine = cluster.api.get(VIRTUAL_MACHINE, Key("default", "old"))
    template = machine["spec"]["template"]["spec"]
    template["volumes"].append(
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    )
    disks = [*template["domain"]["devices"]["disks"], {"name": "data", "disk": {}}]
    cluster.api.patch(
        VIRTUAL_MACHINE,
        Key("default", "old"),
        [
            {"op": "add", "path": "/spec/template/spec/volumes", "value": template["volumes"]},
            {
                "op": "add",
                "path": "/spec/template/spec/domain/devices/disks",
                "value": disks,
            },
        ],
    )
    cluster.shares = True
    await cluster.change("old", volumes=DATA)
    assert cluster.ready("web")[0] == "DiskInUse", "the older Instance has it"
    assert cluster.runs("web"), "a running machine is never stopped"

    cluster.shares = False
    await cluster.create(build_operation("Reboot"))

    assert not cluster.runs("web")
    assert cluster.ready("old")[0] == "Running"


async def test_waiting_machine_starts_as_soon_as_the_disk_is_free(cloud: Cloud) -> None:
    def ready(name: str) -> str:
        held = cloud.api.find(INSTANCE, Key("default", name)) or {}
        return text_at(condition_at(held, "Ready"), "reason")

    claim = [{"name": "data", "claim": "data"}]
    cloud.api.create(build_claim())
    cloud.api.create(build_instance("first", volumes=claim))
    await cloud.compute.eventually(lambda: ready("first") == "Running", "the first one runs")
    cloud.api.create(build_instance("second", volumes=claim))
    await cloud.compute.eventually(lambda: ready("second") == "DiskInUse", "the second one waits")
    cloud.api.create(build_instance("third", volumes=claim))
    await cloud.compute.eventually(lambda: ready("third") == "DiskInUse", "the third one waits")

    cloud.api.delete(INSTANCE, Key("default", "first"))
    await cloud.compute.eventually(lambda: ready("second") == "Running", "the second one runs")
    cloud.api.patch(INSTANCE, Key("default", "second"), {"spec": {"volumes": []}})
    cloud.api.create(build_operation("Reboot", target="second"))
    await cloud.compute.eventually(lambda: ready("third") == "Running", "the third one runs")


class Line:
    """The caches of an operator, and the Instances that changes of other objects enqueue."""

    def __init__(self) -> None:
        self.stores = {
            INSTANCE: Store(INSTANCE),
            VIRTUAL_MACHINE: Store(VIRTUAL_MACHINE),
            VIRTUAL_MACHINE_INSTANCE: Store(VIRTUAL_MACHINE_INSTANCE),
        }
        for kind, store in self.stores.items():
            indexes = INSTANCE_INDEXES if kind == INSTANCE else MACHINE_INDEXES
            for name, function in indexes.items():
                store.add_index(name, function)
        self.version = 0
        self.woken: list[str] = []

    def store(self, kind: Kind) -> Store:
        return self.stores[kind]

    def put(self, manifest: Manifest) -> None:
        self.version += 1
        metadata = {"uid": f"uid-{manifest['metadata']['name']}", "creationTimestamp": "2026"}
        version = {"resourceVersion": str(self.version)}
        metadata = {**metadata, **manifest["metadata"], **version}
        kind = INSTANCE if manifest["kind"] == INSTANCE.kind else VIRTUAL_MACHINE
        self.follow(kind, self.stores[kind].put({**manifest, "metadata": metadata}))

    def remove(self, name: str) -> None:
        self.follow(INSTANCE, self.stores[INSTANCE].remove(Key("default", name), f"uid-{name}"))

    def follow(self, kind: Kind, change: Change | None) -> None:
        named = kind == INSTANCE
        predicate = names_change if named else mounts_change
        mapper: Mapper = map_named if named else map_mounted
        if change is not None and predicate(change.old, change.new):
            for manifest in filter(None, (change.old, change.new)):
                self.woken += [key.name for key in mapper(manifest, cast(Cache, self))]

    def take_woken(self) -> set[str]:
        woken, self.woken = set(self.woken), []
        return woken


@pytest.mark.parametrize("volumes", [DATA, SHARED])
def test_many_instances_that_name_one_claim_do_not_wake_each_other(volumes: Any) -> None:
    line = Line()
    for number in range(300):
        line.put(build_instance(f"web-{number:03}", volumes=volumes))
        line.put(build_foreign(f"web-{number:03}", shared=volumes is SHARED))
    assert len(line.woken) <= 600

    line.take_woken()
    for number in range(300):
        status = {"phase": "Pending", "conditions": []}
        line.put(build_instance(f"web-{number:03}", volumes=volumes) | {"status": status})
    assert line.take_woken() == set(), "a status concerns nobody else"


def test_waiting_instances_form_a_line() -> None:
    line = Line()
    for name, volumes in (("a", DATA), ("b", SHARED), ("c", SHARED), ("d", DATA), ("e", DATA)):
        line.put(build_instance(name, volumes=volumes))
    line.take_woken()

    line.put(build_foreign("foreign"))
    assert line.take_woken() == {"a"}, "the others wait for it, or for one that does"
    line.put(build_instance("a", volumes=DATA, power="Stopped"))
    assert line.take_woken() == set()
    line.put(build_instance("c", volumes=DATA))
    assert line.take_woken() == {"a", "d"}
    line.put(build_instance("c", volumes=SHARED))
    assert line.take_woken() == {"a", "d"}
    line.remove("a")
    assert line.take_woken() == {"b", "c", "d"}
    line.remove("b")
    assert line.take_woken() == {"d"}, "those that share a disk do not wait for each other"


async def test_each_waiting_machine_names_the_one_before_it() -> None:
    cluster = Cluster()
    for name in ("first", "second", "third"):
        await cluster.create(build_instance(name, volumes=DATA))
        cluster.simulation.clock.advance(1)

    assert "is used by Instance first; remove it" in cluster.ready("second")[1]
    assert "is wanted by Instance second, which comes first" in cluster.ready("third")[1]

    await cluster.delete("first")
    assert (cluster.ready("second")[0], cluster.ready("third")[0]) == ("Running", "DiskInUse")
    assert "is used by Instance second; remove it" in cluster.ready("third")[1]


@pytest.mark.parametrize(
    "volumes",
    [
        [{"name": "a", "claim": "data"}, {"name": "b", "claim": "data"}],
        [{"name": "a", "claim": "web-root"}],
    ],
    ids=["volume", "root disk"],
)
@pytest.mark.parametrize("runs", [False, True])
async def test_machine_has_each_disk_once(volumes: list[Manifest], runs: bool) -> None:
    """A guest that mounts one disk under two names destroys it."""
    cluster = Cluster()
    await cluster.create(build_instance("web", volumes=[] if runs else volumes))
    await cluster.change("web", volumes=volumes)

    reason, message = cluster.ready("web")
    assert (reason, cluster.runs("web")) == ("VolumeNotReady", runs)
    assert f"volume {volumes[-1]['name']} needs another claim" in message
    await cluster.change("web", volumes=volumes[:-1])
    assert cluster.ready("web")[0] == "Running"


@pytest.mark.parametrize("user", ["thief", "web"])
async def test_kept_disk_in_use_is_not_deleted(user: str) -> None:
    """Its data are copied from it, by the machine itself or by another one."""
    cluster = Cluster()
    annotate_new(cluster.api, VIRTUAL_MACHINE_INSTANCE, "agent", "false")
    await cluster.create(build_instance("web"))
    await cluster.create(build_operation("Rebuild", rebuild={"image": NEW}))
    if user == "web":
        await cluster.change("web", volumes=ROOT)
        await cluster.create(build_operation("Reboot", "attach"))
    else:
        await cluster.create(build_instance(user, volumes=ROOT))
    assert cluster.ready(user)[0] in ("Running", "NotVerified")

    cluster.simulation.clock.advance(100_000)
    await cluster.simulation.settle()
    assert not is_deleting(cluster.api.get(PVC, Key("default", "web-root")))

    await cluster.change(user, volumes=[])
    await cluster.create(build_operation("Reboot", "detach", target=user))
    assert cluster.api.find(PVC, Key("default", "web-root")) is None, "it is deleted afterwards"


async def test_kept_disk_that_another_machine_uses_outlives_its_instance() -> None:
    cluster = Cluster()
    annotate_new(cluster.api, VIRTUAL_MACHINE_INSTANCE, "agent", "false")
    await cluster.create(build_instance("web"))
    await cluster.create(build_operation("Rebuild", rebuild={"image": NEW}))
    await cluster.create(build_instance("thief", volumes=ROOT))

    held = Key("default", "web")
    cluster.api.patch(INSTANCE, held, {"metadata": {"finalizers": [FINALIZER]}})
    await cluster.delete("web")

    assert cluster.api.find(INSTANCE, held) is None
    assert [key_of(held).name for held in cluster.api.objects(DATA_VOLUME)] == [
        "thief-root",
        "web-root",
    ]
    assert not is_deleting(cluster.api.get(PVC, Key("default", "web-root")))
