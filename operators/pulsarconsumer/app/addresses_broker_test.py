"""Service URLs with several hosts, and brokers with several listeners."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from libs.common.testing.ports import find_free_port
from operators.pulsarconsumer.app.harness import (
    Peer,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker, PulsarMissing

_DEAD = "127.0.0.1:1"


@pytest.fixture(scope="module")
def listening() -> Iterator[Broker]:
    """Run a broker that advertises two listeners."""
    ports, external = (find_free_port(), find_free_port()), find_free_port()
    advertised = {
        "internal": f"pulsar://127.0.0.1:{ports[0]}",
        "external": f"pulsar://127.0.0.1:{external}",
    }
    config = {
        # The first of these is the default as well.
        "advertisedListeners": ",".join(f"{name}:{url}" for name, url in advertised.items()),
        "internalListenerName": "internal",
        "bindAddresses": f"external:{advertised['external']}",
        # Excludes advertisedListeners, and the bookie takes its address from it.
        "advertisedAddress": "",
        "allowLoopback": "true",
    }
    try:
        broker = Broker(ports=ports, config=config)
    except PulsarMissing as err:
        pytest.skip(str(err))
    with broker:
        yield broker


@pytest.mark.parametrize("dead_first", [True, False])
def test_host_that_is_dead_is_passed_over(
    dead_first: bool, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    alive = pulsar_broker.service_url.removeprefix("pulsar://")
    hosts = [_DEAD, alive] if dead_first else [alive, _DEAD]
    received: list[object] = []
    peer.send(topic, [b"x"])
    environ = build_environment(f"pulsar://{','.join(hosts)}", topic)
    with running(environ, received.append, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 1, "it is consumed")

    assert len(received) == 1


def test_consumers_connect_to_the_listener_that_is_named(
    listening: Broker, topic: str, tmp_path: Path
) -> None:
    """The service URL has the address of the listener `internal`."""
    peer = Peer(listening.service_url)
    peer.send(topic, [b"x"])
    peer.close()

    def build(listener: str) -> dict[str, str]:
        return build_environment(
            listening.service_url,
            topic,
            listener_name=listener,
            subscription_name=listener or "default",
            operation_timeout_seconds=5,
        )

    for listener in ("", "internal", "external"):
        with running(build(listener), lambda _: None, tmp_path / "log") as worker:
            wait_until(partial(worker.handled, "acknowledged"), f"{listener or 'default'} serves")
    with running(build("unknown"), lambda _: None, tmp_path / "log") as worker:
        failures = partial(worker.value, "broker_errors_total", operation="subscribe")
        wait_until(failures, "a name that the broker does not have is refused")
        assert worker.handled("acknowledged") == 0
        assert "not subscribed: " in (worker.worker.check_ready() or "")
