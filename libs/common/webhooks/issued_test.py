"""The certificate that others issue: read, never written, and its authority published."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from structlog.testing import capture_logs

from libs.common.client import Client
from libs.common.kinds import MUTATING_WEBHOOK_CONFIGURATION as KIND
from libs.common.kinds import SECRET, Key, Kind, Manifest, build_object
from libs.common.testing.authorities import Authority
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.webhooks.bundles import is_trusted
from libs.common.webhooks.certificates import Certificate, issue
from libs.common.webhooks.issued import OVERLAP, CertificateUnusable, IssuedCertificateKeeper
from libs.common.webhooks.keeper import render_data
from libs.common.webhooks.trust import TrustingObject

OTHER_KIND = replace(
    KIND, kind="ValidatingWebhookConfiguration", plural="validatingwebhookconfigurations"
)
SERVICE, HOLDER = Key("default", "hook"), Key("default", "hook-tls")
NAMES = ["hook.default.svc"]
TRUSTING = (TrustingObject(KIND, "hook"), TrustingObject(OTHER_KIND, "checks"))
NOW = FakeClock().now()
ROOT, OTHER = Authority.create("root", NOW), Authority.create("other", NOW)
ISSUED = ROOT.issue(NAMES, NOW)
BROKEN = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
CALLED = {"service": {"namespace": "default", "name": "hook"}}


@pytest.fixture
def api(fake_api: FakeApi) -> FakeApi:
    hook: Manifest = {
        "name": "hook.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": CALLED,
    }
    fake_api.create(build_object(KIND, "hook", webhooks=[hook]))
    fake_api.create(build_object(OTHER_KIND, "checks", webhooks=[hook]))
    return fake_api


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keeper(fake_client: Client, clock: FakeClock) -> IssuedCertificateKeeper:
    return build(fake_client, clock)


def build(client: Client, clock: FakeClock) -> IssuedCertificateKeeper:
    return IssuedCertificateKeeper(client, clock, HOLDER, SERVICE, TRUSTING, NAMES)


def write(api: FakeApi, certificate: Certificate, *missing: str) -> None:
    """Write the Secret as cert-manager does, in one update."""
    data = {name: each for name, each in render_data(certificate).items() if name not in missing}
    if api.find(SECRET, HOLDER) is not None:
        api.delete(SECRET, HOLDER)
    api.create(build_object(SECRET, HOLDER.name, HOLDER.namespace, data=data))


def bundles(api: FakeApi) -> tuple[bytes, bytes]:
    """Return what is trusted by each of the two webhook configurations."""
    first, second = (
        base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
        for each in TRUSTING
        for webhook in api.get(each.kind, Key("", each.name))["webhooks"]
    )
    return first, second


async def test_authority_is_published_and_nothing_else_is_written(
    api: FakeApi, keeper: IssuedCertificateKeeper, fake_client: Client, clock: FakeClock
) -> None:
    write(api, ISSUED)
    mark = api.mark()

    assert await keeper.ensure() == ISSUED
    assert bundles(api) == (ROOT.pem, ROOT.pem)
    assert {each.kind for each in api.writes(since=mark)} == {KIND, OTHER_KIND}

    mark = api.mark()
    assert await keeper.ensure() == ISSUED
    assert await build(fake_client, clock).ensure() == ISSUED, "another replica"
    assert api.writes(since=mark) == []


@pytest.mark.parametrize("missing", [("tls.crt",), ("tls.key",), ("tls.crt", "tls.key", "ca.crt")])
async def test_secret_that_is_late_or_incomplete_is_awaited(
    api: FakeApi, keeper: IssuedCertificateKeeper, missing: tuple[str, ...]
) -> None:
    with pytest.raises(
        CertificateUnusable, match=r"Secret default/hook-tls does not exist; .*cert"
    ):
        await keeper.ensure()
    write(api, ISSUED, *missing)
    mark = api.mark()
    with pytest.raises(CertificateUnusable, match=r"has no tls\.crt or no tls\.key"):
        await keeper.ensure()
    assert api.writes(since=mark) == []

    write(api, ISSUED)

    assert await keeper.ensure() == ISSUED


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        (replace(ISSUED, key=b"x"), "cannot be read"),
        (replace(ISSUED, key=OTHER.issue(NAMES, NOW).key), "does not match its key"),
        (ROOT.issue(["else.default.svc"], NOW), "is not for hook.default.svc"),
        (ROOT.issue(["*.svc"], NOW), "is not for hook.default.svc"),
        (ROOT.issue(NAMES, NOW - timedelta(days=91)), "expired on 2025-12-31"),
        (ROOT.issue(NAMES, NOW + timedelta(days=1)), "is not valid yet"),
        (ROOT.issue(NAMES, NOW, usage=ExtendedKeyUsageOID.CLIENT_AUTH), "`server auth`"),
        (replace(ISSUED, certificate=ISSUED.certificate + BROKEN), "cannot be served"),
    ],
    ids=[
        "no key",
        "other key",
        "other name",
        "wide name",
        "expired",
        "too early",
        "client",
        "broken chain",
    ],
)
async def test_certificate_that_cannot_be_served_is_refused_and_left_alone(
    api: FakeApi, keeper: IssuedCertificateKeeper, held: Certificate, problem: str
) -> None:
    write(api, held)
    mark = api.mark()

    with pytest.raises(CertificateUnusable, match=problem):
        await keeper.ensure()

    assert api.writes(since=mark) == []


async def test_wildcard_certificate_is_served(
    api: FakeApi, keeper: IssuedCertificateKeeper
) -> None:
    held = ROOT.issue(["*.default.svc"], NOW)
    write(api, held)

    assert await keeper.ensure() == held


async def test_renewal_by_the_same_authority_writes_nothing(
    api: FakeApi, keeper: IssuedCertificateKeeper
) -> None:
    write(api, ISSUED)
    await keeper.ensure()
    renewed = ROOT.issue(NAMES, NOW)
    write(api, renewed)
    mark = api.mark()

    assert await keeper.ensure() == renewed
    assert api.writes(since=mark) == []


async def test_previous_authority_stays_trusted_until_all_replicas_serve_the_new_one(
    api: FakeApi, keeper: IssuedCertificateKeeper, fake_client: Client, clock: FakeClock
) -> None:
    write(api, ISSUED)
    await keeper.ensure()
    write(api, OTHER.issue(NAMES, NOW))

    found = await keeper.ensure()

    both = OTHER.pem + ROOT.pem
    assert bundles(api) == (both, both)
    assert found.trusted == both
    clock.advance(OVERLAP.total_seconds() - 1)
    await keeper.ensure()
    # A replica that starts later does not know for how long both have been trusted.
    late = build(fake_client, clock)
    await late.ensure()
    assert bundles(api) == (both, both)

    clock.advance(1)
    assert (await keeper.ensure()).trusted == OTHER.pem
    mark = api.mark()
    await late.ensure()

    assert bundles(api) == (OTHER.pem, OTHER.pem)
    assert api.writes(since=mark) == []


async def test_own_certificate_of_an_earlier_release_stays_trusted_for_a_while(
    api: FakeApi, keeper: IssuedCertificateKeeper, clock: FakeClock
) -> None:
    own = issue(NAMES, NOW)
    config = {**CALLED, "caBundle": base64.b64encode(own.certificate).decode()}
    webhooks = [{"name": "hook.example.com", "clientConfig": config}]
    api.patch(OTHER_KIND, Key("", "checks"), {"webhooks": webhooks})
    write(api, ISSUED)

    await keeper.ensure()
    assert bundles(api) == (ROOT.pem, ROOT.pem + own.certificate)

    clock.advance(OVERLAP.total_seconds())
    await keeper.ensure()
    assert bundles(api) == (ROOT.pem, ROOT.pem)


@pytest.mark.parametrize("authority", [b"", OTHER.pem, b"nothing"])
async def test_certificate_alone_is_trusted_if_its_authority_is_not_in_the_secret(
    api: FakeApi, keeper: IssuedCertificateKeeper, clock: FakeClock, authority: bytes
) -> None:
    write(api, replace(ISSUED, trusted=authority), *([] if authority else ["ca.crt"]))

    with capture_logs() as logs:
        await keeper.ensure()
        await keeper.ensure()

    assert bundles(api) == (ISSUED.certificate, ISSUED.certificate)
    (entry,) = logs
    assert entry["because"] == (
        "ca.crt has no valid authority that signed tls.crt" if authority else "ca.crt is missing"
    )
    # The next one is trusted together with the one that replicas may still serve.
    renewed = ROOT.issue(NAMES, NOW)
    write(api, renewed, "ca.crt")
    await keeper.ensure()
    both = renewed.certificate + ISSUED.certificate
    assert bundles(api) == (both, both)


async def test_certificate_that_outlives_its_authority_is_trusted_alone(
    api: FakeApi, keeper: IssuedCertificateKeeper, clock: FakeClock
) -> None:
    authority = Authority.create("old", NOW - timedelta(days=364))
    held = authority.issue(NAMES, NOW)
    write(api, held)
    await keeper.ensure()
    assert bundles(api) == (authority.pem, authority.pem)

    # API servers must know of the change before the authority expires.
    clock.advance((timedelta(days=1) - OVERLAP / 2).total_seconds())
    assert is_trusted(held.certificate, (await keeper.ensure()).trusted)
    assert bundles(api) == (held.certificate + authority.pem,) * 2

    clock.advance(OVERLAP.total_seconds())
    await keeper.ensure()
    assert bundles(api) == (held.certificate, held.certificate)


@pytest.mark.parametrize("annotation", ["inject-ca-from", "inject-ca-from-secret"])
@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [(KIND, "hook", (b"", ROOT.pem)), (OTHER_KIND, "checks", (ROOT.pem, b""))],
    ids=["mutating", "validating"],
)
async def test_bundle_is_left_to_the_injector_that_an_annotation_asks_for(
    api: FakeApi,
    keeper: IssuedCertificateKeeper,
    annotation: str,
    kind: Kind,
    name: str,
    expected: tuple[bytes, bytes],
) -> None:
    metadata = {"annotations": {f"cert-manager.io/{annotation}": "default/hook"}}
    api.patch(kind, Key("", name), {"metadata": metadata})
    write(api, ISSUED)

    with capture_logs() as logs:
        found = await keeper.ensure()
        await keeper.ensure()

    assert bundles(api) == expected
    assert found.trusted == b"", "not all objects trust the certificate"
    assert [each["name"] for each in logs] == [name]


async def test_bundle_in_another_order_is_not_rewritten(
    api: FakeApi, keeper: IssuedCertificateKeeper, fake_client: Client, clock: FakeClock
) -> None:
    write(api, replace(ISSUED, trusted=ROOT.pem + OTHER.pem))
    await keeper.ensure()
    write(api, replace(ISSUED, trusted=OTHER.pem + ROOT.pem))
    mark = api.mark()

    await build(fake_client, clock).ensure()

    assert api.writes(since=mark) == []


async def test_replica_that_was_faster_is_not_undone(
    api: FakeApi, fake_client: Client, clock: FakeClock
) -> None:
    """Between its two reads, the Secret is renewed and another replica publishes."""

    class Slow(IssuedCertificateKeeper):
        async def _read(self) -> Certificate:
            held = await super()._read()
            if not done:
                done.append(True)
                write(api, OTHER.issue(NAMES, NOW))
                await build(fake_client, clock).ensure()
            return held

    done: list[bool] = []
    write(api, ISSUED)

    found = await Slow(fake_client, clock, HOLDER, SERVICE, TRUSTING, NAMES).ensure()

    assert found.certificate != ISSUED.certificate
    assert bundles(api) == (OTHER.pem, OTHER.pem)
