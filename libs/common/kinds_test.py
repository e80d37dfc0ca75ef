"""Kinds and keys: paths as the API server has them."""

from __future__ import annotations

import pytest

from libs.common.kinds import (
    DEPLOYMENT,
    NETWORK_POLICY,
    NODE,
    POD,
    Key,
    Kind,
    describe,
    is_deleting,
    key_of,
    uid_of,
    version_of,
)


def test_paths_are_those_of_the_api() -> None:
    assert POD.path() == "/api/v1/pods"
    assert POD.path("ns", "web", "status") == "/api/v1/namespaces/ns/pods/web/status"
    assert DEPLOYMENT.path("ns") == "/apis/apps/v1/namespaces/ns/deployments"
    assert NODE.path("ignored", "n1") == "/api/v1/nodes/n1"


def test_kind_without_a_constant_is_written_as_in_manifests() -> None:
    assert Kind.of("apps/v1", "Deployment") == DEPLOYMENT
    assert Kind.of("v1", "Node", namespaced=False) == NODE
    policy = Kind.of("networking.k8s.io/v1", "NetworkPolicy")
    assert policy == NETWORK_POLICY
    assert Kind.of("v1", "Endpoints", "endpoints").path("ns") == "/api/v1/namespaces/ns/endpoints"


def test_names_are_those_of_messages_and_rbac() -> None:
    assert (POD.resource, DEPLOYMENT.resource) == ("pods", "deployments.apps")
    assert (str(POD), str(DEPLOYMENT)) == ("Pod", "Deployment.apps/v1")
    assert describe(POD, Key("ns", "web")) == "Pod ns/web"
    assert describe(NODE, Key("", "n1")) == "Node n1"


@pytest.mark.parametrize(
    ("api_version", "kind", "expected"),
    [
        ("apps/v1", "Deployment", True),
        ("apps/v1beta1", "Deployment", True),
        ("v1", "Deployment", False),
        ("example.com/v1", "Deployment", False),
        ("apps/v1", "ReplicaSet", False),
    ],
)
def test_manifest_is_of_a_kind_in_any_version(api_version: str, kind: str, expected: bool) -> None:
    assert DEPLOYMENT.matches({"apiVersion": api_version, "kind": kind}) is expected


def test_what_the_server_did_not_give_yet_is_empty() -> None:
    assert key_of({"metadata": {"name": "a"}}) == Key("", "a")
    assert uid_of({}) == ""
    assert version_of({"metadata": {"resourceVersion": "opaque"}}) == 0
    assert version_of({"metadata": {"resourceVersion": "12"}}) == 12
    assert not is_deleting({})
