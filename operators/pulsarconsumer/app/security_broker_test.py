"""Who the app is and whom it trusts, with a broker that asks for tokens and speaks TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pulsar
import pytest

from libs.common.testing.pulsar import Broker, PulsarMissing, create_certificates
from operators.pulsarconsumer.app.handlers import accept
from operators.pulsarconsumer.app.harness import (
    Peer,
    build_environment,
    running,
    wait_until,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Path) -> Iterator[Broker]:
    try:
        strict = Broker(tokens=True, certificates=certificates)
    except PulsarMissing as err:
        pytest.skip(str(err))
    with strict:
        yield strict


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Peer]:
    peer = Peer(broker.service_url, authentication=pulsar.AuthenticationToken(broker.token()))
    yield peer
    peer.close()


def test_token_is_rotated_without_a_restart(
    broker: Broker, admin: Peer, topic: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    # It runs out while the app is connected; the broker then asks for another.
    expires = time.monotonic() + 4
    token.write_text(broker.token(seconds=4))
    environ = build_environment(
        broker.service_url, topic, auth_type="Token", token_file=token, operation_timeout_seconds=2
    )
    with running(environ, accept, tmp_path / "log") as worker:
        worker.wait_ready()
        token.write_text(broker.token() + "\n")
        wait_until(lambda: time.monotonic() > expires + 2, "the old token has run out")
        admin.send(topic, [b"after"])
        wait_until(partial(worker.handled, "acknowledged"), "messages still come")
        assert worker.value("broker_errors_total", operation="receive") == 0


def test_app_that_is_refused_waits_for_a_token_that_is_taken(
    broker: Broker, admin: Peer, topic: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("not.a.token")
    environ = build_environment(
        broker.service_url, topic, auth_type="Token", token_file=token, operation_timeout_seconds=2
    )
    admin.send(topic, [b"x"])
    with running(environ, accept, tmp_path / "log") as worker:
        wait_until(lambda: worker.value("broker_errors_total", operation="subscribe"), "it fails")
        reason = worker.worker.check_ready() or ""
        token.write_text(broker.token())
        wait_until(partial(worker.handled, "acknowledged"), "it is let in")

    assert "does not take the credentials" in reason
    assert "not.a.token" not in reason


def test_certificate_is_trusted_only_for_its_name_and_authority(
    broker: Broker, admin: Peer, certificates: Path, topic: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(broker.token())
    by_name = broker.tls_url
    by_address = by_name.replace("localhost", "127.0.0.1")
    authority = {"tls_trusted_ca_file": certificates / "ca.crt"}
    admin.send(topic, [b"x"])
    trials: list[tuple[str, dict[str, object], bool]] = [
        (by_name, {**authority}, True),
        (by_address, {**authority}, False),
        (by_address, {**authority, "tls_verify_hostname": "false"}, True),
        (by_name, {}, False),
        (by_address, {"tls_allow_insecure": "true"}, True),
    ]
    for number, (server, values, trusted) in enumerate(trials):
        environ = build_environment(
            server,
            topic,
            auth_type="Token",
            token_file=token,
            operation_timeout_seconds=1,
            subscription_name=f"s{number}",
            **values,
        )
        with running(environ, accept, tmp_path / "log") as worker:
            if trusted:
                wait_until(partial(worker.handled, "acknowledged"), f"trial {number} is let in")
            else:
                failures = partial(worker.value, "broker_errors_total", operation="subscribe")
                wait_until(failures, f"trial {number} is refused")
                assert worker.handled("acknowledged") == 0
