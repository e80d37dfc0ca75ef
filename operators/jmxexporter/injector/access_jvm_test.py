"""Endpoints with TLS, a login and client certificates, as Prometheus meets them."""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.access import Access
from operators.jmxexporter.injector.inject import run
from operators.jmxexporter.injector.messages import (
    CLIENTS_VARIABLE,
    LOGIN_VARIABLES,
    TLS_VARIABLES,
    Action,
    JvmReport,
    State,
)
from operators.jmxexporter.injector.scrape import Address, scrape
from operators.jmxexporter.jvms import CONFIG, Jvm, build_request, wait_until
from operators.jmxexporter.reasons import Reason

type Start = Callable[..., Jvm]
type PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
CERTIFICATE, KEY = TLS_VARIABLES["tls.crt"], TLS_VARIABLES["tls.key"]
LOGIN = dict(zip(LOGIN_VARIABLES.values(), ("prometheus", "pass:wörd"), strict=True))
FORMATS = [
    ("rsa", serialization.PrivateFormat.PKCS8),
    ("rsa", serialization.PrivateFormat.TraditionalOpenSSL),
    ("ec", serialization.PrivateFormat.PKCS8),
    ("ec", serialization.PrivateFormat.TraditionalOpenSSL),
]


def generate(kind: str) -> PrivateKey:
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certify(key: PrivateKey, issuer: PrivateKey, name: str = "shop", by: str = "shop") -> str:
    """Return a certificate in PEM; with `key` as issuer it is its own authority."""
    own = key is issuer
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=own, path_length=None), critical=True)
    )
    pem = builder.sign(issuer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem.decode()


def render(
    key: PrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    ).decode()


def inject(jvm: Jvm, port: int, values: dict[str, str], **rest: Any) -> JvmReport:
    request = build_request(Action.ENSURE, port=port, timeout_seconds=60, **rest)
    report = run(request, CONFIG, jvm.jars, Access(values))
    (found,) = report.jvms
    return found


def read(
    port: int,
    *,
    trust: str = "",
    login: str = "",
    certificate: tuple[Path, Path] | None = None,
) -> str:
    """Scrape as a client with these means."""
    status, text = ask(port, trust=trust, login=login, certificate=certificate)
    assert status == 200, text
    return text


def ask(
    port: int, *, trust: str = "", login: str = "", certificate: tuple[Path, Path] | None = None
) -> tuple[int, str]:
    """Return status and text of a scrape, and leave no connection open whatever happens."""
    connection = http.client.HTTPConnection("localhost", port, timeout=30)
    if trust:
        context = ssl.create_default_context(cadata=trust)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
    encoded = base64.b64encode(login.encode()).decode()
    headers = {"Authorization": f"Basic {encoded}"} if login else {}
    try:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def refuse(port: int, **means: Any) -> int:
    return ask(port, **means)[0]


@pytest.mark.parametrize(("kind", "form"), FORMATS)
def test_metrics_are_served_by_https_with_the_keys_that_tools_write(
    start_jvm: Start, kind: str, form: serialization.PrivateFormat
) -> None:
    jvm, port, key = start_jvm(), find_free_port(), generate(kind)
    certificate = certify(key, key)

    report = inject(
        jvm, port, {CERTIFICATE: certificate, KEY: render(key, form)}, tls_secret="cert"
    )

    assert report.state is State.SERVING, report
    assert "shop_orders" in read(port, trust=certificate)
    with pytest.raises((OSError, http.client.HTTPException)):
        read(port)


def test_metrics_need_the_login_and_the_password_is_not_kept(
    start_jvm: Start, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()

    report = inject(jvm, port, LOGIN, login_secret="login")

    assert report.state is State.SERVING, report
    assert "shop_orders" in read(port, login="prometheus:pass:wörd")
    assert refuse(port) == 401
    assert refuse(port, login="prometheus:other") == 401
    # Injectors of earlier tests in this process may have left directories of other users.
    kept = [*Path("/tmp").glob(f"slipway-jmx-{build_request(Action.STOP).id[:8]}-*/*")]
    assert kept
    assert not [path for path in kept if b"w\xc3\xb6rd" in path.read_bytes()]


def test_metrics_need_a_certificate_of_the_authority(
    start_jvm: Start, release: int, tmp_path: Path
) -> None:
    jvm, port, key = start_jvm(release=release), find_free_port(), generate("rsa")
    certificate, client, stranger = certify(key, key), generate("ec"), generate("ec")
    files = {}
    for name, owner, issuer in (("client", client, key), ("stranger", stranger, stranger)):
        pair = (tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        pair[0].write_text(certify(owner, issuer, name, by="shop" if issuer is key else name))
        pair[1].write_text(render(owner))
        files[name] = pair
    values = {CERTIFICATE: certificate, KEY: render(key), CLIENTS_VARIABLE: certificate}

    report = inject(jvm, port, values, tls_secret="cert", client_certificates=True)

    assert report.state is State.SERVING, report
    assert "shop_orders" in read(port, trust=certificate, certificate=files["client"])
    with pytest.raises(OSError, match=r"."):
        read(port, trust=certificate, certificate=files["stranger"])
    address = Address("127.0.0.1", port, encrypted=True)
    wait_until(lambda: (scrape(address, 60) or {})["refusedSeconds"] != "0")
    assert refuse(port, trust=certificate) == 403


def test_another_certificate_and_password_replace_the_first_ones(start_jvm: Start) -> None:
    jvm, port, first, second = start_jvm(), find_free_port(), generate("rsa"), generate("ec")
    old, new = certify(first, first), certify(second, second)
    inject(jvm, port, {CERTIFICATE: old, KEY: render(first)}, tls_secret="cert")

    values = {CERTIFICATE: new, KEY: render(second), **LOGIN}
    report = inject(jvm, port, values, tls_secret="cert", login_secret="login")

    assert report.state is State.SERVING, report
    assert "shop_orders" in read(port, trust=new, login="prometheus:pass:wörd")
    assert refuse(port, trust=new) == 401
    with pytest.raises(OSError, match=r"."):
        read(port, trust=old, login="prometheus:pass:wörd")


def test_guard_says_that_all_clients_are_refused_until_one_is_accepted(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()
    edited = LOGIN | {LOGIN_VARIABLES["password"]: "edited"}
    inject(jvm, port, LOGIN, login_secret="login")

    def look() -> dict[str, str]:
        return scrape(Address("127.0.0.1", port), 60) or {}

    assert look()["refusedSeconds"] == "0"
    assert refuse(port, login="prometheus:edited") == 401
    wait_until(lambda: int(look()["refusedSeconds"]) > 0)
    assert look()["renewed"] == "false"
    inject(jvm, port, edited, login_secret="login")
    assert look()["renewed"] == "true"
    assert read(port, login="prometheus:edited")
    assert look()["refusedSeconds"] == "0"
    assert refuse(port) == 401
    wait_until(lambda: int(look()["refusedSeconds"]) > 0)
    assert look()["renewed"] == "false", "the next edit counts"


def test_endpoint_changes_between_http_and_https_and_keeps_its_port(start_jvm: Start) -> None:
    jvm, port, key = start_jvm(), find_free_port(), generate("rsa")
    certificate = certify(key, key)
    values = {CERTIFICATE: certificate, KEY: render(key)}

    inject(jvm, port, {})
    assert inject(jvm, port, values, tls_secret="cert").state is State.SERVING
    assert "shop_orders" in read(port, trust=certificate)
    assert inject(jvm, port, {}).state is State.SERVING
    assert "shop_orders" in read(port)


def test_key_that_does_not_fit_leaves_the_endpoint_as_it_was(start_jvm: Start) -> None:
    jvm, port, key = start_jvm(), find_free_port(), generate("rsa")
    assert inject(jvm, port, {}).state is State.SERVING

    values = {CERTIFICATE: certify(key, key), KEY: "no key"}
    report = inject(jvm, port, values, tls_secret="cert")

    assert (report.state, report.reason) == (State.FAILED, Reason.TLS_INVALID), report
    assert "shop_orders" in read(port)


def test_secret_that_lacks_a_key_is_named_and_the_jvm_not_touched(start_jvm: Start) -> None:
    request = build_request(
        Action.ENSURE, tls_secret="cert", client_certificates=True, login_secret="login"
    )

    report = run(request, CONFIG, start_jvm().jars, Access({CERTIFICATE: "x", KEY: "y"}))

    assert report.reason == Reason.SECRET_MISSING
    assert report.message == (
        "Secret cert has no key ca.crt; Secret login has no key username; "
        "Secret login has no key password"
    )
