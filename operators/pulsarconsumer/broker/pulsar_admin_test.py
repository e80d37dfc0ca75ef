"""The client of the admin API against one that is slow, wrong, foreign or malicious."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.ask import evaluate
from operators.pulsarconsumer.broker import errors
from operators.pulsarconsumer.broker.addresses import are_neighbors, is_reachable
from operators.pulsarconsumer.broker.login import KeyFile, Login, LoginInvalid
from operators.pulsarconsumer.broker.poll import StatusQuery, read_broker
from operators.pulsarconsumer.broker.pulsar_admin import PulsarAdmin
from operators.pulsarconsumer.broker.statistics import parse_statistics
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic

TOPIC = Topic.parse("t")
TOKEN = Login(token="secret-token")


@pytest.fixture
def broker() -> Iterator[RecordedBroker]:
    """Run a broker that has the topic."""
    with RecordedBroker() as broker:
        broker.topics["t"] = RecordedTopic(subscriptions={"s": 7})
        yield broker


def connect(address: str, login: Login | None = None, **options: Any) -> PulsarAdmin:
    options = {"allow_loopback": True, "timeout": 2.0, **options}
    return PulsarAdmin(address, login or Login(), **options)


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (401, errors.AdminUnauthorized, Reason.AUTHENTICATION_FAILED),
        (403, errors.AdminForbidden, Reason.AUTHORIZATION_FAILED),
        (404, errors.AdminNotFound, Reason.BROKER_ERROR),
        (412, errors.AdminConflict, Reason.BROKER_ERROR),
        (500, errors.AdminBusy, Reason.BROKER_ERROR),
        (503, errors.AdminBusy, Reason.BROKER_ERROR),
    ],
)
async def test_refusals_are_told_apart_and_what_they_say_is_not_repeated(
    broker: RecordedBroker, status: int, error: type[Exception], reason: Reason
) -> None:
    broker.status = status
    async with connect(broker.address, TOKEN) as admin:
        with pytest.raises(error) as caught:
            await admin.count_partitions(TOPIC)

    problem = evaluate(caught.value)
    assert problem.reason is reason
    assert "secret" not in f"{caught.value} {problem.message}"


@pytest.mark.parametrize(
    ("content", "explanation"),
    [
        (b'{"reason": "Not enough bookies"}', "Not enough bookies"),
        (b'{"reason": "\\n --- Error ---\\n\\nMessage: closed\\n\\nStacktrace:\\n\\nx"}', "closed"),
        (b"<html>\n503 \x1b[31mUnavailable</html>", "<html> 503 [31mUnavailable</html>"),
        (b'["x"]', ""),
        (b'{"reason": "token=abc123 is wrong"}', "token=[redacted] is wrong"),
        (b"\xff" + b"x" * 10_000, "\ufffd" + "x" * 299),
        (b"", ""),
    ],
)
def test_explanation_of_a_temporary_error_is_bounded_and_not_in_its_message(
    content: bytes, explanation: str
) -> None:
    error = errors.error_of_status(500, "PUT /t", content)

    assert isinstance(error, errors.AdminBusy)
    assert (str(error), error.explanation) == ("PUT /t: status 500", explanation)


async def test_temporary_error_is_reported_with_its_explanation(broker: RecordedBroker) -> None:
    reported: list[errors.AdminBusy] = []
    broker.busy[TOPIC.name] = 1
    async with connect(broker.address, on_busy=reported.append) as admin:
        with pytest.raises(errors.AdminBusy) as caught:
            await admin.count_partitions(TOPIC)

    assert reported == [caught.value]
    assert caught.value.explanation == "Not enough bookies"


async def test_silence_is_bounded(broker: RecordedBroker) -> None:
    broker.delay = 5.0
    async with connect(broker.address, timeout=0.1) as admin:
        with pytest.raises(errors.AdminUnreachable, match="in time"):
            await admin.count_partitions(TOPIC)
    broker.delay = 0.0
    broker.stop()
    async with connect(broker.address) as admin:
        with pytest.raises(errors.AdminUnreachable):
            await admin.count_partitions(TOPIC)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1",
        "http://localhost:1",
        "http://[::1]:1",
        "http://[::ffff:127.0.0.1]:1",
        "http://169.254.169.254",
        "http://0.0.0.0:1",
        "http://[fe80::1]:1",
    ],
)
async def test_own_machine_and_metadata_services_are_never_asked(address: str) -> None:
    async with PulsarAdmin(address, timeout=2.0) as admin:
        with pytest.raises(errors.AdminAddressRefused) as caught:
            await admin.count_partitions(TOPIC)

    assert evaluate(caught.value).reason is Reason.REFUSED_ADDRESS


# Redirects.


async def test_redirect_to_the_broker_that_serves_the_topic_is_followed(
    broker: RecordedBroker,
) -> None:
    with RecordedBroker() as first:
        first.redirect = broker.address
        async with connect(first.address, TOKEN) as admin:
            assert await admin.count_partitions(TOPIC) == 0

    assert broker.requests[0][2]["Authorization"] == "Bearer secret-token"


async def test_credentials_never_follow_to_a_stranger(broker: RecordedBroker) -> None:
    with RecordedBroker() as first:
        first.redirect = broker.address.replace("127.0.0.1", "localhost")
        async with connect(first.address, TOKEN) as admin:
            with pytest.raises(errors.AdminRedirected, match="no credentials are sent there"):
                await admin.count_partitions(TOPIC)
        assert broker.requests == []

        async with connect(first.address) as nobody:
            assert await nobody.count_partitions(TOPIC) == 0


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1:1/other?", "ftp://127.0.0.1/admin/v2", "http://169.254.169.254"],
)
async def test_redirect_elsewhere_is_refused(broker: RecordedBroker, target: str) -> None:
    broker.redirect = target
    async with connect(broker.address) as admin:
        with pytest.raises((errors.AdminRedirected, errors.AdminAddressRefused)):
            await admin.count_partitions(TOPIC)


async def test_redirects_in_a_circle_end(broker: RecordedBroker) -> None:
    broker.redirect = broker.address
    async with connect(broker.address) as admin:
        with pytest.raises(errors.AdminRedirected, match="more than"):
            await admin.count_partitions(TOPIC)

    assert len(broker.requests) == 4


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("pulsar.team.svc", "broker-0.broker.team.svc.cluster.local", True),
        ("pulsar.team.svc", "broker-0.broker.other.svc.cluster.local", False),
        ("admin.pulsar.example.com", "broker-1.pulsar.example.com", True),
        ("pulsar.example.com", "evil.com", False),
        ("a.com", "b.com", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "10.0.0.1", True),
    ],
)
def test_neighbors(first: str, second: str, expected: bool) -> None:
    assert are_neighbors(first, second) is expected


def test_ordinary_addresses_are_reachable() -> None:
    assert all(is_reachable(address) for address in ("10.1.2.3", "192.168.0.1", "fd00::1"))
    assert not is_reachable("224.0.0.1")


# Answers that make no sense.


class Site:
    """A web server with configured responses, by path."""

    def __init__(self, answer: Callable[[str], tuple[int, bytes]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, raw = answer(f"{self.path} {body.decode()}")
                self.send_response(status)
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = _serve  # noqa: N815 names of the base class

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.mark.parametrize("raw", [b"<html>", b"[1]", b'"x"', b'{"partitions": "many"}'])
async def test_answer_of_another_program_is_told(raw: bytes) -> None:
    site = Site(lambda _: (200, raw))
    async with connect(site.address) as admin:
        with pytest.raises(errors.AdminMisunderstood):
            await admin.count_partitions(TOPIC)
    site.server.shutdown()
    site.server.server_close()


async def test_endless_answer_is_cut_off() -> None:
    site = Site(lambda _: (200, b" " * (17 * 2**20)))
    async with connect(site.address, timeout=20.0) as admin:
        with pytest.raises(errors.AdminMisunderstood, match="more than"):
            await admin.count_partitions(TOPIC)
    site.server.shutdown()
    site.server.server_close()


_WORDS = st.sampled_from(
    ["subscriptions", "s", "partitions", "consumers", "msgBacklog", "msgInCounter", "backlogSize"]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(raw=st.dictionaries(_WORDS, _JSON, max_size=4))
def test_statistics_of_any_shape_can_be_read(raw: dict[str, Any]) -> None:
    report = parse_statistics("t", raw, "s", 0)

    assert report.messages >= report.entries >= 0


@pytest.mark.parametrize(("holes", "messages"), [(0, 501), (1, 1)])
def test_size_of_a_backlog_with_holes_says_nothing_about_its_messages(
    holes: int, messages: int
) -> None:
    """The size includes acknowledged messages behind the first one that waits."""
    held = {
        "msgBacklog": 1,
        "backlogSize": 50_100,
        "nonContiguousDeletedMessagesRanges": holes,
    }
    raw = {"msgInCounter": 501, "bytesInCounter": 50_100, "subscriptions": {"s": held}}

    assert parse_statistics("t", raw, "s", 0).messages == messages


async def test_survey_tells_the_first_error(broker: RecordedBroker) -> None:
    broker.status = 401
    async with connect(broker.address) as admin:
        with pytest.raises(errors.AdminUnauthorized):
            await read_broker(admin, StatusQuery(("t", "u"), "s"))


# Logins.


async def test_issuer_is_asked_once_for_a_token(broker: RecordedBroker) -> None:
    asked: list[str] = []

    def answer(request: str) -> tuple[int, bytes]:
        asked.append(request)
        if "openid-configuration" in request:
            return 200, orjson.dumps({"token_endpoint": f"{site.address}/token"})
        return 200, orjson.dumps({"access_token": "from-issuer", "expires_in": 3600})

    site = Site(answer)
    broker.token = "from-issuer"
    raw = b'{"client_id": "me", "client_secret": "hush"}'
    login = Login(key_file=KeyFile.parse(raw, issuer=site.address, audience="urn:p"))
    for _ in range(2):
        async with connect(broker.address, login) as admin:
            assert await admin.count_partitions(TOPIC) == 0

    assert len(asked) == 2
    assert "grant_type=client_credentials" in asked[1]
    assert "audience=urn%3Ap" in asked[1]
    assert "hush" not in repr(login)
    site.server.shutdown()
    site.server.server_close()


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"client_id": 1}', b"\xff"])
def test_key_file_that_is_none_is_told_without_its_content(raw: bytes) -> None:
    with pytest.raises(LoginInvalid, match="is not JSON with"):
        KeyFile.parse(raw, issuer="https://issuer")


async def test_basic_login_is_a_header(broker: RecordedBroker) -> None:
    async with connect(broker.address, Login(username="me", password="pw")) as admin:
        await admin.count_partitions(TOPIC)

    assert broker.requests[0][2]["Authorization"] == "Basic bWU6cHc="


async def test_certificate_that_is_none_is_told() -> None:
    with pytest.raises(LoginInvalid, match="certificate or key"):
        async with PulsarAdmin("https://pulsar:8443", Login(certificate="x", key="y")):
            pass


@pytest.mark.parametrize("field", ["trusted", "certificate", "key"])
async def test_certificates_of_a_megabyte_are_refused_before_they_are_loaded(field: str) -> None:
    text = "-----BEGIN CERTIFICATE-----\n" * 40_000

    with pytest.raises(LoginInvalid, match="more than 262144"):
        Login(**{field: text}).tls()


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "a\x00", "\u212a", 7])
async def test_token_that_no_header_can_hold_is_the_fault_of_the_issuer(
    broker: RecordedBroker, token: object
) -> None:
    def answer(request: str) -> tuple[int, bytes]:
        if "openid-configuration" in request:
            return 200, orjson.dumps({"token_endpoint": f"{site.address}/token"})
        return 200, orjson.dumps({"access_token": token})

    site = Site(answer)
    raw = b'{"client_id": "me", "client_secret": "hush"}'
    login = Login(key_file=KeyFile.parse(raw, issuer=site.address, audience=repr(token)))
    with pytest.raises(errors.AdminMisunderstood, match="issuer"):
        async with connect(broker.address, login) as admin:
            await admin.count_partitions(TOPIC)
    site.server.shutdown()
    site.server.server_close()


@pytest.mark.parametrize(
    ("backlog", "expected"),
    [
        (2**63 - 1, 2**53),
        (1e300, 2**53),
        (float("inf"), 2**53),
        (float("nan"), 0),
        (10**400, 2**53),
    ],
)
def test_number_that_the_status_cannot_hold_is_limited(backlog: float, expected: int) -> None:
    raw: Any = {"subscriptions": {"s": {"msgBacklog": backlog}}}

    assert parse_statistics("t", raw, "s", 0).entries == expected


def test_consumers_that_the_broker_has_blocked_are_counted() -> None:
    consumers = [{"blockedConsumerOnUnackedMsgs": value} for value in (True, False, "true")]
    raw: Any = {"subscriptions": {"s": {"consumers": consumers}}}

    assert parse_statistics("t", raw, "s", 0).blocked_consumers == 1
