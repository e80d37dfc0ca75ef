"""Nobody grants through the fake API what the real one would refuse."""

from __future__ import annotations

import pytest

from libs.common.client import Client
from libs.common.errors import Forbidden
from libs.common.kinds import (
    CLUSTER_ROLE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    Kind,
    Manifest,
    build_object,
)
from libs.common.rbac import PolicyRule, build_role, grant
from libs.common.testing.fakeapi import FakeApi

_GROUP = "rbac.authorization.k8s.io"
_WRITE = (grant(ROLE, "create", "patch"), grant(ROLE_BINDING, "create"))


def build_binding(kind: Kind, name: str) -> Manifest:
    reference = {"apiGroup": _GROUP, "kind": kind.kind, "name": name}
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "default"}
    return build_object(ROLE_BINDING, name, "default") | {
        "roleRef": reference,
        "subjects": [subject],
    }


async def is_refused(client: Client, kind: Kind, manifest: Manifest) -> bool:
    try:
        await client.create(kind, manifest)
    except Forbidden as err:
        return "is attempting to grant RBAC permissions not currently held" in str(err)
    return False


@pytest.mark.parametrize(
    ("held", "granted", "refused"),
    [
        (grant(POD, "get", "list"), grant(POD, "get"), False),
        (grant(POD, "get"), grant(POD, "get", "delete"), True),
        (grant(POD, "get"), grant(SECRET, "get"), True),
        (grant(SECRET, "get", names=["a"]), grant(SECRET, "get", names=["a"]), False),
        (grant(SECRET, "get", names=["a"]), grant(SECRET, "get"), True),
        (grant(ROLE, "escalate", names=["r"], why="x"), grant(SECRET, "get"), False),
    ],
    ids=["less", "verb", "resource", "name", "all-names", "escalate"],
)
async def test_role_grants_at_most_what_its_author_has(
    fake_api: FakeApi,
    fake_client: Client,
    held: PolicyRule,
    granted: PolicyRule,
    *,
    refused: bool,
) -> None:
    fake_api.allow((*_WRITE, held))

    assert await is_refused(fake_client, ROLE, build_role("r", "default", [granted])) is refused


async def test_binding_needs_the_permissions_of_the_role_or_the_verb_bind(
    fake_api: FakeApi, fake_client: Client
) -> None:
    # A test prepares the cluster without permissions of its own.
    fake_api.create(build_role("reader", "default", [grant(POD, "get")]))
    fake_api.allow((*_WRITE, grant(POD, "get")))
    assert not await is_refused(fake_client, ROLE_BINDING, build_binding(ROLE, "reader"))
    assert await is_refused(fake_client, ROLE_BINDING, build_binding(CLUSTER_ROLE, "edit"))

    fake_api.allow([grant(CLUSTER_ROLE, "bind", names=["edit"], why="x")])
    assert not await is_refused(fake_client, ROLE_BINDING, build_binding(CLUSTER_ROLE, "edit"))
    assert await is_refused(fake_client, ROLE_BINDING, build_binding(CLUSTER_ROLE, "admin"))
