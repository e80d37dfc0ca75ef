"""DemoVolume v1alpha1: what it means, and what a real API server accepts of it."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.client import Client
from libs.common.crd import ParseError
from libs.common.errors import Invalid
from libs.common.kinds import Key, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.serving import serve
from operators.volumes.api.parts import parse_size
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume
from operators.volumes.observed import find_policy

GI = 2**30


def build(name: str = "v", namespace: str = "default", /, **spec: Any) -> dict[str, Any]:
    return build_object(DEMO_VOLUME, name, namespace, spec=spec)


# What manifests mean.


def test_manifest_of_the_predecessor_means_what_it_meant() -> None:
    volume = DemoVolume.parse(build("demovolume-sample", name="demo", size=5))

    assert volume.claim_name == "demo"
    assert volume.spec.size_bytes == 5 * GI
    assert find_policy(volume, None) == "Delete"


def test_claim_is_named_like_the_volume_without_a_name() -> None:
    assert DemoVolume.parse(build("data", size=5)).claim_name == "data"


@pytest.mark.parametrize(
    ("size", "value"),
    [
        *((1, GI), ("1Gi", GI), ("512Mi", GI // 2), ("1G", 10**9), ("1e9", 10**9)),
        *(("+1.5Gi", GI * 3 // 2), ("1.Gi", GI), (".5Gi", GI // 2), ("001Gi", GI)),
        *(("0.1Gi", 107_374_183), ("3.3333Gi", 3_579_103_622), ("1048576500m", 1_048_577)),
    ],
)
def test_integer_counts_gibibytes_and_text_is_a_quantity(size: int | str, value: int) -> None:
    assert parse_size(size) == value


@pytest.mark.parametrize("size", [0, -1, "10", "1k", "10gi", "9.3E", "1e19", True, 1.5, None])
def test_size_that_makes_no_sense_is_named_by_its_field(size: object) -> None:
    with pytest.raises(ParseError, match=r"DemoVolume default/v: spec\.size"):
        DemoVolume.parse(build(size=size))


# What the API server enforces.


@pytest.fixture
async def volumes(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> tuple[Client, str]:
    """Serve DemoVolume on the real API server; returns a connection and a namespace."""
    await serve(kube_client, DemoVolume)
    return kube_client, kube_namespace


async def apply(volumes: tuple[Client, str], **spec: Any) -> None:
    """Apply a DemoVolume as kubectl does."""
    client, namespace = volumes
    await client.apply(DEMO_VOLUME, build("v", namespace, **spec), field_manager="kubectl")


async def show_capacity(volumes: tuple[Client, str], capacity: str) -> None:
    """Write a status as the operator does; the size of the spec may be below the capacity."""
    client, namespace = volumes
    status = {**build("v", namespace), "status": {"capacity": capacity}}
    del status["spec"]
    await client.apply(DEMO_VOLUME, status, field_manager="volumes-status", subresource="status")


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "spec",
    [
        {"name": "demo", "size": 5},
        {"size": "512Mi"},
        {"size": "1Mi"},
        {"size": 8589934591},
        {"size": "1e9"},
        {"size": "3.3333Gi"},
        {"size": "8Ei"},
        {"size": 1, "storageClassName": ""},
        {"size": 1, "source": {"snapshot": "monday"}},
        {"size": 1, "source": {"volume": "other"}},
        {"size": 1, "accessModes": ["ReadWriteMany", "ReadOnlyMany"], "volumeMode": "Block"},
        {"size": 1, "reclaimPolicy": "Snapshot", "snapshotClassName": "csi"},
    ],
    ids=str,
)
async def test_good_spec_is_accepted(volumes: tuple[Client, str], spec: Any) -> None:
    await apply(volumes, **spec)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({}, "spec.size", "Required"),
        ({"size": 0}, "spec.size", "1Mi to 8Ei"),
        ({"size": -1}, "spec.size", "1Mi to 8Ei"),
        ({"size": 8589934592}, "spec.size", "1Mi to 8Ei"),
        ({"size": "10"}, "spec.size", "text needs a unit"),
        ({"size": "1000k"}, "spec.size", "text needs a unit"),
        ({"size": "-5Gi"}, "spec.size", "1Mi to 8Ei"),
        ({"size": "10gi"}, "spec.size", "should match"),
        ({"size": "9.3E"}, "spec.size", "1Mi to 8Ei"),
        ({"size": "1e19"}, "spec.size", "1Mi to 8Ei"),
        ({"size": 1.5}, "spec.size", "must be of type integer,string"),
        ({"size": 1, "name": "Not_A_Name"}, "spec.name", "should match"),
        ({"size": 1, "accessModes": []}, "spec.accessModes", "at least 1"),
        ({"size": 1, "accessModes": ["Any"]}, "spec.accessModes", "supported values"),
        ({"size": 1, "source": {}}, "spec.source", "exactly one"),
        ({"size": 1, "source": {"volume": "a", "snapshot": "b"}}, "spec.source", "exactly one"),
        ({"size": 1, "source": {"volume": "v"}}, "spec.source.volume", "the DemoVolume itself"),
        ({"size": 1, "reclaimPolicy": "Keep"}, "spec.reclaimPolicy", "supported values"),
        ({"size": 1, "adopt": "Always"}, "spec.adopt", "supported values"),
    ],
    ids=str,
)
async def test_bad_spec_is_refused_with_the_field_and_what_to_do(
    volumes: tuple[Client, str], spec: Any, field: str, words: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await apply(volumes, **spec)

    assert field in refusal.value.message
    assert words in refusal.value.message


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"name": "a"}, {"name": "b"}, "a claim cannot be renamed"),
        ({"name": "a"}, {}, "a claim cannot be renamed"),
        ({}, {"name": "b"}, "a claim cannot be renamed"),
        ({}, {"storageClassName": "fast"}, "storageClassName cannot be set"),
        ({"storageClassName": "a"}, {"storageClassName": "b"}, "storageClassName is immutable"),
        ({}, {"accessModes": ["ReadWriteMany"]}, "accessModes is immutable"),
        ({}, {"volumeMode": "Block"}, "volumeMode is immutable"),
        ({}, {"source": {"snapshot": "a"}}, "source cannot be set"),
        ({"source": {"snapshot": "a"}}, {"source": {"snapshot": "b"}}, "source is immutable"),
        ({"source": {"snapshot": "a"}}, {}, "source cannot be set or removed"),
    ],
    ids=str,
)
async def test_what_a_claim_cannot_change_is_fixed(
    volumes: tuple[Client, str], before: Any, after: Any, words: str
) -> None:
    await apply(volumes, size=1, **before)

    with pytest.raises(Invalid, match=words):
        await apply(volumes, size=1, **after)


@pytest.mark.apiserver
async def test_what_may_change_at_any_time_is_accepted(volumes: tuple[Client, str]) -> None:
    await apply(volumes, size=1)

    for policy in ("Retain", "Snapshot", "Delete"):
        await apply(volumes, size=1, reclaimPolicy=policy)
    await apply(volumes, size=1, adopt="IfMatching")
    await apply(volumes, size=1, name="v")


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("before", "capacity", "after", "accepted"),
    [
        pytest.param(10, None, 5, True, id="nothing is there yet"),
        pytest.param(10, "10Gi", 20, True, id="growth"),
        pytest.param(10, "10Gi", "10240Mi", True, id="the same in another unit"),
        pytest.param("10Gi", "10Gi", 10, True, id="the same as an integer"),
        pytest.param(10, "10Gi", 9, False, id="shrink"),
        pytest.param("10Gi", "10Gi", "10239Mi", False, id="shrink in another unit"),
        pytest.param("10Gi", "10Gi", "10000000000", False, id="shrink in bytes"),
        pytest.param("1000Ti", "10Gi", 20, True, id="infeasible growth reduced"),
        pytest.param("1000Ti", "10Gi", 10, True, id="infeasible growth reverted"),
        pytest.param("1000Ti", "10Gi", 9, False, id="infeasible growth reduced too far"),
        pytest.param("15675Mi", "16Gi", "15700Mi", True, id="growth below what there is"),
        pytest.param("15675Mi", "16Gi", "16462643200", True, id="growth in bytes"),
        pytest.param("15675Mi", "16Gi", "15674Mi", False, id="shrink below what there is"),
    ],
)
async def test_size_never_shrinks_below_the_capacity(
    volumes: tuple[Client, str],
    before: int | str,
    capacity: str | None,
    after: int | str,
    accepted: bool,
) -> None:
    """Quantities are compared as numbers: drivers round 15675Mi up to 16Gi, which is no shrink."""
    await apply(volumes, size=before)
    if capacity is not None:
        await show_capacity(volumes, capacity)

    if accepted:
        await apply(volumes, size=after)
    else:
        with pytest.raises(Invalid, match=r"spec\.size cannot be less than status\.capacity"):
            await apply(volumes, size=after)


@pytest.mark.apiserver
async def test_status_may_say_more_than_the_size(volumes: tuple[Client, str]) -> None:
    """A rule on the size must not keep the operator from reporting the actual size."""
    await apply(volumes, size="15675Mi")
    await show_capacity(volumes, "16Gi")
    await show_capacity(volumes, "17Gi")

    client, namespace = volumes
    live = await client.get(DEMO_VOLUME, Key(namespace, "v"))
    assert live["status"]["capacity"] == "17Gi"
