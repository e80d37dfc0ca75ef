"""Tests of the probes and of /metrics over HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from libs.common.health import HealthServer, LoopLagMonitor
from libs.common.listener import CONNECTIONS
from libs.common.metrics import Metrics


@pytest.fixture
async def server() -> AsyncIterator[HealthServer]:
    async with HealthServer(Metrics(process=False), "127.0.0.1:0", "127.0.0.1:0") as server:
        yield server


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_probe_says_ok_while_all_is_well(server: HealthServer) -> None:
    for path in ("/healthz", "/readyz", "/livez"):
        assert await fetch(server.probe_port, path) == (200, "ok")


async def test_verbose_probe_lists_the_checks(server: HealthServer) -> None:
    async def synced() -> None:
        await asyncio.sleep(0)

    server.add_ready_check("caches", synced)

    status, text = await fetch(server.probe_port, "/readyz?verbose")
    assert (status, text) == (200, "[+]ping ok\n[+]caches ok\nreadyz check passed\n")


async def test_failing_check_fails_its_probe_alone(server: HealthServer) -> None:
    server.add_health_check("elector", lambda: "the thread is dead")

    status, text = await fetch(server.probe_port, "/healthz")
    assert status == 500
    assert text == "[+]ping ok\n[-]elector failed: the thread is dead\nhealthz check failed\n"
    assert await fetch(server.probe_port, "/readyz") == (200, "ok")


async def test_raising_check_fails_without_its_secret(server: HealthServer) -> None:
    def check() -> str | None:
        raise ValueError("password=canary")

    server.add_health_check("broken", check)

    status, text = await fetch(server.probe_port, "/healthz")
    assert status == 500
    assert "[-]broken failed: ValueError" in text
    assert "canary" not in text


async def test_hanging_check_fails_in_time(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.common.health._CHECK_TIMEOUT_SECONDS", 0.01)

    async def hang() -> str | None:
        await asyncio.Event().wait()
        return None

    server.add_health_check("hanging", hang)

    status, text = await fetch(server.probe_port, "/healthz")
    assert status == 500
    assert "[-]hanging failed: no result within" in text


async def test_one_check_can_be_asked_and_left_out(server: HealthServer) -> None:
    server.add_health_check("bad", lambda: "no")

    assert (await fetch(server.probe_port, "/healthz/bad"))[0] == 500
    assert (await fetch(server.probe_port, "/healthz/ping"))[0] == 200
    assert (await fetch(server.probe_port, "/healthz/other"))[0] == 404
    assert (await fetch(server.probe_port, "/healthz?exclude=bad"))[0] == 200


async def test_metrics_are_served_on_their_own_port(server: HealthServer) -> None:
    status, text = await fetch(server.metrics_port, "/metrics")

    assert status == 200
    assert "# TYPE workqueue_depth gauge" in text
    assert (await fetch(server.metrics_port, "/healthz"))[0] == 404
    assert (await fetch(server.probe_port, "/metrics"))[0] == 404


async def test_zero_disables_a_server() -> None:
    async with HealthServer(Metrics(process=False), "0", "127.0.0.1:0") as server:
        assert server.metrics_port == 0
        assert (await fetch(server.probe_port, "/healthz"))[0] == 200


async def test_one_address_serves_both() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    async with HealthServer(Metrics(process=False), address, address) as server:
        assert server.metrics_port == server.probe_port
        assert (await fetch(server.probe_port, "/healthz"))[0] == 200
        assert (await fetch(server.probe_port, "/metrics"))[0] == 200


async def test_taken_address_fails_and_leaves_nothing_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = HealthServer(
            Metrics(process=False), "127.0.0.1:0", f"127.0.0.1:{taken.getsockname()[1]}"
        )
        with pytest.raises(OSError, match="in use"):
            await server.start()

        assert server.metrics_port == 0


async def test_stopped_server_no_longer_answers(server: HealthServer) -> None:
    port = server.probe_port
    await server.close()

    with pytest.raises(aiohttp.ClientConnectionError):
        await fetch(port, "/healthz")


def test_lag_is_what_a_timer_was_late() -> None:
    now = 0.0
    metrics = Metrics(process=False)
    monitor = LoopLagMonitor(metrics, interval=1.0, clock=lambda: now)
    monitor._due = 1.0  # as run() sets it
    now = 41.0

    assert monitor.lag_seconds() == 40.0
    assert monitor.check() == "the event loop lags by 40.0 s"
    assert metrics.value("operator_event_loop_lag_seconds") == 40.0

    monitor.measured()
    monitor._due = 42.0
    assert monitor.check() is not None, "the last measurement counts until the next"
    now = 42.0
    monitor.measured()
    assert monitor.check() is None


async def test_lag_monitor_measures_until_cancelled() -> None:
    monitor = LoopLagMonitor(Metrics(process=False), interval=0.001)
    task = asyncio.create_task(monitor.run())
    while monitor._due is None:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert monitor.check() is None


async def test_connections_that_never_end_their_request_make_room_for_others(
    server: HealthServer,
) -> None:
    opened = []
    for _ in range(CONNECTIONS + 20):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.probe_port)
        opened.append((reader, writer))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Rest: ")
        # The server must have accepted it before the next one.
        assert await fetch(server.probe_port, "/healthz") == (200, "ok")
    for reader, _ in opened[:20]:
        assert await reader.read() == b"", "the oldest are closed"
    assert not any(reader.at_eof() for reader, _ in opened[-100:]), "the newest stay"
    for _, writer in opened:
        writer.close()
