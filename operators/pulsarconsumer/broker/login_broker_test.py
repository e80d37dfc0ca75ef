"""How the operator logs in to the admin API of a broker that asks who it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from operators.pulsarconsumer.broker.errors import (
    AdminError,
    AdminForbidden,
    AdminNotFound,
    AdminUnauthorized,
    AdminUnreachable,
)
from operators.pulsarconsumer.broker.login import KeyFile, Login
from operators.pulsarconsumer.broker.pulsar_admin import PulsarAdmin
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.testing.broker import Broker
from operators.pulsarconsumer.testing.security import (
    CERTIFICATE_ROLE,
    PASSWORD,
    PASSWORD_ROLE,
    FakeIssuer,
)


@pytest.fixture
def issuer(strict_broker: Broker) -> Iterator[FakeIssuer]:
    with FakeIssuer(strict_broker.token, seconds=3600) as fakes:
        yield fakes


async def ask(address: str, login: Login) -> AdminError | None:
    """Ask for a topic that is not there; a broker that says so has let us in."""
    admin = PulsarAdmin(address, login, allow_loopback=True, timeout=20)
    async with admin:
        try:
            await admin.count_partitions(Topic.parse("nothing"))
        except AdminNotFound:
            return None
        except AdminError as err:
            return err
    raise AssertionError("there is such a topic")


async def test_each_login_is_let_in_and_a_wrong_one_is_not(
    strict_broker: Broker, certificates: Path, issuer: FakeIssuer
) -> None:
    def read(name: str) -> str:
        return (certificates / name).read_text()

    trusted = Login(trusted=read("ca.crt"))
    right = {
        "token": replace(trusted, token=strict_broker.token()),
        "basic": replace(trusted, username=PASSWORD_ROLE, password=PASSWORD),
        "mtls": replace(
            trusted,
            certificate=read(f"{CERTIFICATE_ROLE}.crt"),
            key=read(f"{CERTIFICATE_ROLE}.key"),
        ),
        "oauth2": replace(trusted, key_file=KeyFile(issuer.url, "app", "known")),
    }
    wrong = {
        "nobody": trusted,
        "token": replace(trusted, token=strict_broker.token(seconds=-60)),
        "basic": replace(trusted, username=PASSWORD_ROLE, password="guessed"),
        "oauth2": replace(trusted, key_file=KeyFile(issuer.url, "app", "guessed")),
    }
    # The broker trusts the authority of the certificate, so it knows who this is.
    stranger = replace(trusted, certificate=read("stranger.crt"), key=read("stranger.key"))

    for name, login in right.items():
        assert await ask(strict_broker.admin_tls_url, login) is None, name
    for name, login in wrong.items():
        refusal = await ask(strict_broker.admin_tls_url, login)
        assert isinstance(refusal, AdminUnauthorized), name
        assert "guessed" not in str(refusal)
    assert isinstance(await ask(strict_broker.admin_tls_url, stranger), AdminForbidden)


async def test_certificate_is_trusted_only_for_its_name_and_authority(
    strict_broker: Broker, certificates: Path
) -> None:
    token, ca = strict_broker.token(), (certificates / "ca.crt").read_text()
    by_name = strict_broker.admin_tls_url
    by_address = by_name.replace("localhost", "127.0.0.1")
    trials = [
        (by_name, Login(token=token, trusted=ca), True),
        (by_address, Login(token=token, trusted=ca), False),
        (by_address, Login(token=token, trusted=ca, verify_hostname=False), True),
        (by_name, Login(token=token), False),
        (by_address, Login(token=token, verify_certificate=False), True),
    ]
    for number, (address, login, trusted) in enumerate(trials):
        refusal = await ask(address, login)
        assert refusal is None if trusted else isinstance(refusal, AdminUnreachable), number
