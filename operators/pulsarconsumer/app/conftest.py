"""Fixtures of the tests against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from operators.pulsarconsumer.app.harness import Peer, new_topic
from operators.pulsarconsumer.testing.broker import Broker


@pytest.fixture
def topic() -> str:
    return new_topic()


@pytest.fixture(scope="session")
def peer(pulsar_broker: Broker) -> Iterator[Peer]:
    client = Peer(pulsar_broker.service_url)
    yield client
    client.close()
