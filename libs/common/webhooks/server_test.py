"""The admission server, asked by a real API server."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import ssl
from contextlib import suppress
from datetime import UTC, datetime

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.errors import Forbidden, ServerError
from libs.common.kinds import CONFIG_MAP, Key, Manifest, build_object, uid_of
from libs.common.kinds import MUTATING_WEBHOOK_CONFIGURATION as KIND
from libs.common.kinds import VALIDATING_WEBHOOK_CONFIGURATION as VALIDATING
from libs.common.settings.addresses import BindAddress
from libs.common.webhooks import Webhook
from libs.common.webhooks.certificates import Certificate, issue
from libs.common.webhooks.review import Review, ReviewResponse
from libs.common.webhooks.server import AdmissionServer

HERE = BindAddress("127.0.0.1", 0)


def build_certificate() -> Certificate:
    return issue(["127.0.0.1"], datetime.now(UTC))


def review_mark(review: Review) -> ReviewResponse:
    name = review.object["metadata"]["name"]
    if name == "bad":
        return ReviewResponse(refusal="bad is not a name")
    if name == "broken":
        raise RuntimeError(name)
    return ReviewResponse([{"op": "add", "path": "/data", "value": {"seen": review.namespace}}])


def build_configuration(namespace: str, port: int, certificate: Certificate) -> Manifest:
    webhook = {
        "name": "marks.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/marks",
            "caBundle": base64.b64encode(certificate.trusted).decode(),
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["configmaps"],
                "operations": ["CREATE"],
            }
        ],
    }
    return build_object(KIND, f"marks-{namespace}", webhooks=[webhook])


def build_config_map(namespace: str, name: str) -> Manifest:
    return build_object(CONFIG_MAP, name, namespace)


@pytest.mark.apiserver
async def test_api_server_trusts_calls_and_follows_the_webhook(
    kube_client: Client, kube_namespace: str
) -> None:
    certificate = build_certificate()
    async with AdmissionServer({"/marks": review_mark}, HERE, certificate) as server:
        found = build_configuration(kube_namespace, server.port, certificate)
        await kube_client.create(KIND, found)
        async with asyncio.timeout(120):
            # The API server learns of its webhooks a moment after they are made.
            for number in itertools.count():
                manifest = build_config_map(kube_namespace, f"marked-{number}")
                made = await kube_client.create(CONFIG_MAP, manifest)
                if made.get("data") == {"seen": kube_namespace}:
                    break
        with pytest.raises(Forbidden, match="bad is not a name"):
            await kube_client.create(CONFIG_MAP, build_config_map(kube_namespace, "bad"))
        broken = await kube_client.create(CONFIG_MAP, build_config_map(kube_namespace, "broken"))
        assert "data" not in broken, "a review that fails is passed over"
    gone = await kube_client.create(CONFIG_MAP, build_config_map(kube_namespace, "gone"))
    assert "data" not in gone, "so is a webhook that is gone"


@pytest.mark.apiserver
async def test_validating_webhook_knows_who_asks_and_refuses_while_nobody_answers(
    kube_client: Client, kube_namespace: str
) -> None:
    seen: list[Review] = []

    def note(review: Review) -> ReviewResponse:
        seen.append(review)
        return ReviewResponse()

    certificate = build_certificate()
    server = AdmissionServer({"/maps": note}, HERE, certificate)
    declared = Webhook(
        CONFIG_MAP,
        ("CREATE",),
        validating=True,
        timeout_seconds=5,
        object_labels={"checked": "yes"},
        match_conditions={"named": "object.metadata.name != 'ignored'"},
    ).to_chart()
    async with server:
        webhook = {
            **{name: declared[name] for name in ("failurePolicy", "timeoutSeconds", "rules")},
            "name": "maps.example.com",
            "matchConditions": declared["matchConditions"],
            "objectSelector": {"matchLabels": declared["objectLabels"]},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kube_namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {
                "url": f"https://127.0.0.1:{server.port}/maps",
                "caBundle": base64.b64encode(certificate.trusted).decode(),
            },
        }
        await kube_client.create(
            VALIDATING, build_object(VALIDATING, f"maps-{kube_namespace}", webhooks=[webhook])
        )
        labels = {"labels": {"checked": "yes"}}
        for attempt in itertools.count():
            # The API server needs a moment until it knows the configuration.
            name = f"a{attempt}"
            await kube_client.create(
                CONFIG_MAP, build_object(CONFIG_MAP, name, kube_namespace, metadata=labels)
            )
            if seen:
                break
            await asyncio.sleep(0.1)
        await kube_client.create(
            CONFIG_MAP,
            build_object(CONFIG_MAP, "dry", kube_namespace, metadata=labels),
            dry_run=True,
        )
    try:
        for name, metadata in (("ignored", labels), ("unlabelled", {})):
            await kube_client.create(
                CONFIG_MAP, build_object(CONFIG_MAP, name, kube_namespace, metadata=metadata)
            )
        with pytest.raises(ServerError, match="failed calling webhook"):
            await kube_client.create(
                CONFIG_MAP, build_object(CONFIG_MAP, "late", kube_namespace, metadata=labels)
            )
    finally:
        name = f"maps-{kube_namespace}"
        made = await kube_client.get(VALIDATING, Key("", name))
        await kube_client.delete(VALIDATING, Key("", name), uid=uid_of(made))

    assert [review.dry_run for review in seen] == [False, True]
    assert "system:authenticated" in seen[0].groups and seen[0].user
    assert seen[0].subresource == ""


async def test_new_certificate_is_served_without_a_restart() -> None:
    first, second = build_certificate(), build_certificate()
    async with AdmissionServer({}, HERE, first) as server:
        assert await fetch(server.port, first) == 404
        server.show(second)

        assert await fetch(server.port, second) == 404
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await fetch(server.port, first)


@pytest.mark.parametrize("body", ["", "[]", "{", '{"request": {}}'])
async def test_request_that_is_not_a_review_is_rejected(body: str) -> None:
    certificate = build_certificate()
    async with AdmissionServer({"/marks": review_mark}, HERE, certificate) as server:
        assert await fetch(server.port, certificate, "/marks", body) == 400


async def test_review_that_is_too_large_is_rejected() -> None:
    certificate = build_certificate()
    async with AdmissionServer({"/marks": review_mark}, HERE, certificate) as server:
        assert await fetch(server.port, certificate, "/marks", " " * (9 << 20)) == 413


async def test_reviews_that_never_end_make_room_for_others() -> None:
    certificate = build_certificate()
    head = b"POST /marks HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n"
    context = ssl.create_default_context(cadata=certificate.certificate.decode())
    writers = []
    async with AdmissionServer({"/marks": review_mark}, HERE, certificate) as server:
        readers = []
        for _ in range(6):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.write(head + b" " * 7_900_000)
            await writer.drain()
            readers.append(reader)
            writers.append(writer)
        async with asyncio.timeout(60):
            with suppress(ConnectionError):
                assert await readers[0].read() == b"", "the oldest is closed"
        assert await fetch(server.port, certificate, "/marks", "[]") == 400, "others are served"
        assert not readers[5].at_eof()
    for writer in writers:
        writer.close()


async def fetch(port: int, trusted: Certificate, path: str = "/", body: str = "") -> int:
    context = ssl.create_default_context(cadata=trusted.certificate.decode())
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        sent = io.BytesIO(body.encode())
        async with session.post(f"https://127.0.0.1:{port}{path}", data=sent) as response:
            return response.status
