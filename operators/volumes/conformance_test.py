"""The volumes operator withstands what every operator must, from creation to the last snapshot."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from libs.common.crd import build_crd
from libs.common.kinds import PVC, Key, Manifest, build_object, is_deleting, key_of
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import Run
from libs.contracts.snapshots import VOLUME_SNAPSHOT
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume
from operators.volumes.controller import OPERATOR
from operators.volumes.naming import SNAPSHOT_OF
from operators.volumes.samples import build_class

ENDING = Key("default", "ending")


def build(name: str, **spec: object) -> Manifest:
    return build_object(
        DEMO_VOLUME, name, "default", spec={"size": 10, "storageClassName": "standard", **spec}
    )


def build_initial_objects() -> list[Manifest]:
    """Build the initial objects: a class that lets claims grow."""
    return [build_class()]


def build_growing() -> list[Manifest]:
    """Build a volume that is kept at first, and grows."""
    return [build("data", reclaimPolicy="Retain")]


def build_ending() -> list[Manifest]:
    """Build a volume that stays, and one that ends with a snapshot."""
    return [build("data"), build("ending", reclaimPolicy="Snapshot")]


def provide_storage(api: FakeApi) -> None:
    """Bind claims, grow volumes and finish snapshots, as the storage of a cluster does."""
    for claim in api.objects(PVC):
        size = claim["spec"]["resources"]["requests"]["storage"]
        held = (claim.get("status") or {}).get("capacity") or {}
        if held.get("storage") != size and not is_deleting(claim):
            key = key_of(claim)
            api.patch(PVC, key, {"spec": {"volumeName": f"pv-{key.name}"}})
            api.patch_status(PVC, key, {"phase": "Bound", "capacity": {"storage": size}})


def provide_storage_and_end(api: FakeApi) -> None:
    """Provide storage, and delete the second volume once its claim is bound."""
    provide_storage(api)
    for snapshot in api.objects(VOLUME_SNAPSHOT):
        if not (snapshot.get("status") or {}).get("readyToUse"):
            api.patch_status(VOLUME_SNAPSHOT, key_of(snapshot), {"readyToUse": True})
    volume = api.find(DEMO_VOLUME, ENDING)
    claim = api.find(PVC, ENDING)
    bound = claim is not None and claim.get("status", {}).get("phase") == "Bound"
    if volume is not None and bound and not is_deleting(volume):
        api.delete(DEMO_VOLUME, ENDING)


class TestGrowingVolumeConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=(build_crd(DemoVolume),),
        objects=build_growing,
        change={"spec": {"size": 20, "reclaimPolicy": "Delete"}},
        children=(PVC,),
        initial_objects=build_initial_objects,
        drive=provide_storage,
    )


class TestEndingVolumeConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=(build_crd(DemoVolume), build_loose_crd(VOLUME_SNAPSHOT, None, ("status",))),
        objects=build_ending,
        change={"spec": {"size": 20}},
        children=(PVC, VOLUME_SNAPSHOT),
        outliving=(VOLUME_SNAPSHOT,),
        initial_objects=build_initial_objects,
        drive=provide_storage_and_end,
    )

    async def test_child_deleted_in_a_gap_comes_back(self) -> None:
        """A last snapshot that somebody deletes cannot be taken again: its claim is gone."""
        pytest.skip("a claim comes back, as the other subject shows, a last snapshot does not")

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the outcome without the hash of a UID that a snapshot's name has."""
        run = super().outcome(api, mark)
        state = {_blur(name): _blur(held) for name, held in run.state.items()}
        creates = Counter({_blur(name): count for name, count in run.creates.items()})
        return replace(run, state=state, creates=creates)

    async def apply_again(self, harness: OperatorHarness, manifest: Manifest) -> None:
        if key_of(manifest) != ENDING:
            await super().apply_again(harness, manifest)


def _blur[T](value: T) -> T:
    text = re.sub(r"ending-final-[0-9a-f]{8}", "ending-final", json.dumps(value))
    text = re.sub(rf'("{SNAPSHOT_OF}": )"[^"]*"', r'\1"uid"', text)
    blurred: T = json.loads(text)
    return blurred
