"""Rules that fail in a real JVM, and what an endpoint does with every kind of request."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.guard_calls import describe_scrape
from operators.jmxexporter.injector.access import Access
from operators.jmxexporter.injector.inject import run
from operators.jmxexporter.injector.messages import LOGIN_VARIABLES, Action, JvmReport, State
from operators.jmxexporter.injector.scrape import CONTROL_PATH, parse_answer
from operators.jmxexporter.jvms import CONFIG, Jvm, build_request, scrape_metrics, wait_until
from operators.jmxexporter.reasons import Reason

type Start = Callable[..., Jvm]
LOGIN = dict(zip(LOGIN_VARIABLES.values(), ("prometheus", "secret"), strict=True))
LIKE_THE_JVM = r"""
rules:
- pattern: 'java.lang<type=Memory><HeapMemoryUsage>used'
  name: jvm_memory_used_bytes
  labels: {area: heap}
  type: GAUGE
"""
NO_GROUP = "rules:\n- pattern: '(shop)<type=Orders><>Count'\n  name: x_$2\n"
NEGATIVE = (
    "rules:\n- pattern: shop<type=Orders><>Count\n  name: x\n  type: COUNTER\n  valueFactor: -1\n"
)
ENDLESS = r"""
rules:
- pattern: '((\w|[a-z.<>=, ])+)+#'
"""
OPEN_METRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}


def ask(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ask_control(port: int) -> dict[str, str]:
    return parse_answer(ask(port, CONTROL_PATH)[1])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (LIKE_THE_JVM, "jvm_memory_used_bytes"),
        (NO_GROUP, "No group 2"),
        (NEGATIVE, "counters cannot have a negative value"),
        (ENDLESS, "simplify the pattern"),
    ],
    ids=["name of a JVM metric", "group that is missing", "negative counter", "endless pattern"],
)
def test_rules_that_fail_in_a_scrape_are_refused_with_the_cause(
    start_jvm: Start, release: int, config: str, words: str
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.order()
    first = jvm.inject_one(config=config, port=port)
    assert (first.state, first.reason) == (State.FAILED, Reason.CONFIG_INVALID), first
    assert words in first.message
    served = jvm.inject_one(port=port)

    second = jvm.inject_one(config=config, port=port)

    assert (second.state, second.reason) == (State.FAILED, Reason.CONFIG_INVALID), second
    assert words in second.message
    assert (second.port, second.config_hash) == (port, served.config_hash)
    for headers in ({}, OPEN_METRICS):
        status, text = ask(port, **headers)
        assert (status, "shop_orders" in text) == (200, True), text
    answer = ask_control(port)
    assert (answer["refusedReason"], describe_scrape(answer, datetime.now(UTC))) == (
        Reason.CONFIG_INVALID,
        "",
    )
    assert words in answer["refusedMessage"]


def test_cause_names_the_attribute_on_which_a_rule_fails(start_jvm: Start) -> None:
    report = start_jvm().inject_one(config=NO_GROUP, port=find_free_port())

    assert "attribute Count of shop:type=Orders" in report.message


def test_pattern_that_would_never_end_leaves_no_thread(start_jvm: Start, release: int) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)
    for _ in range(3):
        assert jvm.inject_one(config=ENDLESS, port=port).reason == Reason.CONFIG_INVALID

    jvm.inject_one(Action.STOP, port=port)

    wait_until(lambda: not [name for name in jvm.list_threads() if name.startswith("jmx-guard")])


def test_scrape_that_begins_to_fail_is_reported_with_the_cause(start_jvm: Start) -> None:
    """A counter becomes negative only after the injection."""
    jvm, port = start_jvm(), find_free_port()
    rules = NEGATIVE.replace("shop<type=Orders><>Count", "'shop<type=Orders><>Count: [1-9]'")
    assert jvm.inject_one(config=rules, port=port).state is State.SERVING
    assert describe_scrape(ask_control(port), datetime.now(UTC)) == ""
    jvm.order()

    status, text = ask(port)

    assert (status, "negative" in text) == (500, True)
    assert "counters cannot have a negative value" in describe_scrape(
        ask_control(port), datetime.now(UTC)
    )


def test_keys_of_a_java_agent_do_not_matter(start_jvm: Start, release: int) -> None:
    config = f"startDelaySeconds: 3600\nssl: false\nusername: u\nunknown: 1\n{CONFIG}"
    jvm, port = start_jvm(release=release), find_free_port()

    report = jvm.inject_one(config=config, port=port)

    assert report.state is State.SERVING, report
    assert "shop_orders" in scrape_metrics(port)


def inject_closed(jvm: Jvm, port: int, config: str) -> JvmReport:
    request = build_request(Action.ENSURE, config, port=port, login_secret="login")
    (report,) = run(request, config, jvm.jars, Access(LOGIN)).jvms
    return report


def test_login_and_refused_rules_change_nothing_together(start_jvm: Start, release: int) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)

    refused = inject_closed(jvm, port, NO_GROUP)

    assert (refused.reason, refused.port) == (Reason.CONFIG_INVALID, port), refused
    assert ask(port)[0] == 200
    assert inject_closed(jvm, port, CONFIG).state is State.SERVING
    assert ask(port)[0] == 401


def test_cause_is_not_shown_to_clients_without_the_login(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()
    inject_closed(jvm, port, CONFIG)

    inject_closed(jvm, port, NO_GROUP)

    assert "refusedMessage" not in ask_control(port)


@pytest.mark.parametrize("action", [Action.ENSURE, Action.STOP])
def test_endpoint_is_found_again_after_its_files_were_removed(
    start_jvm: Start, release: int, action: Action
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)
    shutil.rmtree(f"/tmp/slipway-jmx-{build_request(action).id[:8]}-{os.geteuid()}")

    report = jvm.inject_one(action, port=port)

    if action is Action.STOP:
        assert (report.state, report.changed) == (State.STOPPED, True), report
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
    else:
        assert (report.state, report.port, report.changed) == (State.SERVING, port, False), report


def test_neighbor_on_the_port_is_not_taken_for_the_endpoint(start_jvm: Start) -> None:
    """The containers of a pod share ports, and the endpoints of an exporter share the id."""
    first, second, port = start_jvm(), start_jvm(), find_free_port()
    first.inject_one(port=port)

    report = second.inject_one(port=port)

    assert (report.state, report.reason) == (State.REFUSED, Reason.PORT_IN_USE), report
    assert second.inject_one(Action.STOP, port=port).changed is False
    assert "shop_orders" in scrape_metrics(port)


def test_request_with_a_key_does_not_stay_in_tmp(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()
    jvm.inject_one(port=port)
    place = Path(f"/tmp/slipway-jmx-{build_request(Action.STOP).id[:8]}-{os.geteuid()}")
    for name in ("request-1.properties", ".request-2.properties.ab"):
        (place / name).write_text("tlsKey=x")
        os.utime(place / name, (0, time.time() - 3600))

    jvm.inject_one(port=port)

    assert [path.name for path in place.iterdir() if "request" in path.name] == []


def test_clients_cannot_use_up_the_files_of_the_application(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()
    jvm.inject_one(port=port)
    before = len(os.listdir(f"/proc/{jvm.process.pid}/fd"))
    clients = []

    for number in range(200):
        client = socket.create_connection(("127.0.0.1", port))
        with contextlib.suppress(OSError):
            client.sendall(b"GET /metr" if number % 2 else b"")
        clients.append(client)

    wait_until(lambda: ask(port)[0] == 200)
    assert len(os.listdir(f"/proc/{jvm.process.pid}/fd")) < before + 60
    for client in clients:
        client.close()


def test_time_for_a_scrape_is_what_prometheus_waits(start_jvm: Start, tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    jvm, port = start_jvm(f"-Dshop.hang={hang}"), find_free_port()
    jvm.inject_one(config="rules:\n- pattern: .*\n", port=port)
    hang.touch()

    status, text = ask(port, **{"X-Prometheus-Scrape-Timeout-Seconds": "2"})

    assert (status, "1900 ms" in text) == (503, True), text
    hang.unlink()


def test_pages_are_those_of_the_upstream_exporter(start_jvm: Start, release: int) -> None:
    jvm, port = start_jvm("-XX:NativeMemoryTracking=summary", release=release), find_free_port()
    jvm.inject_one(port=port)

    assert ask(port, "/-/healthy") == (200, "Exporter is healthy.\n")
    assert ask(port, "/")[0] == 200
    assert ask(port, "/other")[0] == 404
    status, text = ask(port, "/metrics?name[]=shop_orders&name%5B%5D=jvm_threads_current")
    names = {line.split("{")[0].split()[0] for line in text.splitlines() if line[:1] != "#"}
    assert (status, names) == (200, {"shop_orders", "jvm_threads_current"})
    assert "jvm_native_memory_reserved_bytes" in scrape_metrics(port)


@pytest.mark.parametrize(
    "option", ["-Dprometheus.config=/missing", "-Dio.prometheus.exporter.port=x"]
)
def test_properties_of_the_application_are_not_ours(start_jvm: Start, option: str) -> None:
    report = start_jvm(option).inject_one(port=find_free_port())

    assert report.state is State.SERVING, report


def test_allocations_are_counted_and_their_listener_is_removed(
    start_jvm: Start, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)
    jvm.collect_garbage()

    wait_until(lambda: bool(scrape_metrics(port)["jvm_memory_pool_allocated_bytes"].samples))

    jvm.inject_one(Action.STOP)
    wait_until(lambda: not jvm.has_class("slipway.jmx.engine"))
    wait_until(lambda: not jvm.has_class("AllocationCountingNotificationListener"))


@pytest.mark.parametrize("field", ["main_class", "exclude_main_class"])
def test_pattern_of_main_classes_that_would_never_end_is_refused(
    start_jvm: Start, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setattr("operators.jmxexporter.injector.inject._SEARCH_SECONDS", 0.2)

    pattern: dict[str, Any] = {field: r"((\w|[a-z.])+)+#"}

    report = start_jvm().inject(**pattern)

    assert (report.reason, report.jvms) == (Reason.INVALID_SPEC, ())
