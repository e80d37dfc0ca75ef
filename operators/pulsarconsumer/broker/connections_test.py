"""Connections to admin APIs: kept between looks, and shared by nobody who is somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from libs.common.testing.clock import FakeClock
from operators.pulsarconsumer.broker.connections import IDLE_SECONDS, Connections
from operators.pulsarconsumer.broker.login import KeyFile, Login, LoginInvalid
from operators.pulsarconsumer.broker.pulsar_admin import PulsarAdmin
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic

ADDRESS = "http://pulsar:8080"
MINE = Login(token="mine")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def connections(clock: FakeClock) -> AsyncIterator[Connections]:
    async with Connections(allow_loopback=True, clock=clock) as connections:
        yield connections


async def use(connections: Connections, login: Login, address: str = ADDRESS) -> object:
    async with connections.lease(address, login) as session:
        return session


async def count_partitions(connections: Connections, broker: RecordedBroker) -> int:
    admin = PulsarAdmin(broker.address, allow_loopback=True, connections=connections)
    async with admin:
        return await admin.count_partitions(Topic.parse("t"))


async def test_looks_share_a_connection_and_find_a_broker_that_was_restarted(
    connections: Connections,
) -> None:
    with RecordedBroker() as broker:
        broker.topics["t"] = RecordedTopic(partitions=3)
        for _ in range(5):
            assert await count_partitions(connections, broker) == 3
        assert broker.connections == 1

        broker.stop()
        broker.start()
        assert await count_partitions(connections, broker) == 3
        assert broker.connections == 2


@pytest.mark.parametrize(
    "other",
    [
        Login(),
        replace(MINE, token="other"),
        Login(username="mine"),
        replace(MINE, trusted="ca"),
        replace(MINE, verify_hostname=False),
        replace(MINE, verify_certificate=False),
        replace(MINE, key_file=KeyFile("http://issuer", "id", "secret")),
    ],
)
async def test_other_login_has_connections_of_its_own(
    connections: Connections, other: Login
) -> None:
    assert await use(connections, MINE) is await use(connections, replace(MINE))
    assert await use(connections, MINE) is not await use(connections, other)
    assert await use(connections, MINE) is not await use(connections, MINE, f"{ADDRESS}1")


async def test_connections_that_nobody_uses_any_more_are_closed(
    connections: Connections, clock: FakeClock
) -> None:
    async with connections.lease(ADDRESS, MINE) as used:
        gone = await use(connections, Login())
        clock.advance(IDLE_SECONDS)
        await use(connections, Login(token="third"))
        assert not used.closed
    clock.advance(IDLE_SECONDS)
    await use(connections, Login(token="third"))

    assert isinstance(gone, aiohttp.ClientSession)
    assert gone.closed
    assert used.closed


async def test_all_are_closed_at_the_end() -> None:
    async with Connections() as connections, connections.lease(ADDRESS, MINE) as session:
        pass

    assert session.closed


async def test_login_that_cannot_be_read_keeps_nothing(connections: Connections) -> None:
    wrong = Login(certificate="x", key="y")
    for _ in range(2):
        with pytest.raises(LoginInvalid):
            await use(connections, wrong, "https://pulsar:8443")
