"""Service URLs with several hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.pulsarconsumer.app.harness import (
    Peer,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker

_DEAD = "127.0.0.1:1"


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
