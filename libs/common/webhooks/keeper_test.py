"""The certificate in its Secret: shared, renewed, trusted before it is shown."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest

from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import MUTATING_WEBHOOK_CONFIGURATION as KIND
from libs.common.kinds import SECRET, Key, Manifest, build_object
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.webhooks.certificates import LIFETIME, Certificate
from libs.common.webhooks.keeper import CertificateKeeper
from libs.common.webhooks.trust import TrustingObject

HOOK = Key("default", "hook")
TRUSTING = (TrustingObject(KIND, "hook"),)


def build_configuration(webhooks: int = 2) -> Manifest:
    hook: Manifest = {
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "default", "name": "hook"}},
    }
    return build_object(
        KIND, "hook", webhooks=[{**hook, "name": f"hook-{n}.example.com"} for n in range(webhooks)]
    )


@pytest.fixture
def api(fake_api: FakeApi) -> FakeApi:
    fake_api.create(build_object(SECRET, "hook", "default"))
    fake_api.create(build_configuration())
    return fake_api


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def keep(client: Client, clock: FakeClock) -> CertificateKeeper:
    return CertificateKeeper(client, clock, HOOK, TRUSTING, ["hook.default.svc"])


def bundles(api: FakeApi) -> set[bytes]:
    webhooks = api.get(KIND, Key("", "hook"))["webhooks"]
    return {base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in webhooks}


async def test_first_look_makes_it_and_all_later_ones_write_nothing(
    api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    keeper = keep(fake_client, clock)
    certificate = await keeper.ensure()
    assert bundles(api) == {certificate.trusted}

    mark = api.mark()
    assert await keeper.ensure() == certificate
    assert await keep(fake_client, clock).ensure() == certificate, "replicas share it"
    assert api.writes(since=mark) == []


async def test_replicas_that_begin_at_once_agree(
    api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    found = await asyncio.gather(*(keep(fake_client, clock).ensure() for _ in range(5)))

    assert len({each.certificate for each in found}) == 1
    assert bundles(api) == {found[0].trusted}


async def test_renewed_certificate_keeps_the_previous_one_trusted(
    api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    first = await keep(fake_client, clock).ensure()
    clock.advance((LIFETIME * 0.7) / timedelta(seconds=1))

    second = await keep(fake_client, clock).ensure()

    assert second.certificate != first.certificate
    assert bundles(api) == {second.certificate + first.certificate}


async def test_secret_that_was_spoiled_is_mended(
    api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    await keep(fake_client, clock).ensure()
    api.patch(SECRET, HOOK, {"data": {"tls.key": base64.b64encode(b"x").decode()}})

    assert b"PRIVATE KEY" in (await keep(fake_client, clock).ensure()).key


@pytest.mark.parametrize("data", [None, {"tls.crt": "eA==", "tls.key": "eA=="}])
async def test_what_replicas_show_stays_trusted_when_the_secret_is_lost(
    api: FakeApi, fake_client: Client, clock: FakeClock, data: Manifest | None
) -> None:
    keeper = keep(fake_client, clock)
    shown = await keeper.ensure()
    api.delete(SECRET, HOOK)
    api.create(build_object(SECRET, "hook", "default", **({"data": data} if data else {})))

    fresh = await keeper.ensure()

    assert fresh.certificate != shown.certificate
    assert bundles(api) == {fresh.certificate + shown.certificate}


async def test_bundle_of_a_replica_that_renews_meanwhile_is_not_put_back(
    api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    """The clock of one replica is a little behind: for it the certificate is not yet due."""

    class Behind(CertificateKeeper):
        async def _renew_if_due(self) -> Certificate:
            held = await super()._renew_if_due()
            if not renewed:
                renewed.append(await keep(fake_client, ahead).ensure())
            return held

    await keep(fake_client, clock).ensure()
    due = (LIFETIME * 2 - timedelta(hours=1)) / timedelta(seconds=3)
    ahead, renewed = FakeClock(), list[Certificate]()
    clock.advance(due - 60)
    ahead.advance(due + 60)

    await Behind(fake_client, clock, HOOK, TRUSTING, ["hook.default.svc"]).ensure()

    assert bundles(api) == {renewed[0].trusted}


async def test_trust_that_was_taken_away_comes_back(
    api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    certificate = await keep(fake_client, clock).ensure()
    api.patch(KIND, Key("", "hook"), {"webhooks": build_configuration()["webhooks"]})

    await keep(fake_client, clock).ensure()

    assert bundles(api) == {certificate.trusted}


async def test_nothing_is_created(fake_api: FakeApi, fake_client: Client, clock: FakeClock) -> None:
    with pytest.raises(NotFound):
        await keep(fake_client, clock).ensure()
    assert fake_api.writes() == []


async def test_configuration_that_calls_another_release_is_left_alone(
    fake_api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    fake_api.create(build_object(SECRET, "hook", "default"))
    configuration = build_configuration()
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"]["service"]["namespace"] = "other"
    fake_api.create(configuration)

    await keep(fake_client, clock).ensure()

    assert bundles(fake_api) == {b""}
