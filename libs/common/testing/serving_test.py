"""CRDs on a real API server that several tests share."""

from __future__ import annotations

import pytest

from libs.common.client import Client
from libs.common.errors import Invalid
from libs.common.kinds import Kind, Manifest, build_object
from libs.common.testing.serving import serve

THING = Kind("serving.slipway.dev", "v1", "Thing", "things")


def build_crd(spec: Manifest) -> Manifest:
    names = {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{THING.group}"},
        "spec": {
            "group": THING.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


async def test_part_of_a_crd_of_another_test_is_replaced(
    kube_client: Client, kube_namespace: str
) -> None:
    part = build_crd({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    whole = build_crd({"type": "object", "properties": {"size": {"type": "integer"}}})
    wrong = build_object(THING, "wrong", kube_namespace, spec={"size": "large"})

    await serve(kube_client, part)
    await kube_client.create(THING, wrong)
    await serve(kube_client, whole)

    with pytest.raises(Invalid):
        await kube_client.create(THING, wrong)
