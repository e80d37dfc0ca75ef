"""Who the app is and whom it trusts, with a broker that asks for tokens and speaks TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest

from operators.pulsarconsumer.app.handlers import accept
from operators.pulsarconsumer.app.harness import (
    Peer,
    RunningWorker,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker
from operators.pulsarconsumer.testing.security import (
    CERTIFICATE_ROLE,
    PASSWORD,
    PASSWORD_ROLE,
    FakeIssuer,
)
from slipway_handler import Message


@pytest.fixture(scope="module")
def admin(strict_broker: Broker) -> Iterator[Peer]:
    peer = Peer(
        strict_broker.service_url,
        authentication=pulsar.AuthenticationToken(strict_broker.token()),
    )
    yield peer
    peer.close()


def test_credentials_are_renewed_without_a_restart(
    strict_broker: Broker, admin: Peer, topic: str, tmp_path: Path
) -> None:
    token, key = tmp_path / "token", tmp_path / "key.json"
    # They run out while the app is connected; the broker then asks for others.
    life, expires = 3, 0.0

    def is_ready() -> bool:
        # On a busy machine the first token may have run out before the app is connected.
        nonlocal expires
        if time.monotonic() > expires - 1:
            expires = time.monotonic() + life
            token.write_text(strict_broker.token(seconds=life))
        return first.worker.check_ready() is None

    token.write_text(strict_broker.token(seconds=life))
    build = partial(build_environment, strict_broker.service_url, operation_timeout_seconds=2)
    with FakeIssuer(lambda: strict_broker.token(seconds=life), seconds=life) as issuer:
        key.write_text(issuer.key_file())
        file = build(topic, auth_type="Token", token_file=token)
        oauth = build(f"{topic}-o", auth_type="OAuth2", oauth2_credentials_file=key)
        with (
            running(file, accept, tmp_path / "log") as first,
            running(oauth, accept, tmp_path / "log2") as second,
        ):
            wait_until(is_ready, "the app is connected with a token that runs out", 60)
            token.write_text(strict_broker.token() + "\n")
            second.wait_ready()
            wait_until(lambda: time.monotonic() > expires + 2, "the old tokens have run out")
            for worker, name in ((first, topic), (second, f"{topic}-o")):
                admin.send(name, [b"after"])
                wait_until(partial(worker.handled, "acknowledged"), "messages still come")
                assert worker.value("broker_errors_total", operation="receive") == 0
        assert issuer.issued > 1


def build_logins(certificates: Path, folder: Path, issuer: FakeIssuer) -> dict[str, Any]:
    """Return settings by name, those that end with `wrong` to be refused."""
    for name, text in {
        "user": f"{PASSWORD_ROLE}\n",
        "password": PASSWORD,
        "no-password": "guessed",
        "key.json": issuer.key_file(),
        "no-key.json": issuer.key_file("guessed"),
    }.items():
        (folder / name).write_text(text)
    trust = {"tls_trusted_ca_file": certificates / "ca.crt"}

    def basic(password: str) -> dict[str, object]:
        files = {"basic_username_file": folder / "user", "basic_password_file": folder / password}
        return {"auth_type": "Basic", **files, **trust}

    def tls(name: str) -> dict[str, object]:
        files = {
            "tls_certificate_file": certificates / f"{name}.crt",
            "tls_key_file": certificates / f"{name}.key",
        }
        return {"auth_type": "TLS", **files, **trust}

    def oauth2(key: str) -> dict[str, object]:
        return {"auth_type": "OAuth2", "oauth2_credentials_file": folder / key, **trust}

    return {
        "basic": basic("password"),
        "basic wrong": basic("no-password"),
        "mtls": tls(CERTIFICATE_ROLE),
        # The authority signed it, but nobody gave this name any right.
        "mtls wrong": tls("stranger"),
        "oauth2": oauth2("key.json"),
        "oauth2 wrong": oauth2("no-key.json"),
    }


def test_each_login_is_let_in_and_a_wrong_one_is_not(
    strict_broker: Broker, admin: Peer, certificates: Path, topic: str, tmp_path: Path
) -> None:
    admin.send(topic, [b"x"])
    with FakeIssuer(strict_broker.token, seconds=3600) as issuer, ExitStack() as stack:
        logins = build_logins(certificates, tmp_path, issuer)
        workers: dict[str, RunningWorker] = {}
        # All at once: each waits for the broker most of the time.
        for number, (name, values) in enumerate(logins.items()):
            environ = build_environment(
                strict_broker.tls_url,
                topic,
                operation_timeout_seconds=2,
                subscription_name=f"s{number}",
                **values,
            )
            workers[name] = stack.enter_context(running(environ, accept, tmp_path / name))
        for name, worker in workers.items():
            if name.endswith("wrong"):
                failures = partial(worker.value, "broker_errors_total", operation="subscribe")
                wait_until(failures, f"{name} is refused")
                assert worker.handled("acknowledged") == 0
                assert "guessed" not in (worker.worker.check_ready() or "")
            else:
                wait_until(partial(worker.handled, "acknowledged"), f"{name} is let in")


def test_app_that_is_refused_waits_for_a_token_that_is_taken(
    strict_broker: Broker, admin: Peer, topic: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("not.a.token")
    environ = build_environment(
        strict_broker.service_url,
        topic,
        auth_type="Token",
        token_file=token,
        operation_timeout_seconds=2,
    )
    admin.send(topic, [b"x"])
    with running(environ, accept, tmp_path / "log") as worker:
        wait_until(lambda: worker.value("broker_errors_total", operation="subscribe"), "it fails")
        reason = worker.worker.check_ready() or ""
        token.write_text(strict_broker.token())
        wait_until(partial(worker.handled, "acknowledged"), "it is let in")

    assert "refuses the credentials" in reason
    assert "not.a.token" not in reason


def test_certificate_is_trusted_only_for_its_name_and_authority(
    strict_broker: Broker, admin: Peer, certificates: Path, topic: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(strict_broker.token())
    by_name = strict_broker.tls_url
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


def test_missing_permission_on_the_topic_of_attempts_does_not_stop_consumption(
    strict_broker: Broker, admin: Peer, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-sub-DLQ"):
        path = name.replace("://", "/")
        strict_broker.request("PUT", path)
        strict_broker.request("POST", f"{path}/permissions/shop", ["produce", "consume"])
    token, attempts = tmp_path / "token", list[int]()
    token.write_text(strict_broker.token("shop"))

    def fail(message: Message) -> None:
        attempts.append(message.attempt)
        raise ValueError

    admin.send(topic, [b"poison"])
    environ = build_environment(
        strict_broker.service_url,
        topic,
        auth_type="Token",
        token_file=token,
        dead_letter="Enabled",
        retry_max_attempts=3,
        retry_initial_delay_seconds=0.1,
    )
    with running(environ, fail, tmp_path / "log") as consumer:
        wait_until(lambda: consumer.handled("dead_lettered") == 1, "no attempt is left")
        assert consumer.worker.check_ready() is None
        assert consumer.value("broker_errors_total", operation="attempts") >= 1

    assert attempts == [1, 2, 3]
