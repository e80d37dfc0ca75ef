"""Tests of the names in bodies that are no JSON."""

from __future__ import annotations

import pytest

from lab.sweep.encodings import accept_json, find_name

POD = bytes.fromhex(
    # A pod web-0 in the namespace default: type, metadata, spec and status.
    "6b387300"
    "0a09 0a02 7631 1203 506f64"
    "1216 0a14 0a05 7765622d30 1200 1a07 64656661756c74 2200"
    "1a00 2200"
)  # fmt: skip
GENERATED = bytes.fromhex("6b387300 1208 0a06 1204 7765622d")  # fmt: skip
CBOR = bytes.fromhex(
    # {"kind": "Pod", "spec": {"a": [1, -1, 1.5, true]}, "metadata": {"name": "web-0"}}
    "d9d9f7 a3 446b696e64 43506f64"
    "4473706563 a1 4161 84 01 20 f93e00 f5"
    "486d65746164617461 a1 446e616d65 457765622d30"
)  # fmt: skip
ENDLESS = bytes.fromhex(
    # The same without spec, with maps and texts of unknown length.
    "d9d9f7 bf 686d65746164617461 bf 646e616d65 7f 63776562 622d30 ff ff ff"
)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (POD, "web-0"),
        (GENERATED, "web-"),
        (CBOR, "web-0"),
        (ENDLESS, "web-0"),
        (b"", ""),
        (b"name: web-0", ""),
        (POD[:20], ""),
        (b"k8s\0\xff", ""),
        (CBOR[:40], ""),
        (b"\xd9\xd9\xf7\x81", ""),
    ],
)
def test_name_is_read_from_protobuf_and_cbor(body: bytes, name: str) -> None:
    assert find_name(body) == name


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("application/vnd.kubernetes.protobuf, */*", "application/json, */*"),
        ("application/vnd.kubernetes.protobuf;stream=watch", "application/json"),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        ),
        ("application/cbor-seq,application/cbor", "application/json,application/json"),
        ("application/json;as=Table", "application/json;as=Table"),
    ],
)
def test_json_is_accepted_instead_of_protobuf_and_cbor(asked: str, sent: str) -> None:
    assert accept_json(asked) == sent
