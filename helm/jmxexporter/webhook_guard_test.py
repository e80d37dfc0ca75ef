"""The admission policy for the webhook configuration, on a real API server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from lab.sweep.cluster import request_token
from libs.common.client import Client
from libs.common.errors import AlreadyExists, Forbidden, Invalid
from libs.common.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    SERVICE_ACCOUNT,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.helm import render_chart
from libs.common.webhooks.certificates import issue

pytestmark = pytest.mark.apiserver

_GROUP = "admissionregistration.k8s.io"
POLICY = Kind(_GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", False)
BINDING = Kind(
    _GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False
)
WEBHOOK = Kind(_GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False)
RELEASE = "jmx-guard"
KINDS = {each.kind: each for each in (POLICY, BINDING, WEBHOOK, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)}
EVERYTHING = [
    {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["secrets"]}
]


@pytest.fixture
async def operator(kube_apiserver: ControlPlane, kube_client: Client) -> AsyncIterator[Client]:
    """Install the cluster-wide objects of the chart, and log in as the operator."""
    for kind, manifest in (
        (NAMESPACE, build_object(NAMESPACE, RELEASE)),
        (SERVICE_ACCOUNT, build_object(SERVICE_ACCOUNT, "jmxexporter", RELEASE)),
    ):
        with suppress(AlreadyExists):
            await kube_client.create(kind, manifest)
    rendered = render_chart(
        "jmxexporter", {"settings": {"webhooks": True}}, namespace=RELEASE, show_only=tuple(KINDS)
    )
    created = [
        (KINDS[each["kind"]], await kube_client.create(KINDS[each["kind"]], each))
        for each in rendered
    ]
    token = await request_token(kube_client, RELEASE, "jmxexporter")
    async with Client(kube_apiserver.config_for(token), user_agent="jmxexporter") as client:
        yield client
    for kind, manifest in created:
        await kube_client.delete(kind, key_of(manifest), uid=uid_of(manifest))


def replace(path: str, value: object) -> list[Manifest]:
    return [{"op": "add", "path": f"/webhooks/0/{path}", "value": value}]


async def test_operator_changes_only_the_bundle_of_its_webhook(
    operator: Client, kube_client: Client
) -> None:
    """With more, its token could read and change every object of the cluster."""
    (found,) = [
        each
        for each in (await kube_client.list(WEBHOOK)).items
        if each["webhooks"][0]["clientConfig"]["service"]["namespace"] == RELEASE
    ]
    key = key_of(found)
    async with asyncio.timeout(120):
        while True:
            try:
                await operator.patch(WEBHOOK, key, replace("timeoutSeconds", 5))
            except (Forbidden, Invalid):
                break
            await kube_client.patch(WEBHOOK, key, replace("timeoutSeconds", 3))
            await asyncio.sleep(0.2)
    further = {**found["webhooks"][0], "name": "further.example.com"}
    for change in (
        replace("rules", EVERYTHING),
        replace("clientConfig", {"url": "https://elsewhere.example.com/"}),
        replace("clientConfig/service/path", "/elsewhere"),
        replace("namespaceSelector", {}),
        replace("objectSelector", {"matchLabels": {"a": "b"}}),
        replace("matchConditions", [{"name": "a", "expression": "true"}]),
        replace("failurePolicy", "Fail"),
        [{"op": "add", "path": "/webhooks/1", "value": further}],
        [{"op": "remove", "path": "/webhooks/0"}],
    ):
        with suppress(Forbidden, Invalid):
            await operator.patch(WEBHOOK, key, change)
            pytest.fail(f"accepted: {change}")

    bundle = base64.b64encode(issue(["localhost"], datetime.now(UTC)).certificate).decode()
    await operator.patch(WEBHOOK, key, replace("clientConfig/caBundle", bundle))
    changed = await kube_client.patch(WEBHOOK, key, replace("failurePolicy", "Fail"))
    assert changed["webhooks"][0]["failurePolicy"] == "Fail", "others may change it"
