"""What a real API server says in protobuf is decoded to what it says in JSON."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.parity_builtin_test import build_map
from libs.common.testing.fakeapi.parity_tables_test import list_objects
from libs.common.testing.fakeapi.protobuf import MEDIA_TYPE, decode_protobuf
from libs.common.testing.fakeapi.rest import RestClient

NAMESPACE = "protobuf"


def _pod() -> tuple[str, Manifest]:
    probe = {"httpGet": {"path": "/", "port": "web"}, "initialDelaySeconds": 3}
    container: Manifest = {
        "name": "main",
        "image": "i",
        "ports": [{"name": "web", "containerPort": 80}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
        "securityContext": {"runAsUser": 0, "privileged": False},
        "volumeMounts": [{"name": "e", "mountPath": "/e"}],
    }
    volumes = [
        {"name": "e", "emptyDir": {}},
        {"name": "c", "configMap": {"name": "m", "defaultMode": 0}},
    ]
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    return "api/v1/pods", {"spec": spec}


@pytest.mark.apiserver
async def test_protobuf_means_what_json_means(kube_apiserver: ControlPlane) -> None:
    config = kube_apiserver.config
    token = (await config.authorization()).removeprefix("Bearer ")
    async with RestClient(config.server, token=token, tls=config.ssl_context() or True) as rest:
        await rest.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for place, body in [*list_objects(NAMESPACE), _pod()]:
            api, _, plural = place.rpartition("/")
            base = f"/{api}/namespaces/{NAMESPACE}/{plural}"
            made = await rest.create(base, {**body, "metadata": {"name": "x"}})
            assert made.status == 201, made
            async with rest.session.get(f"{base}/x", headers={"Accept": MEDIA_TYPE}) as response:
                raw = await response.read()
            held = (await rest.get(f"{base}/x")).body

            decoded = decode_protobuf(raw)
            assert _trim(decoded) == _trim(held), place
            if plural == "pods":
                assert decoded["spec"]["terminationGracePeriodSeconds"] == 0
                assert decoded["spec"]["containers"][0]["securityContext"]["runAsUser"] == 0


def _trim(value: Any) -> Any:
    """Drop what JSON may show or not: nulls, empty maps, and zeros."""
    if isinstance(value, list):
        return [_trim(each) for each in value]
    if not isinstance(value, dict):
        return value
    trimmed = {name: _trim(child) for name, child in value.items()}
    return {name: child for name, child in trimmed.items() if child or child == []}


async def test_object_is_created_from_protobuf() -> None:
    # A ConfigMap named `m` with one entry, as kubectl sends it.
    metadata = b"\x0a\x01m\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00"
    data = b"\x12\x06\x0a\x01a\x12\x011"
    inner = b"\x0a" + bytes([len(metadata)]) + metadata + data
    about = b"\x0a\x02v1\x12\x09ConfigMap"
    raw = b"k8s\0\x0a" + bytes([len(about)]) + about + b"\x12" + bytes([len(inner)]) + inner
    async with FakeApi() as api, RestClient(api.url) as rest:
        base = "/api/v1/namespaces/default/configmaps"
        made = await rest.send("POST", base, raw, content_type=MEDIA_TYPE)

    assert made.status == 201
    assert made.body["data"] == build_map(a="1")["data"]


@pytest.mark.parametrize("raw", [b"", b"{}", b"k8s\0\x0a\xff", b"k8s\0" + b"\xff" * 20])
async def test_broken_protobuf_is_refused(raw: bytes) -> None:
    async with FakeApi() as api, RestClient(api.url) as rest:
        base = "/api/v1/namespaces/default/configmaps"
        refused = await rest.send("POST", base, raw, content_type=MEDIA_TYPE)

    assert refused.status == 400
