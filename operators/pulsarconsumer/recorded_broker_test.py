"""The recorded broker responds like the real one: to the same requests, with the same fields."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from operators.pulsarconsumer.app.harness import Peer
from operators.pulsarconsumer.recorded_broker import RecordedBroker
from operators.pulsarconsumer.testing.broker import BUSY_SECONDS, Broker

EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("GET", "{topic}/partitions", None),
    ("GET", "{topic}/stats", None),
    ("DELETE", "{topic}/subscription/s", None),
    ("PUT", "{topic}", {}),
    ("PUT", "{topic}", {}),
    ("GET", "{topic}/partitions", None),
    ("GET", "{topic}/stats", None),
    ("PUT", "{topic}/subscription/s", EARLIEST),
    ("PUT", "{topic}/subscription/s", EARLIEST),
    ("PUT", "{topic}/subscription/a%252Fb", EARLIEST),
    ("POST", "{topic}/subscription/s/resetcursor/0", None),
    ("POST", "{topic}/subscription/missing/resetcursor/0", None),
    ("GET", "{topic}/stats", None),
    ("DELETE", "{topic}/subscription/s", None),
    ("DELETE", "{topic}/subscription/s", None),
    ("DELETE", "{topic}/subscription/a%252Fb", None),
    ("PUT", "{topic}-created/subscription/s", EARLIEST),
    ("GET", "{topic}-created/stats", None),
)
"""Requests of the operator, in this order: method, path and body."""


def call(address: str, method: str, path: str, body: object) -> tuple[int, Any]:
    """Return the status and the content of a response that is not a temporary refusal."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        status, content = call_once(address, method, path, body)
        if status < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > deadline:
            return status, content
        time.sleep(0.2)


def call_once(address: str, method: str, path: str, body: object) -> tuple[int, Any]:
    """Return the status and the content of a response."""
    request = urllib.request.Request(
        f"{address}/admin/v2/persistent/public/default/{path}",
        method=method,
        headers={"Content-Type": "application/json"},
        data=None if body is None else json.dumps(body).encode(),
    )
    try:
        response = urllib.request.urlopen(request, timeout=20)
    except urllib.error.HTTPError as err:
        response = err
    with response:
        text = response.read()
    with contextlib.suppress(json.JSONDecodeError):
        return response.status, json.loads(text)
    return response.status, text.decode() or None


def describe(content: object) -> object:
    """Return the names and types of the fields of a response."""
    if isinstance(content, Mapping):
        return {name: describe(value) for name, value in content.items()}
    if isinstance(content, bool | str | None):
        return type(content).__name__
    return "number" if isinstance(content, int | float) else "list"


def find_differences(recorded: object, real: object, where: str = "") -> list[str]:
    """Return the fields that the recorded response has otherwise than the real one."""
    if not isinstance(recorded, Mapping) or not isinstance(real, Mapping):
        return [] if recorded == real else [f"{where}: {recorded}, not {real}"]
    return [
        difference
        for name, value in recorded.items()
        for difference in find_differences(value, real.get(name), f"{where}.{name}")
    ]


def test_each_request_has_the_response_of_the_real_broker(pulsar_broker: Broker) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with RecordedBroker() as recorded:
        for number, (method, path, body) in enumerate(REQUESTS):
            path = path.format(topic=topic)
            expected = call(pulsar_broker.admin_url, method, path, body)
            found = call(recorded.address, method, path, body)

            where = f"request {number}, {method} {path}"
            assert found[0] == expected[0], f"{where}: {found[1]}, not {expected[1]}"
            assert find_differences(describe(found[1]), describe(expected[1]), where) == []


def test_statistics_of_a_backlog_have_the_fields_of_the_real_broker(
    pulsar_broker: Broker,
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    path = f"{topic}/stats?getPreciseBacklog=true&subscriptionBacklogSize=true"
    path += "&getEarliestTimeInBacklog=true"
    pulsar_broker.request("PUT", f"persistent/public/default/{topic}")
    pulsar_broker.request("PUT", f"persistent/public/default/{topic}/subscription/s", EARLIEST)
    peer = Peer(pulsar_broker.service_url)
    peer.send(topic, [b"message"] * 3)
    peer.close()
    status, real = call(pulsar_broker.admin_url, "GET", path, None)
    with RecordedBroker() as recorded:
        for name in ("", "/subscription/s"):
            call(recorded.address, "PUT", f"{topic}{name}", {})
        recorded.topics[topic].subscriptions["s"] = 3
        found, shown = call(recorded.address, "GET", path, None)

    assert status == found == 200
    assert find_differences(describe(shown), describe(real)) == []
    for name in ("msgBacklog", "msgDelayed", "unackedMessages", "consumers"):
        assert shown["subscriptions"]["s"][name] == real["subscriptions"]["s"][name]
    sizes = {broker["subscriptions"]["s"]["backlogSize"] / 3 for broker in (shown, real)}
    assert max(sizes) < 2 * min(sizes), "an entry has about the same size"
