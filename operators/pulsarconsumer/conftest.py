"""Fixtures: the operator, a recorded broker, and real brokers with and without authentication."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from libs.common.crd import build_crd
from libs.common.testing.certificates import create_certificates
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.testing.broker import REPEATED, Broker, PulsarMissing
from operators.pulsarconsumer.testing.security import CERTIFICATE_ROLE

_LOG_LINES = 200
"""Number of the last lines of the log of a broker to show for a test that failed."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of the real broker of a test that failed; it is removed with the broker."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Broker):
                lines = value.log().splitlines()[-_LOG_LINES:]
                report.sections.append((f"log of {name}", "\n".join(lines)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what a real broker refused temporarily, even if all tests passed."""
    if REPEATED:
        terminalreporter.section("temporary errors of the Pulsar broker")
        for refusal in REPEATED:
            terminalreporter.write_line(refusal)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run a fake API server that serves PulsarConsumers."""
    async with FakeApi() as api:
        api.register(build_crd(PulsarConsumer))
        yield api


@pytest.fixture
def broker() -> Iterator[RecordedBroker]:
    """Run a broker that has the topic and nothing in it."""
    with RecordedBroker() as broker:
        broker.topics["my-topic"] = RecordedTopic()
        yield broker


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator."""
    async with OperatorHarness(
        OPERATOR,
        api.config,
        allow_loopback_brokers=True,
        poll_seconds=1,
        backoff_max_seconds=1,
    ) as harness:
        yield harness


@pytest.fixture(scope="session")
def pulsar_broker() -> Iterator[Broker]:
    """Run a real Pulsar broker for the whole test run; it starts in about 10 seconds."""
    try:
        broker = Broker()
    except PulsarMissing as err:
        pytest.skip(str(err))
    with broker:
        yield broker


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make certificates of the broker and of two clients, one of which has no rights."""
    folder = tmp_path_factory.mktemp("certificates")
    # The admin API of Pulsar 3.0 reads no other keys.
    return create_certificates(folder, clients=(CERTIFICATE_ROLE, "stranger"), rsa=True)


@pytest.fixture(scope="session")
def strict_broker(certificates: Path) -> Iterator[Broker]:
    """Run a broker that asks who it is, and speaks TLS."""
    try:
        strict = Broker(tokens=True, certificates=certificates)
    except PulsarMissing as err:
        pytest.skip(str(err))
    with strict:
        yield strict
