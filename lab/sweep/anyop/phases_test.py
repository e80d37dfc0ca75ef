"""Tests of phases from manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.sweep.anyop.phases import Actor, Kinds, load_phases, read_manifests
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.workload import User
from libs.common.client import Client
from libs.common.kinds import CONFIG_MAP, POD, Key, build_object
from libs.common.testing.fakeapi import FakeApi
from tools.cluster.errors import UsageError

WEB = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"
KEY = Key("trial", "web")


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_files_with_numbers_are_phases_in_their_order(tmp_path: Path) -> None:
    files = {"10-create": WEB, "20-change.patch": WEB, "20-change.status": WEB, "30-x.delete": WEB}
    (tmp_path / "notes.txt").write_text("no manifest")

    phases = load_phases(write(tmp_path, **files))

    assert [(phase.name, [step.action for step in phase.steps]) for phase in phases] == [
        ("10-create", ["apply"]),
        ("20-change", ["patch", "status"]),
        ("30-x", ["delete"]),
    ]


def test_what_was_applied_is_deleted_at_the_end_unless_a_file_deletes(tmp_path: Path) -> None:
    last = load_phases(write(tmp_path, **{"1-a": WEB, "2-b": WEB.replace("web", "other")}))[-1]

    assert last.name == "delete"
    names = [each["metadata"]["name"] for each in last.steps[0].manifests]
    assert names == ["other", "web"]


def test_samples_are_created_touched_robbed_of_children_and_deleted(tmp_path: Path) -> None:
    phases = load_phases(write(tmp_path, web=WEB, kustomization="resources: [web.yaml]"))

    assert [phase.name for phase in phases] == ["create", "touch", "lose", "delete"]
    assert "sweep.slipway.dev/touched" in str(phases[1].steps[0].manifests)


def test_folder_without_manifests_and_faulty_yaml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no manifest"):
        load_phases(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        load_phases(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is no YAML"):
        list(read_manifests(write(tmp_path, bad="a: [")))


async def test_phases_act_on_the_objects_whose_names_match(tmp_path: Path) -> None:
    files = {
        "1-create": WEB,
        "2-change.patch": f"{WEB}data: {{text: new}}\n",
        "3-run.status": WEB.replace("ConfigMap", "Pod").replace("web", "web-*")
        + "status: {phase: Running}\n",
        "4-delete.delete": WEB,
    }
    record = NamespaceRecord()
    async with FakeApi() as api, Client(api.config) as client:
        actor = Actor(User(client, "trial"), Kinds((CONFIG_MAP, POD)), record)
        create, change, run, delete = load_phases(write(tmp_path, **files))

        await actor.carry_out(create)
        record.note("ADDED", CONFIG_MAP, await client.get(CONFIG_MAP, KEY))
        await actor.carry_out(change)
        assert (await client.get(CONFIG_MAP, KEY))["data"] == {"text": "new"}
        containers = [{"name": "main", "image": "busybox"}]
        pod = build_object(POD, "web-7f3a", "trial", spec={"containers": containers})
        record.note("ADDED", POD, await client.create(POD, pod))
        await actor.carry_out(run)
        live = await client.get(POD, Key("trial", "web-7f3a"))
        assert live["status"]["phase"] == "Running"
        await actor.carry_out(delete)
        assert api.find(CONFIG_MAP, KEY) is None


async def test_child_of_each_kind_is_lost(tmp_path: Path) -> None:
    record = NamespaceRecord()
    owner = {"apiVersion": "a/v1", "kind": "A", "name": "a", "uid": "1", "controller": True}
    async with FakeApi() as api, Client(api.config) as client:
        api.collector.pause()
        for name, owners in (("user", []), ("web-0", [owner]), ("web-1", [owner])):
            metadata = {"ownerReferences": owners}
            manifest = build_object(CONFIG_MAP, name, "trial", metadata=metadata)
            record.note("ADDED", CONFIG_MAP, await client.create(CONFIG_MAP, manifest))
        actor = Actor(User(client, "trial"), Kinds((CONFIG_MAP,)), record)
        await actor.carry_out(load_phases(write(tmp_path, web=WEB))[2])

        listing = await client.list(CONFIG_MAP, "trial")
        assert [each["metadata"]["name"] for each in listing.items] == ["user", "web-1"]


def test_kind_without_crd_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="add its CRD to --crds"):
        Kinds((POD,)).of({"apiVersion": "a/v1", "kind": "A"})
