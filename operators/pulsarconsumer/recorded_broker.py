"""A fake admin API for tests, with responses recorded from a real broker of Pulsar 4.0.

The tests against a real broker are in `broker/*_broker_test.py`. This fake starts immediately, and
can simulate a slow, faulty or unreachable broker.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit


@dataclass(slots=True)
class RecordedTopic:
    """A topic.

    Attributes:
        subscriptions: Number of waiting entries by subscription.
        extra: Fields that override the statistics of each subscription.
    """

    partitions: int = 0
    subscriptions: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


class RecordedBroker:
    """A server of recorded responses of the admin API, on a free port of the loopback address.

    Attributes:
        topics: Topics of public/default by name.
        creates_topics: Whether a subscription creates its topic, as with allowAutoTopicCreation.
        token: Required token; empty for none.
        status: Status of each response instead of the correct one; 0 for none.
        redirect: Address to which each request is redirected; empty for none.
        delay: Seconds before each response.
        requests: Received requests: method, path and headers.
    """

    def __init__(self) -> None:
        """Start without topics."""
        self.topics: dict[str, RecordedTopic] = {}
        self.creates_topics = True
        self.token = ""
        self.status = 0
        self.redirect = ""
        self.delay = 0.0
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self.connections = 0
        self.forbidden: set[str] = set()
        """Topics to which access is refused."""
        self.busy: Counter[str] = Counter()
        """Number of the next requests that fail temporarily, by topic."""
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def address(self) -> str:
        """URL of the admin API."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, on the same port as before."""
        self._server = _Server(self, self._port)
        self._port = int(self._server.server_address[1])
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def stop(self) -> None:
        """Stop: refuse new connections, and close existing ones."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, method: str, path: str) -> tuple[int, object]:
        """Return the response to a request below `/admin/v2/persistent/public/default/`."""
        name, _, rest = path.partition("/")
        name = unquote(name)
        words = [unquote(unquote(word)) for word in rest.split("/")]
        if self.busy[name]:
            self.busy[name] -= 1
            return 500, {"reason": "Not enough bookies"}
        if method == "PUT" and not rest:
            if name in self.topics:
                return 409, {"reason": "This topic already exists"}
            self.topics[name] = RecordedTopic()
            return 204, None
        if method == "PUT" and words[0] == "subscription":
            if name not in self.topics and not self.creates_topics:
                return 412, {"reason": "Topic does not exist and cannot be auto-created"}
            held = self.topics.setdefault(name, RecordedTopic()).subscriptions
            if words[1] in held:
                return 409, {"reason": "Subscription already exists for topic"}
            held[words[1]] = 0
            return 204, None
        if name in self.forbidden:
            return 401, {"reason": "Unauthorized to validateTopicOperation"}
        topic = self.topics.get(name)
        if topic is None:
            return 404, {"reason": f"Topic persistent://public/default/{name} not found"}
        if words[0] == "partitions":
            return 200, {"partitions": topic.partitions, "deleted": False}
        if words[0] in ("stats", "partitioned-stats"):
            return 200, self._statistics(topic)
        return self._change(topic, method, words)

    def _change(self, topic: RecordedTopic, method: str, words: list[str]) -> tuple[int, object]:
        if words[1] not in topic.subscriptions:
            return 404, {"reason": f"Subscription {words[1]} not found"}
        if method == "DELETE":
            del topic.subscriptions[words[1]]
        else:
            topic.subscriptions[words[1]] = 100 if words[-1] == "0" else 0
        return 204, None

    def _statistics(self, topic: RecordedTopic) -> dict[str, Any]:
        subscriptions = {
            name: {
                "msgRateOut": 0.0,
                "msgRateRedeliver": 0.0,
                "msgBacklog": entries,
                "backlogSize": entries * 42,
                "earliestMsgPublishTimeInBacklog": 1_767_225_600_000 if entries else -1,
                "msgBacklogNoDelayed": entries,
                "blockedSubscriptionOnUnackedMsgs": False,
                "msgDelayed": 0,
                "unackedMessages": 0,
                "type": "Shared",
                "consumers": [],
                **topic.extra,
            }
            for name, entries in topic.subscriptions.items()
        }
        return {
            "msgRateIn": 0.0,
            "bytesInCounter": 8400,
            "msgInCounter": 200,
            "subscriptions": subscriptions,
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, broker: RecordedBroker, port: int) -> None:
        super().__init__(("127.0.0.1", port), _build_handler(broker))
        self._broker = broker
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._broker.connections += 1
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: in some tests, clients do not wait for the response."""

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _build_handler(broker: RecordedBroker) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            broker.requests.append((self.command, self.path, dict(self.headers)))
            time.sleep(broker.delay)
            prefix = "/admin/v2/persistent/public/default/"
            if broker.redirect:
                self._send(307, None, Location=f"{broker.redirect}{self.path}")
            elif broker.status:
                self._send(broker.status, {"reason": "secret details"})
            elif broker.token and self.headers.get("Authorization") != f"Bearer {broker.token}":
                self._send(401, {"reason": "Authentication required"})
            else:
                path = urlsplit(self.path).path.removeprefix(prefix)
                self._send(*broker.answer(self.command, path))

        def _send(self, status: int, body: object, **headers: str) -> None:
            raw = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 names of the base class

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler
