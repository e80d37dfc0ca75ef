"""Which images disks are filled from: no address of the node, and only hosts that are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import Key
from libs.common.reading import condition_at, text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.images import Image
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.images import explain_refused
from operators.compute.samples import build_instance, build_operation, build_size
from operators.compute.simulation import Simulation

METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.mark.parametrize(
    "image",
    [
        {"url": METADATA},
        {"url": "http://user@169.254.169.254/x"},
        {"url": "http://2852039166/x"},
        {"url": "http://0xa9.254.43518/x"},
        {"url": "http://[::ffff:169.254.169.254]/x"},
        {"url": "http://[fe80::1%25eth0]/x"},
        {"url": "http://[64:ff9b::a9fe:a9fe]/x"},
        {"url": "http://[64:ff9b:0:0:0:0:169.254.169.254]/x"},
        {"url": "http://[64:ff9b:1::169.254.169.254]/x"},
        {"url": "http://[64:ff9b::7f00:1]/x"},
        {"url": "http://[2002:a9fe:a9fe::1]/x"},
        {"url": "http://[::169.254.169.254]/x"},
        {"url": "http://１６９.２５４.１６９.２５４/x"},  # noqa: RUF001
        {"url": "http://169。254。169。254/x"},
        {"url": "http://169\u00ad.254.169.254/x"},
        {"url": "http://metadata.google.internal/computeMetadata/v1/"},
        {"url": "http://100.100.100.200/latest/meta-data/"},
        {"url": "http://[fd00:ec2::254]/x"},
        {"url": "https://127.0.0.1:6443/x"},
        {"url": "https://[::1]/x"},
        {"url": "https://0.0.0.0/x"},
        {"url": "http://LocalHost./x"},
        {"url": "http://169.254.169.254\\@images.example.com/x"},
        {"url": "http://[images/x"},
        {"url": "http://%EF%BC%91%EF%BC%96%EF%BC%99.254.169.254/x"},
        {"url": "http://169%E3%80%82254%E3%80%82169%E3%80%82254/x"},
        {"url": "http://169%2E254.169.254/x"},
        {"url": "http://ip6-localhost/x"},
        {"url": "http://metadata/x"},
        {"registry": "docker://[::1%25x]/debian"},
        {"registry": "docker://127.0.0.1:5000/debian"},
    ],
    ids=lambda image: str(next(iter(image.values()))),
)
def test_address_of_the_node_is_no_image(image: dict[str, Any]) -> None:
    assert explain_refused(Image(**image), ())


@pytest.mark.parametrize(
    "image",
    [
        {"url": "https://images.example.com/debian.qcow2"},
        {"url": "http://10.0.0.7:8080/debian.qcow2"},
        {"url": "http://images.default.svc/debian.qcow2"},
        {"url": "http://[2001:db8::1]/debian.qcow2"},
        {"url": "http://[64:ff9b::203.0.113.7]/debian.qcow2"},
        {"url": "http://bücher.example.com/debian.qcow2"},
        {"registry": "docker://quay.io/containerdisks/debian"},
        {"snapshot": "kept"},
    ],
    ids=lambda image: str(next(iter(image.values()))),
)
def test_other_hosts_are_allowed_unless_the_administrator_names_some(image: Any) -> None:
    assert not explain_refused(Image(**image), ())
    named = ("*.example.com", "snapshots.example.net")
    refused = explain_refused(Image(**image), named)
    assert bool(refused) == ("snapshot" not in image and "example.com" not in str(image))


def test_host_that_the_administrator_names_is_allowed_whatever_its_address() -> None:
    assert not explain_refused(Image(url="http://127.0.0.1/x"), ("127.0.0.1",))
    assert explain_refused(Image(url="http://images.example.com.evil.net/x"), ("*.example.com",))


@pytest.mark.parametrize(
    "url",
    [
        "http://[::ffff:169.254.169.254%25x.example.com]/x",
        "http://[fd00:ec2::254%25.example.com]/x",
        "http://[::ffff:10.0.0.1%25a.example.com]/x",
        "http://169.254.169.254/x",
        "http://[fe80::1]/x",
    ],
)
def test_pattern_allows_no_address_of_the_node(url: str) -> None:
    assert explain_refused(Image(url=url), ("*.example.com", "*.169.254", "*::*"))


@pytest.mark.parametrize("registry", ["docker://quay.io", "docker://quay.io/", "docker://quay/x"])
def test_container_disk_without_a_registry_is_of_the_default_one(registry: str) -> None:
    image = Image(registry=registry)
    assert explain_refused(image, ("quay.io", "quay"))
    assert not explain_refused(image, ("docker.io",))


async def test_machine_of_a_refused_image_gets_no_disk_and_says_why() -> None:
    simulation = Simulation()
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web", image={"url": METADATA}))
    await simulation.settle()

    held = simulation.api.get(INSTANCE, Key("default", "web"))
    ready = condition_at(held, "Ready")
    assert text_at(ready, "reason") == "ImageRefused"
    assert "spec.image: 169.254.169.254 is an address of the node" in text_at(ready, "message")
    assert simulation.api.objects(DATA_VOLUME) == []

    image = {"url": "https://images.example.com/debian.qcow2"}
    simulation.api.patch(INSTANCE, Key("default", "web"), {"spec": {"image": image}})
    await simulation.settle()
    held = simulation.api.get(INSTANCE, Key("default", "web"))
    assert text_at(held, "status", "phase") == "Running"


async def test_rebuild_with_a_refused_image_fails_and_leaves_the_machine_alone() -> None:
    simulation = Simulation()
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web"))
    await simulation.settle()
    simulation.api.create(build_operation("Rebuild", rebuild={"image": {"url": METADATA}}))
    await simulation.settle()

    held = simulation.api.get(OPERATION, Key("default", "op"))
    assert text_at(held, "status", "phase") == "Failed"
    assert "169.254.169.254 is an address of the node" in text_at(held, "status", "message")
    assert len(simulation.api.objects(DATA_VOLUME)) == 1
    instance = simulation.api.get(INSTANCE, Key("default", "web"))
    assert text_at(instance, "status", "phase") == "Running"
