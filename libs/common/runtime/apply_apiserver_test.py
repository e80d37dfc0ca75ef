"""Maps and lists that have one owner are repaired as a whole, on a real and on the fake server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.errors import AlreadyExists, NotFound, TransientError
from libs.common.kinds import (
    CRD,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    NETWORK_POLICY,
    ROLE,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.plan import Apply, Outcome
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Informer, Origin
from libs.common.runtime.repairs import Repairs
from libs.common.runtime.unchanged_applies import UnchangedApplies
from libs.common.runtime.writer import Writer
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd

_THING: Final = Kind("atomic.example.com", "v1", "Thing", "things")
_TEXTS: Final[Manifest] = {"type": "object", "additionalProperties": {"type": "string"}}
_SPEC: Final[Manifest] = {
    "whole": {**_TEXTS, "x-kubernetes-map-type": "atomic"},
    "parts": {"type": "array", "items": _TEXTS},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_LABELS: Final = {"app": "a"}
_SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": _LABELS},
}
_CASES: Final[Mapping[str, tuple[Kind, Manifest, str, Any]]] = {
    "selector of a Service": (
        SERVICE,
        {"spec": {"selector": _LABELS, "ports": [{"port": 80}]}},
        "/spec/selector/version",
        "v2",
    ),
    "selector of all pods": (
        NETWORK_POLICY,
        {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
        "/spec/podSelector/matchLabels",
        {"other": "pods"},
    ),
    "peer in a list": (
        NETWORK_POLICY,
        {
            "spec": {
                "podSelector": {"matchLabels": _LABELS},
                "ingress": [
                    {"from": [{"podSelector": {"matchLabels": _LABELS}}], "ports": [{"port": 80}]}
                ],
            }
        },
        "/spec/ingress/0/from/0/podSelector/matchLabels/other",
        "x",
    ),
    "rule of a Role": (
        ROLE,
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
        "/rules/0/resourceNames",
        ["one"],
    ),
    "endpoint of a slice": (
        ENDPOINT_SLICE,
        {"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}]},
        "/endpoints/0/conditions",
        {"ready": False},
    ),
    "selector in an item with a key": (
        DEPLOYMENT,
        {
            "spec": {
                "selector": {"matchLabels": _LABELS},
                "template": {
                    "metadata": {"labels": _LABELS},
                    "spec": {
                        "containers": [{"name": "a", "image": "a"}],
                        "topologySpreadConstraints": [_SPREAD],
                    },
                },
            }
        },
        "/spec/template/spec/topologySpreadConstraints/0/labelSelector/matchLabels/other",
        "x",
    ),
    "map of a custom kind": (_THING, {"spec": {"whole": {"a": "1"}}}, "/spec/whole/b", "2"),
    "list of a custom kind": (_THING, {"spec": {"parts": [{"a": "1"}]}}, "/spec/parts/0/b", "2"),
    "list without a schema": (
        _THING,
        {"spec": {"free": {"of": [{"a": "1"}]}}},
        "/spec/free/of/0/b",
        "2",
    ),
}


class Bench:
    """A writer with one cached kind, and a client that interferes."""

    def __init__(self, client: Client, kind: Kind, namespace: str) -> None:
        self.client, self.kind, self.key = client, kind, Key(namespace, "a")
        self.clock = FakeClock()
        self.informer = Informer(kind)
        cache = Cache()
        cache.add(self.informer)
        self.writer = Writer(
            client,
            cache,
            origin=Origin("widget", self.key),
            owner_uid="none",
            unknown=set(),
            unchanged=UnchangedApplies(),
            repairs=Repairs(self.clock),
        )

    async def take(self, fields: Manifest) -> Outcome:
        manifest = {**build_object(self.kind, self.key.name, self.key.namespace), **fields}
        return await self.writer.execute([[Apply(self.kind, manifest, lambda _: True)]])

    async def edit(self, path: str, value: Any) -> None:
        operation = {"op": "add", "path": path, "value": value}
        await self.client.patch(self.kind, self.key, [operation], field_manager="kubectl-edit")
        self.informer.put(await self.client.get(self.kind, self.key))

    async def read(self) -> Manifest:
        live = await self.client.get(self.kind, self.key)
        live.pop("status", None)
        return {name: value for name, value in live.items() if name != "metadata"}


async def _serve_things(client: Client) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": _SPEC}}}
    with contextlib.suppress(AlreadyExists):
        await client.create(CRD, build_crd(_THING, schema, ()))
    while True:
        try:
            await client.list(_THING, "default")
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return


async def _assert_repaired(client: Client, namespace: str, case: str) -> None:
    kind, fields, path, value = _CASES[case]
    if kind == _THING:
        await _serve_things(client)
    bench = Bench(client, kind, namespace)
    await bench.take(fields)
    before = await bench.read()
    # The first repair follows a create, the second one an apply.
    for _ in range(2):
        assert (await bench.take(fields)).changed == 0
        await bench.edit(path, value)
        assert await bench.read() != before

        assert (await bench.take(fields)).changed == 1
        assert await bench.read() == before
    bench.informer.store.clear()
    assert (await bench.take(fields)).changed == 0, "nothing to do after a restart"


@pytest.mark.parametrize("case", _CASES)
async def test_entry_that_others_add_is_removed(
    kube_client: Client, kube_namespace: str, case: str
) -> None:
    await _assert_repaired(kube_client, kube_namespace, case)


@pytest.mark.parametrize("case", _CASES)
async def test_entry_that_others_add_is_removed_on_the_fake(fake_client: Client, case: str) -> None:
    await _assert_repaired(fake_client, "default", case)


async def test_client_that_never_gives_up_is_repaired_less_and_less_often(
    fake_api: FakeApi, fake_client: Client
) -> None:
    kind, fields, path, value = _CASES["selector of a Service"]
    bench = Bench(fake_client, kind, "default")
    await bench.take(fields)
    repairs, error = 0, None
    for _ in range(100):
        await bench.edit(path, value)
        outcome = await bench.take(fields)
        repairs += outcome.changed
        error = outcome.first_error() or error
    mark = fake_api.mark()
    await bench.take(fields)

    assert repairs < 10
    assert isinstance(error, TransientError)
    assert "keeps changing spec.selector of Service default/a" in str(error)
    assert fake_api.mark() == mark, "not even a read"
    assert error.retry_after
    bench.clock.advance(error.retry_after)
    assert (await bench.take(fields)).changed == 1, "it is repaired in the end"
    assert (await bench.take({"spec": {**fields["spec"], "type": "NodePort"}})).ok, "own changes"


async def test_annotations_that_another_client_always_removes_cost_few_writes(
    fake_client: Client,
) -> None:
    bench = Bench(fake_client, SERVICE, "default")
    fields = _CASES["selector of a Service"][1]
    repairs = 0
    for _ in range(50):
        repairs += (await bench.take(fields)).changed
        operation = {"op": "replace", "path": "/metadata/annotations", "value": {}}
        await fake_client.patch(SERVICE, bench.key, [operation], field_manager="other")
        bench.informer.put(await fake_client.get(SERVICE, bench.key))

    assert repairs < 10
