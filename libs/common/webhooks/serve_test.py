"""Webhooks of an operator: ready once they respond, and trusted during each renewal."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from libs.common.kinds import MUTATING_WEBHOOK_CONFIGURATION as KIND
from libs.common.kinds import SECRET, Key, Manifest, build_object
from libs.common.kinds import VALIDATING_WEBHOOK_CONFIGURATION as VALIDATING
from libs.common.runtime import Operator
from libs.common.runtime.manager import Manager
from libs.common.settings import operator_settings
from libs.common.testing.authorities import Authority
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.ports import find_free_port
from libs.common.testing.script import Script
from libs.common.testing.waiting import until
from libs.common.testing.widget import WIDGET
from libs.common.webhooks import WebhookSettings, serve_webhooks
from libs.common.webhooks.certificates import LIFETIME, Certificate, issue
from libs.common.webhooks.keeper import parse_secret, render_data
from libs.common.webhooks.serve import name_service

HOOK = Key("default", "hook")
SOON = (LIFETIME * 0.7) / timedelta(seconds=1)


class Settings(WebhookSettings):
    model_config = operator_settings("widget")


def build_webhooks(manager: Manager) -> Coroutine[Any, Any, None] | None:
    return serve_webhooks(manager, {})


@pytest.fixture
def api(fake_api: FakeApi) -> FakeApi:
    fake_api.register(WIDGET)
    fake_api.create(build_object(SECRET, "hook", "default"))
    hook: Manifest = {
        "name": "hook.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "default", "name": "hook"}},
    }
    fake_api.create(build_object(KIND, "hook", webhooks=[hook]))
    fake_api.create(build_object(VALIDATING, "judge", webhooks=[hook]))
    return fake_api


def build_harness(
    api: FakeApi,
    port: int,
    clock: FakeClock,
    *,
    certificate_secret: str = "",
    validating: str = "",
) -> OperatorHarness:
    build = Script().build_controller
    operator = Operator("widget", (build,), settings=Settings, runnables=(build_webhooks,))
    return OperatorHarness(
        operator,
        api.config,
        clock=clock,
        pod_namespace="default",
        webhooks=True,
        webhook_service="hook",
        webhook_certificate_secret=certificate_secret,
        webhook_configuration="hook",
        webhook_validating_configuration=validating,
        webhook_bind_address=f"127.0.0.1:{port}",
    )


async def probe(harness: OperatorHarness) -> tuple[int, str]:
    url = f"http://127.0.0.1:{harness.manager.health.probe_port}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def is_ready(harness: OperatorHarness) -> bool:
    return (await probe(harness))[0] == 200


async def see(port: int) -> bytes:
    """Return the certificate that is shown."""
    text = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    return text.encode()


def kept(api: FakeApi) -> bytes:
    found = parse_secret(api.get(SECRET, HOOK))
    return found.certificate if found else b""


async def test_process_is_ready_once_its_webhooks_answer(api: FakeApi) -> None:
    held = api.hang("get", SECRET)
    async with build_harness(api, find_free_port(), FakeClock()) as harness:
        assert harness.manager.cache.synced
        assert not await is_ready(harness)

        held.release()
        await harness.eventually(lambda: is_ready(harness))


async def test_certificate_is_trusted_for_a_while_before_it_is_shown(api: FakeApi) -> None:
    clock, port = FakeClock(), find_free_port()
    async with build_harness(api, port, clock) as harness:
        await harness.eventually(lambda: is_ready(harness))
        first = kept(api)
        assert await see(port) == first
        assert _read_expiration(harness) == _parse_expiration(first)

        clock.advance(SOON)
        await until(lambda: kept(api) != first)
        await until(lambda: api.requests.select("patch", KIND))
        second = kept(api)
        for _ in range(5):
            assert await see(port) == first, "an API server may not have heard of the new one"

        async def is_shown() -> bool:
            clock.advance(60)
            return await see(port) == second

        await harness.eventually(is_shown)
        assert _read_expiration(harness) == _parse_expiration(second)


def _read_expiration(harness: OperatorHarness) -> float:
    return harness.metric("operator_webhook_certificate_expiration_timestamp_seconds")


def _parse_expiration(certificate: bytes) -> float:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


async def test_certificate_is_shown_at_once_where_the_one_before_is_trusted_no_more(
    api: FakeApi,
) -> None:
    clock, port = FakeClock(), find_free_port()
    async with build_harness(api, port, clock) as harness:
        await harness.eventually(lambda: is_ready(harness))
        other = issue(name_service(HOOK), clock.now())
        api.patch(SECRET, HOOK, {"data": render_data(other)})
        looks = len(api.requests.select("get", SECRET))

        clock.advance(60)
        await harness.eventually(lambda: _shows(port, other.certificate))
        assert len(api.requests.select("get", SECRET)) == looks + 1


async def _shows(port: int, certificate: bytes) -> bool:
    return await see(port) == certificate


async def test_certificate_is_still_followed_after_a_look_at_it_failed(api: FakeApi) -> None:
    clock, port = FakeClock(), find_free_port()
    async with build_harness(api, port, clock) as harness:
        await harness.eventually(lambda: is_ready(harness))
        fault = api.fail("", SECRET, status=503, times=None)
        failures = len(api.requests.select("get", SECRET))
        clock.advance(60)
        await until(lambda: len(api.requests.select("get", SECRET)) > failures)
        fault.release()
        other = issue(name_service(HOOK), clock.now())
        api.patch(SECRET, HOOK, {"data": render_data(other)})

        async def is_shown() -> bool:
            clock.advance(60)
            return await see(port) == other.certificate

        await harness.eventually(is_shown)


async def test_certificate_of_others_is_awaited_served_and_followed(api: FakeApi) -> None:
    clock, port = FakeClock(), find_free_port()
    root, other = (Authority.create(name, clock.now()) for name in ("root", "other"))
    first, renewed = (each.issue(name_service(HOOK), clock.now()) for each in (root, other))
    holder = Key("default", "hook-tls")
    own = api.get(SECRET, HOOK)
    async with build_harness(api, port, clock, certificate_secret=holder.name) as harness:

        async def is_awaited() -> bool:
            return "Secret default/hook-tls does not exist" in (await probe(harness))[1]

        async def is_shown_after_a_while(certificate: Certificate) -> bool:
            clock.advance(2)
            return await is_ready(harness) and await see(port) in certificate.certificate

        await harness.eventually(is_awaited)
        looks = len(api.requests.select("get", SECRET))
        with capture_logs() as logs:
            clock.advance(2)
            await until(lambda: len(api.requests.select("get", SECRET)) > looks)
            assert "Secret default/hook-tls" in (await probe(harness))[1]
        assert not [each for each in logs if each["event"].startswith("Waiting for the cert")]
        api.create(build_object(SECRET, holder.name, "default", data=render_data(first)))
        await harness.eventually(partial(is_shown_after_a_while, first))
        assert read_bundle(api) == root.pem
        assert _read_expiration(harness) == _parse_expiration(first.certificate)

        # What cannot be served is not served.
        looks = len(api.requests.select("get", SECRET))
        api.patch(SECRET, holder, {"data": {"tls.key": base64.b64encode(b"x").decode()}})
        clock.advance(60)
        await until(lambda: len(api.requests.select("get", SECRET)) > looks)
        assert await is_shown_after_a_while(first)

        api.patch(SECRET, holder, {"data": render_data(renewed)})
        clock.advance(60)
        await until(lambda: read_bundle(api) == other.pem + root.pem)
        assert await is_shown_after_a_while(first), "an API server may not have heard of it"
        await harness.eventually(partial(is_shown_after_a_while, renewed))
        assert _read_expiration(harness) == _parse_expiration(renewed.certificate)

        assert api.get(SECRET, HOOK) == own
        assert api.writes(kind=SECRET) == []


async def test_certificate_that_an_injector_has_not_published_is_not_served(api: FakeApi) -> None:
    clock, port = FakeClock(), find_free_port()
    root, other = (Authority.create(name, clock.now()) for name in ("root", "other"))
    first, renewed = (each.issue(name_service(HOOK), clock.now()) for each in (root, other))
    holder = Key("default", "hook-tls")

    def inject(bundle: bytes) -> None:
        configuration = api.get(KIND, Key("", "hook"))
        (webhook,) = configuration["webhooks"]
        webhook["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        annotations = {"cert-manager.io/inject-ca-from": "default/hook"}
        change = {"metadata": {"annotations": annotations}, "webhooks": [webhook]}
        api.patch(KIND, Key("", "hook"), change)

    async def look_again() -> None:
        looks = len(api.requests.select("get", SECRET))

        def has_looked() -> bool:
            # The previous look may not have reached its pause yet.
            clock.advance(60)
            return len(api.requests.select("get", SECRET)) > looks

        await until(has_looked)

    inject(root.pem)
    api.create(build_object(SECRET, holder.name, "default", data=render_data(first)))
    async with build_harness(api, port, clock, certificate_secret=holder.name) as harness:
        await harness.eventually(partial(is_ready, harness))
        api.patch(SECRET, holder, {"data": render_data(renewed)})
        for _ in range(4):
            await look_again()
        assert await see(port) in first.certificate

        inject(other.pem)
        await look_again()

        async def is_renewed() -> bool:
            return await see(port) in renewed.certificate

        await harness.eventually(is_renewed)


def read_bundle(api: FakeApi) -> bytes:
    (webhook,) = api.get(KIND, Key("", "hook"))["webhooks"]
    return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))


async def test_webhooks_are_trusted_before_the_caches_are_filled(api: FakeApi) -> None:
    """Writes of others must not wait for the first list of the operator."""
    listing = api.hang("list", WIDGET, times=None)
    harness = build_harness(api, find_free_port(), FakeClock())
    starting = asyncio.create_task(harness.__aenter__())
    try:
        await until(lambda: api.requests.select("patch", KIND))
        assert not starting.done()
    finally:
        listing.release()
        await starting
        await harness.__aexit__(None, None, None)


async def test_both_configurations_trust_the_certificate(api: FakeApi) -> None:
    async with build_harness(api, find_free_port(), FakeClock(), validating="judge") as harness:
        await harness.eventually(lambda: is_ready(harness))

        for kind, name in ((KIND, "hook"), (VALIDATING, "judge")):
            (webhook,) = api.get(kind, Key("", name))["webhooks"]
            assert webhook["clientConfig"]["caBundle"]
